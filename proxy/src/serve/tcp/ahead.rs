//! Servers that speak first: while the caller is silent the endpoint is called, and whoever speaks decides.
//!
//! ```text
//!   silent caller ──▶ dial ──▶ endpoint speaks           ──▶ opaque, and the greeting is passed on at once
//!                       ├───── caller speaks HTTP        ──▶ the connection goes to the pool, the caller to HTTP
//!                       ├───── caller speaks, not HTTP   ──▶ opaque, on this connection
//!                       └───── endpoint speaks HTTP      ──▶ it only lost its patience: the caller is waited for
//! ```
//! *Rule*: nothing that was only tried is reported or counted as opaque, and no limit is held for it where calls might
//! need it: where callers are known to speak first, the connection is given back after a while.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_resilience::flight::{Failure, Flight};
use plimsoll_resilience::time::Timestamp;
use tokio::io::AsyncRead;

use super::connection::{Connection, Way};
use super::wire::Wire;
use crate::capture::Purpose;
use crate::detect::{Detected, Habit, Verdict};
use crate::forward::io::poll_read;
use crate::route;
use crate::runtime::worker::Worker;
use crate::serve::listening::{Heard, Listening, idle_until};
use crate::serve::{Downstream, learn};

/// How long both sides may be silent before a connection that calls might need is given back.
const MUTUAL_SILENCE: Duration = Duration::from_secs(10);
/// How often a connection that is only tried looks whether somebody waits for its socket.
const LOOK: Duration = Duration::from_millis(50);
/// How long a caller is waited for after the endpoint could not be reached, or after it has ended without a word.
const GRACE: Duration = Duration::from_secs(1);

/// What came of a silent caller.
pub enum Ahead {
    /// The caller has spoken after all.
    Said(Box<Downstream>, Verdict),
    /// It is to be waited for without a connection.
    Waits(Box<Downstream>),
    /// The connection was served to its end.
    Over,
}

/// Serves a caller that is silent. `habit`: what is known of the destination.
pub async fn ahead(worker: &Rc<Worker>, down: Box<Downstream>, habit: Option<Habit>) -> Ahead {
    let snapshot = worker.snapshot();
    let Ok(routed) = route::find_opaque(&worker.process, &snapshot, &down.origin, None) else {
        // It is told so once it is clear in which language.
        return Ahead::Waits(down);
    };
    let sockets = routed.find(&snapshot).0.dependency.sockets();
    let is_limited = sockets.limit().is_some();
    let full = sockets.limit().is_some_and(|limit| sockets.open() >= limit);
    if habit != Some(Habit::Opaque) && (full || (is_limited && habit == Some(Habit::CallerFirst))) {
        return Ahead::Waits(down);
    }
    let mut connection = Connection::new(worker, down, snapshot, routed);
    let gives_back = habit == Some(Habit::CallerFirst) || (is_limited && habit.is_none());
    let mut waiting = Waiting {
        listening: Listening::new(habit),
        habit,
        until: gives_back.then(|| worker.now() + MUTUAL_SILENCE),
        is_limited,
        caller_ended: false,
    };
    let turn = poll_fn(|cx| waiting.poll(&mut connection, cx)).await;
    settle(worker, connection, turn).await
}

async fn settle(worker: &Rc<Worker>, mut connection: Connection, turn: Turn) -> Ahead {
    match turn {
        Turn::Caller(verdict @ (Verdict::Http1 | Verdict::Http2)) => {
            poll_fn(|cx| connection.poll_made(cx)).await;
            return Ahead::Said(connection.hand_over(true), verdict);
        }
        Turn::Caller(Verdict::Tls(hello)) if connection.goes_elsewhere(hello.server_name.as_deref()) => {
            return Ahead::Said(connection.hand_over(false), Verdict::Tls(hello));
        }
        Turn::Waits => return Ahead::Waits(connection.hand_over(false)),
        Turn::Over => {
            drop(connection.hand_over(false));
            return Ahead::Over;
        }
        Turn::Caller(verdict) => {
            learn(worker, &connection.down.origin, verdict.detected());
            if let Verdict::Tls(hello) = verdict {
                (connection.is_tls, connection.name) = (true, hello.server_name);
            }
        }
        Turn::Endpoint => learn(worker, &connection.down.origin, Detected::ServerFirst),
        Turn::Refused => {}
    }
    connection.commit();
    poll_fn(|cx| connection.poll(cx)).await;
    Ahead::Over
}

/// Who made the first move.
enum Turn {
    Caller(Verdict),
    /// The endpoint has spoken, or ended.
    Endpoint,
    /// There is no connection to be had, and the caller stays silent.
    Refused,
    Waits,
    Over,
}

struct Waiting {
    listening: Listening,
    habit: Option<Habit>,
    /// When the connection is given back.
    until: Option<Timestamp>,
    is_limited: bool,
    caller_ended: bool,
}

impl Waiting {
    fn is_caller_first(&self) -> bool {
        self.habit == Some(Habit::CallerFirst)
    }

    fn poll(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<Turn> {
        if !connection.landed {
            connection.advance(cx);
        }
        connection.now = connection.worker.now();
        loop {
            connection.act(cx);
            // Before the caller: what it says may find the connection made.
            while connection.poll_way(cx) {
                connection.act(cx);
            }
            if let Some(turn) = self.poll_caller(connection, cx) {
                return Poll::Ready(turn);
            }
            if connection.landed {
                if self.is_caller_first() {
                    return Poll::Ready(Turn::Waits);
                }
                let until = connection.arrived + GRACE;
                if until <= connection.now {
                    return Poll::Ready(Turn::Refused);
                }
                connection.down.alarm.set(self.listening.until().into_iter().chain([until]).min(), cx.waker());
                return Poll::Pending;
            }
            if let Some(turn) = self.poll_endpoint(connection, cx) {
                return Poll::Ready(turn);
            }
            match self.ring(connection, cx) {
                Poll::Ready(Some(turn)) => return Poll::Ready(turn),
                Poll::Ready(None) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_caller(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Option<Turn> {
        if self.caller_ended {
            return None;
        }
        match self.listening.poll(&connection.worker, &mut connection.down, cx) {
            Poll::Pending => None,
            Poll::Ready(Heard::Said(verdict)) => Some(Turn::Caller(verdict)),
            Poll::Ready(Heard::Reset) => Some(Turn::Over),
            Poll::Ready(Heard::Ended) if self.is_caller_first() => Some(Turn::Over),
            Poll::Ready(Heard::Ended) => {
                // Some only want to hear the greeting.
                self.caller_ended = true;
                self.until = Some(connection.now + GRACE);
                None
            }
        }
    }

    fn poll_endpoint(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Option<Turn> {
        let Way::Open(upstream) = &mut connection.way else { return None };
        if upstream.stream.poll_read_ready(cx).is_pending() {
            return None;
        }
        let mut greeting = connection.worker.buffers.lend();
        let polled = poll_greeting(&mut upstream.stream, &mut greeting, cx);
        let heard = match polled {
            Poll::Pending => {
                connection.worker.buffers.give_back(greeting);
                return None;
            }
            Poll::Ready(heard) => heard,
        };
        let is_of_http = is_of_http(&greeting);
        connection.greeting = greeting;
        match heard {
            Ok(_) if is_of_http => Some(Turn::Waits),
            Ok(0) | Err(_) if self.is_caller_first() => Some(Turn::Waits),
            Ok(count) => {
                if count > 0 {
                    connection.tell(cx, Flight::handle_turn_ends);
                }
                Some(Turn::Endpoint)
            }
            Err(_) => {
                connection.tell(cx, |flight, shared, now| flight.handle_failed(Failure::Reset, shared, now));
                Some(Turn::Endpoint)
            }
        }
    }

    /// `Ready(None)`: a clock of the flight ran out.
    fn ring(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<Option<Turn>> {
        let now = connection.now;
        if self.until.is_some_and(|until| until <= now) {
            return Poll::Ready(Some(if self.caller_ended { Turn::Over } else { Turn::Waits }));
        }
        let looks = self.is_limited && self.habit != Some(Habit::Opaque);
        if looks && connection.dependency().sockets().wanted() {
            return Poll::Ready(Some(Turn::Waits));
        }
        let next = connection.flight.as_ref().and_then(Flight::next_timeout);
        if next.is_some_and(|at| at <= now) {
            connection.tell(cx, Flight::handle_timeout);
            return Poll::Ready(None);
        }
        // A proxy that leaves does not wait for those who have nothing to say.
        let leaves = connection.worker.is_closing().then(|| idle_until(&connection.worker, &mut connection.down, now));
        if leaves.is_some_and(|until| until <= now) {
            return Poll::Ready(Some(Turn::Over));
        }
        let all = [self.until, self.listening.until(), next, leaves, looks.then(|| now + LOOK)];
        connection.down.alarm.set(all.into_iter().flatten().min(), cx.waker());
        Poll::Pending
    }
}

impl Connection {
    /// Waits for a connection that is being made, where calls go the same way: one that they began would take longer.
    fn poll_made(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.poll_way(cx) {
            self.act(cx);
        }
        let next = self.flight.as_ref().and_then(Flight::next_timeout);
        self.now = self.worker.now();
        let is_made = !matches!(self.way, Way::Dialing(_)) || self.down.origin.purpose == Purpose::Outbound;
        if is_made || next.is_some_and(|at| at <= self.now) {
            return Poll::Ready(());
        }
        self.down.alarm.set(next, cx.waker());
        Poll::Pending
    }

    /// Gives the caller on to somebody else, and the connection, if it is as good as new, to calls that may want it.
    /// Nothing is counted.
    fn hand_over(mut self, for_calls: bool) -> Box<Downstream> {
        let way = std::mem::replace(&mut self.way, Way::None);
        self.abandon();
        if let Way::Open(upstream) = way
            && for_calls
            && upstream.stream.is_plain()
            && self.greeting.is_empty()
        {
            let idle = self.route().rules.timeouts.idle;
            self.worker.give_back(self.dependency(), upstream, None, idle, self.now);
        }
        self.down.take()
    }

    /// Whether a ClientHello with this name leads somewhere else than the address alone, or is not for TLS of ours.
    fn goes_elsewhere(&self, name: Option<&str>) -> bool {
        self.service().security.is_some()
            || route::find_opaque(&self.worker.process, &self.snapshot, &self.down.origin, name).as_ref()
                != Ok(&self.routed)
    }
}

fn poll_greeting(
    stream: &mut (impl AsyncRead + Unpin),
    greeting: &mut bytes::BytesMut,
    cx: &mut Context<'_>,
) -> Poll<std::io::Result<usize>> {
    poll_read(stream, greeting, cx)
}

/// What servers of HTTP say before they are asked: HTTP/2 settings, or that they have lost their patience.
fn is_of_http(greeting: &[u8]) -> bool {
    let is_settings = |frame: &[u8; 9]| frame[0] == 0 && frame[3..] == [4, 0, 0, 0, 0, 0] && frame[2].is_multiple_of(6);
    greeting.starts_with(b"HTTP/1.") || greeting.first_chunk().is_some_and(is_settings)
}

#[cfg(test)]
mod tests {
    use super::is_of_http;

    #[test]
    fn http_is_known_by_its_first_words() {
        assert!(is_of_http(b"HTTP/1.1 408 Request Timeout\r\n"));
        assert!(is_of_http(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80"));
        assert!(is_of_http(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"));
        for other in [&b"220 mail.example ESMTP\r\n"[..], b"\x4a\0\0\0\x0a5.5.5-10.11", b"SSH-2.0-x\r\n", b"", b"\0\0"]
        {
            assert!(!is_of_http(other), "{other:?}");
        }
    }
}
