//! Room 9: the bytes, both ways, with back-pressure. Whoever has no room to write to stops reading.

use std::io;
use std::task::{Context, Poll};

use plimsoll_h1::{KindSet, Limits, Upgrade, Version};
use plimsoll_resilience::flight::{Failure, Flight};
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::rejection::{Block, Rejected};

use super::connect::Pooled;
use super::link::Link;
use super::{Caller, End, Exchange};
use crate::dial::{DialError, words};
use crate::forward::answer::{Found, Invalid};
use crate::forward::heads;
use crate::forward::io::poll_send;
use crate::forward::request::BodyEnd;
use crate::streams::fields;
use crate::tls::TlsError;

impl Exchange {
    /// Goes on with getting a connection.
    pub(super) fn poll_dial(&mut self, cx: &mut Context<'_>) {
        while let Link::Waiting(waiting) = &mut self.link {
            let polled = waiting.socket.as_mut().poll(cx);
            let destination = waiting.destination.clone();
            if polled.is_pending()
                && let Pooled::Way(way) = self.take_pooled(&destination)
            {
                self.use_pooled(way, cx);
                self.act(cx);
                continue;
            }
            let Poll::Ready(socket) = polled else {
                // What another worker has idle is of no use here: it is closed, and its socket is free.
                return self.ask_for_socket();
            };
            let Link::Waiting(waiting) = std::mem::replace(&mut self.link, Link::None) else { return };
            let Some(socket) = socket else {
                let sockets = self.dependency().sockets();
                let refused = self.service().too_many_connections(sockets.open(), sockets.limit().unwrap_or(0));
                return self.refuse(refused, Block::Bulkhead, cx);
            };
            self.connect(waiting.endpoint, waiting.destination, Some(socket), cx);
            // What was asked for instead may have set another wait, which this loop then begins.
            self.act(cx);
        }
        let Link::Dialing(dial) = &mut self.link else { return };
        let Poll::Ready(dialed) = dial.as_mut().poll(cx) else { return };
        self.link = Link::None;
        match dialed {
            Ok(way) => self.open(way, cx),
            Err(DialError::Failed(failure, why)) => {
                self.trouble = Some(why);
                self.fail(failure, cx);
            }
            Err(DialError::Loop) => {
                let looped = Rejected::new(Reason::Loop, 0, 0);
                self.refuse(looped, Block::Target, cx);
            }
        }
    }

    /// From the caller to the endpoint.
    pub(super) fn poll_request(&mut self, cx: &mut Context<'_>) {
        loop {
            let wrote = match &self.link {
                Link::Connection(_) => self.write_request(cx),
                Link::Stream(_) => self.send_request(cx),
                Link::None | Link::Waiting(_) | Link::Dialing(_) => false,
            };
            if wrote {
                continue;
            }
            // A body that nobody will be sent stays where it is, but for what shows that the caller is still there.
            if self.landed && !self.tunnel || self.request.is_whole() || !self.reads_body() {
                return;
            }
            let Some(down) = self.caller.connection() else {
                match self.receive_request(cx) {
                    true => continue,
                    false => return,
                }
            };
            match self.request.poll_fill(&mut down.stream, cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(_)) => {
                    self.progress();
                    self.take_body();
                }
                Poll::Ready(Err(BodyEnd::Closed)) if self.tunnel => {
                    self.request.end_raw();
                }
                Poll::Ready(Err(_)) => return self.caller_gone(cx),
            }
        }
    }

    /// Writes once; false when there is nothing to write or no room to write to.
    fn write_request(&mut self, cx: &mut Context<'_>) -> bool {
        let holds_last_byte = self.holds_last_byte();
        let Link::Connection(open) = &mut self.link else { return false };
        if open.write_failed || open.shut {
            return false;
        }
        let held = usize::from(holds_last_byte);
        if let Some(chunks) = &mut open.chunks
            && open.head_sent == open.head.len()
        {
            open.head.clear();
            open.head_sent = 0;
            chunks.stage(&self.request, &mut open.head);
        }
        let head = &open.head[open.head_sent..];
        let unsent = self.request.unsent();
        let unsent = &unsent[..unsent.len() - held.min(unsent.len())];
        let body = open.chunks.map_or(unsent, |chunks| &unsent[..chunks.room()]);
        if head.is_empty() && body.is_empty() {
            if self.tunnel && self.request.is_whole() {
                open.shut = true;
                open.upstream.stream.shut_down_write();
            }
            return false;
        }
        let head_len = head.len();
        match poll_send(&mut open.upstream.stream, head, body, cx) {
            Poll::Pending => false,
            Poll::Ready(Ok(written)) => {
                let of_head = written.min(head_len);
                open.head_sent += of_head;
                if let Some(chunks) = &mut open.chunks {
                    chunks.on_sent(written - of_head);
                }
                self.request.on_sent(written - of_head);
                if !std::mem::replace(&mut open.wrote, true) {
                    self.flight.handle_sent(self.now);
                }
                self.progress();
                true
            }
            Poll::Ready(Err(_)) => {
                // The server may have answered before it closed: reading decides.
                open.write_failed = true;
                false
            }
        }
    }

    /// Looks at the part of the body that has arrived.
    pub(super) fn take_body(&mut self) {
        match self.request.take() {
            Ok(true) => {}
            Ok(false) => self.flight.handle_unrepeatable(),
            Err(error) => {
                tracing::debug!(%error, "malformed request body");
                self.end = Some(End::Malformed);
                self.moved = true;
            }
        }
    }

    /// From the endpoint towards the caller.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) {
        // One buffer at a time: the caller takes what is here before more is read.
        while !self.answer.is_whole() && self.reply.is_flushed(&self.answer) {
            let open = match &mut self.link {
                Link::Connection(open) => open,
                Link::Stream(_) => return self.receive_answer(cx),
                Link::None | Link::Waiting(_) | Link::Dialing(_) => return,
            };
            match self.answer.poll_fill(&mut open.upstream.stream, &self.worker.buffers, cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(count)) if count > 0 => {
                    self.progress();
                    if !self.look(cx) {
                        return;
                    }
                }
                Poll::Ready(end) => return self.upstream_closed(&end.map(drop), cx),
            }
        }
    }

    /// Makes what it can of the bytes that have arrived. False when the attempt is over.
    fn look(&mut self, cx: &mut Context<'_>) -> bool {
        let upgrade_asked = self.request.head.upgrade == Upgrade::WebSocket;
        loop {
            match self.answer.look(self.request.head.method, &Limits::default(), upgrade_asked) {
                Ok(Found::Nothing) => return true,
                Ok(Found::Interim) => self.pass_interim(),
                Ok(Found::Head) => {
                    self.look_at_body();
                    self.report_head(cx);
                    self.act(cx);
                    if !self.reply.has_begun() {
                        return false;
                    }
                    self.end_if_whole(cx);
                }
                Ok(Found::Body) => self.end_if_whole(cx),
                Err(invalid) => {
                    self.invalid(invalid, cx);
                    return false;
                }
            }
        }
    }

    pub(super) fn pass_interim(&mut self) {
        if self.reply.has_begun() {
            return;
        }
        let (head, buf) = (&self.answer.head, self.answer.bytes());
        if let Some(stream) = self.caller.stream() {
            stream.send_interim(head.status, fields::header_map(&head.fields, buf, KindSet::EMPTY, &[]));
        } else if self.request.head.version == Version::Http11 {
            heads::put_interim(head, buf, self.reply.out());
        } else {
            return;
        }
        self.interim_passed = true;
    }

    /// The part of the body that came with the head decides whether the answer is whole, before the flight is asked.
    fn look_at_body(&mut self) {
        // A body that is broken from its first byte is found out by the next look.
        let _ = self.answer.look(self.request.head.method, &Limits::default(), false);
    }

    pub(super) fn end_if_whole(&mut self, cx: &mut Context<'_>) {
        let whole = self.answer.is_whole() && (!self.tunnel || self.request.is_whole());
        if !whole || self.told_ended {
            return;
        }
        self.told_ended = true;
        let reusable = self.answer.head.keep_alive && !self.answer.has_excess();
        let patience = self.answer.head.keep_alive_timeout;
        if !self.tunnel {
            let link = std::mem::replace(&mut self.link, Link::None);
            self.give_back(link, reusable, patience);
        }
        self.tell(cx, Flight::handle_ended);
        self.act(cx);
    }

    fn upstream_closed(&mut self, end: &io::Result<()>, cx: &mut Context<'_>) {
        // A failed write takes the socket's error with it, and a reset then reads like an orderly end.
        let torn = matches!(&self.link, Link::Connection(open) if open.write_failed);
        if end.is_ok() && !torn && self.answer.close().is_ok() {
            return self.end_if_whole(cx);
        }
        let Link::Connection(open) = &self.link else { return };
        let failure = match end.as_ref().err().and_then(TlsError::of) {
            Some(error) if error.refuses_us() && self.answer.held() == 0 => {
                self.tell_tls(error);
                Failure::Tls
            }
            _ if open.wrote => Failure::Reset,
            _ => Failure::NotSent,
        };
        self.fail(failure, cx);
    }

    /// As a failed handshake is told: it is one, though TLS 1.3 has it fail after its end.
    pub(super) fn tell_tls(&mut self, error: &TlsError) {
        self.trouble = Some(words(&error.to_string()));
        let (dependency, endpoint) = (&*self.dependency().name, self.endpoint);
        if self.service().security.as_ref().is_some_and(|origination| origination.may_tell(self.now)) {
            tracing::warn!(dependency, ?endpoint, %error, "no TLS");
        }
    }

    /// The attempt failed for what the endpoint says, or cannot be said.
    pub(super) fn broke_protocol(&mut self, what: &str, cx: &Context<'_>) {
        self.trouble = Some(words(what));
        self.fail(Failure::Protocol, cx);
    }

    pub(super) fn invalid(&mut self, invalid: Invalid, cx: &mut Context<'_>) {
        let dependency = &*self.dependency().name;
        tracing::warn!(dependency, endpoint = ?self.endpoint, error = %invalid, "not a valid answer");
        self.broke_protocol(&format!("not a valid answer: {invalid}"), cx);
    }

    /// The rest of an answer that a retry may replace.
    pub(super) fn poll_kept(&mut self, cx: &mut Context<'_>) {
        let method = self.method();
        while let Some(kept) = &mut self.kept {
            let open = match &mut kept.link {
                Link::Connection(open) => open,
                Link::Stream(_) => return self.receive_kept(cx),
                Link::None | Link::Waiting(_) | Link::Dialing(_) => return,
            };
            match kept.answer.poll_fill(&mut open.upstream.stream, &self.worker.buffers, cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(count)) if count > 0 => {
                    if kept.answer.look(method, &Limits::default(), false).is_err() {
                        kept.link = Link::None;
                    }
                    self.settle_kept();
                }
                Poll::Ready(end) => {
                    // Whole if it ends with the connection; cut otherwise.
                    let _ = end.is_ok() && kept.answer.close().is_ok();
                    kept.link = Link::None;
                }
            }
        }
    }

    /// To the caller.
    pub(super) fn poll_reply(&mut self, cx: &mut Context<'_>) {
        if matches!(self.end, Some(End::CallerGone | End::Cut(_))) {
            return;
        }
        let mut moved = false;
        let flushed = match &mut self.caller {
            Caller::Connection(down) => {
                self.reply.poll_flush(&down.stream, &mut self.answer, &mut moved, cx).map(|flushed| flushed.is_ok())
            }
            Caller::Stream(stream) => {
                let retries_over = self.flight.summary().retries_over;
                let flushed = stream.poll_flush(&mut self.reply, &mut self.answer, retries_over, &mut moved, cx);
                flushed.map(|flushed| flushed.is_ok())
            }
        };
        if moved {
            self.progress();
            // Room to read more of the answer.
            self.moved |= !self.answer.is_whole();
        }
        match flushed {
            Poll::Ready(false) => self.caller_gone(cx),
            Poll::Ready(true) if self.tunnel && self.answer.is_whole() => {
                // The server has closed its side of the tunnel: so do we, and end when the caller does.
                if !std::mem::replace(&mut self.shut_back, true) {
                    self.caller.shut_tunnel();
                }
                self.end_if_whole(cx);
            }
            _ => {}
        }
    }

    /// With nothing else to wait for from the caller, its going away is what is left to notice. True when it has gone.
    pub(super) fn watch_caller(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(stream) = self.caller.stream() {
            let gone = self.end.is_none() && stream.poll_gone(cx).is_ready();
            if gone {
                self.caller_gone(cx);
            }
            return gone;
        }
        if !self.request.is_whole() || self.tunnel || self.end.is_some() {
            return false;
        }
        loop {
            let Some(down) = self.caller.connection() else { return false };
            match self.request.poll_watch(&mut down.stream, cx) {
                Poll::Pending => return false,
                // Its next request has begun to arrive; it waits its turn.
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => {
                    self.caller_gone(cx);
                    return true;
                }
            }
        }
    }

    pub(super) fn refuse_malformed_body(&mut self, cx: &Context<'_>) {
        self.drop_link();
        self.tell(cx, Flight::handle_caller_gone);
        self.keep_alive = false;
        if self.reply.has_begun() {
            self.end = Some(End::Cut(Reason::MalformedRequest));
        } else {
            self.answer_malformed();
        }
    }

    pub(super) fn progress(&mut self) {
        self.last_progress = self.now;
        self.flight.handle_progress(self.now);
    }
}
