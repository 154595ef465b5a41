//! Room 9 where a side of the call is a stream of HTTP/2.

use std::task::{Context, Poll};

use bytes::Bytes;
use plimsoll_h1::{Limits, Upgrade};
use plimsoll_resilience::flight::{Failure, Flight};
use plimsoll_resilience::reason::Reason;

use super::link::{Link, OnStream};
use super::{Exchange, KEPT_ANSWER};
use crate::forward::answer::{Answer, Invalid};
use crate::forward::grpc::is_grpc;
use crate::forward::heads;
use crate::pool::streams::Opened;
use crate::streams::{Code, StreamError, fields};

impl Exchange {
    /// The request goes out on a stream of a connection that is open.
    pub(super) fn open_stream(&mut self, mut opened: Opened, cx: &Context<'_>) {
        self.flight.handle_connected(self.now);
        self.endpoint = Some(opened.address);
        self.request.rewind();
        let received = self.request.received_by_stream(!self.flight.may_be_retried());
        let scheme = if self.service().security.is_some() { "https" } else { "http" };
        let (head, buf) = (&self.request.head, self.request.bytes());
        let request = match heads::stream_request(head, buf, received, &self.request_facts(), scheme) {
            Ok(request) => request,
            Err(error) => {
                tracing::debug!(dependency = &*self.dependency().name, %error, "no request for HTTP/2");
                return self.broke_protocol(&format!("the request cannot be sent over HTTP/2: {error}"), cx);
            }
        };
        let ends = self.request.is_whole() && self.request.is_sent() && self.request.trailers().is_none();
        if self.request.head.upgrade == Upgrade::WebSocket && !opened.handle.extended_connect() {
            tracing::debug!(dependency = &*self.dependency().name, "the server takes no WebSocket over HTTP/2");
            let what = "the endpoint takes no WebSocket over HTTP/2 (RFC 8441); upstreamProtocol: HTTP1 would carry it";
            return self.broke_protocol(what, cx);
        }
        match opened.handle.open(request, ends) {
            Ok((awaited, outflow)) => {
                self.link = Link::Stream(Box::new(OnStream {
                    awaited: Some(awaited),
                    outflow,
                    inflow: None,
                    held_back: false,
                    ended: ends,
                    failed: false,
                    opened,
                }));
                // What is queued goes out with the connection's next turn.
                self.flight.handle_sent(self.now);
                self.progress();
            }
            Err(error) => self.fail(self.failure_of(error), cx),
        }
    }

    fn failure_of(&self, error: StreamError) -> Failure {
        match error {
            StreamError::NotProcessed if self.request.is_all_here() => Failure::RefusedStream,
            StreamError::Protocol => Failure::Protocol,
            StreamError::NotProcessed | StreamError::Reset(_) | StreamError::GoneAway(_) | StreamError::Lost(_) => {
                Failure::Reset
            }
        }
    }

    /// Sends a piece of the request; false when there is none or no room for it.
    pub(super) fn send_request(&mut self, cx: &mut Context<'_>) -> bool {
        let Link::Stream(open) = &mut self.link else { return false };
        if open.failed || open.ended {
            return false;
        }
        let unsent = self.request.unsent().len();
        let sent = if unsent > 0 {
            let room = match open.outflow.poll_room(unsent, cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(room)) => room,
                Poll::Ready(Err(_)) => {
                    // The server may have answered before it stopped reading: the answer decides.
                    open.failed = true;
                    return false;
                }
            };
            let piece = self.request.take_piece(room);
            open.ended = self.request.is_whole() && self.request.is_sent() && self.request.trailers().is_none();
            open.outflow.send(piece, open.ended)
        } else if self.request.is_whole() {
            open.ended = true;
            match self.request.trailers() {
                Some(trailers) => open.outflow.send_trailers(trailers.to_map()),
                None => open.outflow.send(Bytes::new(), true),
            }
        } else {
            return false;
        };
        open.failed = sent.is_err();
        self.progress();
        true
    }

    /// Reads a piece of the request from the caller's stream; false when there is none for now.
    pub(super) fn receive_request(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(stream) = self.caller.stream() else { return false };
        match stream.inflow.poll_data(cx) {
            Poll::Pending => return false,
            Poll::Ready(Some(Ok(data))) => {
                // One piece is read when the last one has gone on: more than the window is never held.
                stream.inflow.release(data.len());
                let ends = stream.inflow.is_ended();
                if self.grpc {
                    self.asked.on_data(&data);
                }
                if !self.request.push(data) {
                    self.flight.handle_unrepeatable();
                }
                if ends {
                    self.request.end(None);
                }
                self.note_stream(cx);
            }
            Poll::Ready(None) => match stream.inflow.poll_trailers(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(trailers)) => self.request.end(trailers),
                Poll::Ready(Err(error)) => self.request_broke_off(error, cx),
            },
            Poll::Ready(Some(Err(error))) => self.request_broke_off(error, cx),
        }
        self.progress();
        self.end.is_none()
    }

    fn request_broke_off(&mut self, error: StreamError, cx: &Context<'_>) {
        if error == StreamError::Protocol {
            // The stream has been reset for it: there is nobody to answer.
            self.cut_code = Code::PROTOCOL_ERROR;
        }
        self.caller_gone(cx);
    }

    /// Goes on with an answer that comes over a stream. One piece at a time: the caller takes what is here before more is
    /// read, and before more is read the server may send no more than its window.
    pub(super) fn receive_answer(&mut self, cx: &mut Context<'_>) {
        while !self.answer.is_whole() && self.reply.is_flushed(&self.answer) {
            let Link::Stream(open) = &mut self.link else { return };
            let goes_on = match (&mut open.awaited, &mut open.inflow) {
                (Some(_), _) => self.receive_head(cx),
                (None, Some(inflow)) => {
                    let read = read(inflow, cx);
                    self.take_answer(read, cx)
                }
                (None, None) => false,
            };
            if !goes_on {
                return;
            }
        }
    }

    fn receive_head(&mut self, cx: &mut Context<'_>) -> bool {
        let Link::Stream(open) = &mut self.link else { return false };
        let Some(awaited) = &mut open.awaited else { return false };
        let method = self.request.head.method;
        let limits = Limits::default();
        if let Poll::Ready(Some((status, map))) = awaited.poll_interim(cx) {
            self.answer.expect_stream(&self.worker.buffers);
            let composed = self.answer.on_stream_interim(|buf, head| {
                fields::compose_response(status, &map, method, false, &limits, buf, head)
            });
            match composed {
                Ok(()) => return self.after_interim(),
                Err(invalid) => return self.refuse_answer(invalid, cx),
            }
        }
        let (parts, inflow) = match awaited.poll_head(cx) {
            Poll::Pending => return false,
            Poll::Ready(Ok(head)) => head,
            Poll::Ready(Err(error)) => return self.stream_broke(error, cx),
        };
        self.answer.expect_stream(&self.worker.buffers);
        let ends = inflow.is_ended();
        let mut status = parts.status.as_u16();
        if status == 101 {
            // HTTP/2 has no switch of protocols (RFC 9113 8.6).
            return self.refuse_answer(Invalid::Unasked, cx);
        }
        if self.request.head.upgrade == Upgrade::WebSocket && (200..300).contains(&status) {
            // What a server says to extended CONNECT is what HTTP/1.1 says with 101 (RFC 8441 4).
            status = 101;
        }
        let composed = self.answer.on_stream_head(parts.headers, ends, |map, buf, head| {
            fields::compose_response(status, map, method, ends, &limits, buf, head)
        });
        open.awaited = None;
        open.inflow = Some(inflow);
        if let Err(invalid) = composed {
            return self.refuse_answer(invalid, cx);
        }
        if !ends && self.grpc && self.flight.may_be_retried() && self.answers_in_grpc() {
            // The status that decides about another attempt comes with the first message or the trailers.
            if let Link::Stream(open) = &mut self.link {
                open.held_back = true;
            }
            self.progress();
            return true;
        }
        self.progress();
        self.pass_head(cx)
    }

    fn after_interim(&mut self) -> bool {
        self.progress();
        self.pass_interim();
        true
    }

    fn answers_in_grpc(&self) -> bool {
        let content_type = self.answer.head.fields.value(plimsoll_h1::FieldKind::ContentType, self.answer.bytes());
        content_type.is_some_and(is_grpc)
    }

    /// Tells the flight of the head. False when the attempt is over.
    fn pass_head(&mut self, cx: &mut Context<'_>) -> bool {
        if let Link::Stream(open) = &mut self.link {
            open.held_back = false;
        }
        self.report_head(cx);
        self.note_stream(cx);
        self.act(cx);
        if !self.reply.has_begun() {
            return false;
        }
        self.end_if_whole(cx);
        true
    }

    fn take_answer(&mut self, read: Poll<Result<Piece, StreamError>>, cx: &mut Context<'_>) -> bool {
        let is_held_back = matches!(&self.link, Link::Stream(open) if open.held_back);
        match read {
            Poll::Pending => return false,
            Poll::Ready(Ok(Piece::Data { data, ends })) => {
                if self.grpc {
                    self.answered.on_data(&data);
                }
                self.answer.push(data);
                if ends {
                    self.answer.end(None);
                }
                self.progress();
                if is_held_back {
                    return self.pass_head(cx);
                }
                self.note_stream(cx);
                if ends {
                    self.report_status(cx);
                }
            }
            Poll::Ready(Ok(Piece::End(trailers))) => {
                self.answer.end(trailers);
                self.progress();
                if is_held_back {
                    return self.pass_head(cx);
                }
                self.report_status(cx);
            }
            Poll::Ready(Err(error)) => return self.stream_broke(error, cx),
        }
        self.act(cx);
        self.end_if_whole(cx);
        true
    }

    /// Tells the flight what a gRPC answer that has begun ends with.
    fn report_status(&mut self, cx: &Context<'_>) {
        if self.grpc {
            let head = self.judge_head();
            self.tell(cx, |flight, shared, now| flight.handle_status(head, shared, now));
        }
    }

    /// What makes a gRPC call a stream: a second message, or an answer that begins before the request has ended.
    fn note_stream(&mut self, cx: &Context<'_>) {
        if !self.grpc || self.told_stream {
            return;
        }
        let several = self.asked.begun() > 1 || self.answered.begun() > 1;
        let early = self.answer.has_head() && !self.answer.is_whole() && !self.request.is_whole();
        if several || early {
            self.told_stream = true;
            self.tell(cx, Flight::handle_stream_begins);
        }
    }

    /// The rest of an answer that a retry may replace.
    pub(super) fn receive_kept(&mut self, cx: &mut Context<'_>) {
        loop {
            let Some(kept) = &mut self.kept else { return };
            let Link::Stream(open) = &mut kept.link else { return };
            let Some(inflow) = &mut open.inflow else { return };
            match read(inflow, cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(piece)) => {
                    take_piece(&mut kept.answer, piece);
                    self.settle_kept();
                }
                Poll::Ready(Err(_)) => kept.link = Link::None,
            }
            if self.kept.as_ref().is_some_and(|kept| kept.answer.held() > KEPT_ANSWER) {
                return;
            }
        }
    }

    fn refuse_answer(&mut self, invalid: Invalid, cx: &mut Context<'_>) -> bool {
        self.invalid(invalid, cx);
        false
    }

    fn stream_broke(&mut self, error: StreamError, cx: &mut Context<'_>) -> bool {
        if let StreamError::Reset(code) = error {
            self.cut_code = passed_on(code);
        }
        tracing::debug!(dependency = &*self.dependency().name, endpoint = ?self.endpoint, %error, "a stream broke");
        let refused = match &self.link {
            Link::Stream(open) if open.awaited.is_some() => open.opened.refusal(),
            _ => None,
        };
        match refused {
            Some(refused) => {
                self.tell_tls(&refused);
                self.fail(Failure::Tls, cx);
            }
            None if error == StreamError::Protocol => {
                let what = "the endpoint does not speak HTTP/2, in which it was asked, or broke its rules";
                self.broke_protocol(what, cx);
            }
            None => self.fail(self.failure_of(error), cx),
        }
        false
    }

    /// What a caller's stream is reset with when its answer was cut for `reason`.
    pub(super) fn set_cut_code(&mut self, reason: Reason) {
        if self.tunnel {
            // RFC 9113 8.5.
            self.cut_code = Code::CONNECT_ERROR;
        } else if reason == Reason::UpstreamProtocolError {
            self.cut_code = Code::INTERNAL_ERROR;
        }
    }
}

/// What one read of a stream has brought.
enum Piece {
    Data { data: Bytes, ends: bool },
    End(Option<http::HeaderMap>),
}

fn read(inflow: &mut crate::streams::Inflow, cx: &mut Context<'_>) -> Poll<Result<Piece, StreamError>> {
    match std::task::ready!(inflow.poll_data(cx)) {
        Some(Ok(data)) => {
            inflow.release(data.len());
            Poll::Ready(Ok(Piece::Data { data, ends: inflow.is_ended() }))
        }
        Some(Err(error)) => Poll::Ready(Err(error)),
        None => inflow.poll_trailers(cx).map_ok(Piece::End),
    }
}

fn take_piece(answer: &mut Answer, piece: Piece) {
    match piece {
        Piece::Data { data, ends } => {
            answer.push(data);
            if ends {
                answer.end(None);
            }
        }
        Piece::End(trailers) => answer.end(trailers),
    }
}

/// The code of a server's reset, as the caller may be told it. `REFUSED_STREAM` would say that nothing was done, and
/// `NO_ERROR` that the answer was whole.
fn passed_on(code: Code) -> Code {
    match code {
        Code::REFUSED_STREAM | Code::NO_ERROR => Code::INTERNAL_ERROR,
        code => code,
    }
}
