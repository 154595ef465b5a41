//! Servers that speak first: while the caller is silent the endpoint is called, and whoever speaks decides.
//!
//! ```text
//!   silent caller ──▶ dial ──▶ endpoint speaks           ──▶ opaque, and the greeting is passed on at once
//!                       ├───── caller speaks HTTP        ──▶ the connection goes to the pool, the caller to HTTP
//!                       ├───── caller speaks, not HTTP   ──▶ opaque, on this connection
//!                       └───── endpoint speaks HTTP      ──▶ it only lost its patience: the caller is waited for
//! ```
//! *Rule*: what is only tried is no call. It takes no ticket, no token and no turn in a line, its failure counts for
//! nothing, and it is reported to nobody; nothing is tried towards a circuit that is not closed. When the connection is
//! wanted its flight begins, and adopts what there is. Where calls might need the socket, it is given back: when somebody
//! waits for one, and after a while.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_resilience::time::Timestamp;

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
    let is_limited = routed.find(&snapshot).0.dependency.sockets().limit().is_some();
    if is_limited && habit == Some(Habit::CallerFirst) {
        return Ahead::Waits(down);
    }
    let mut connection = Connection::new(worker, down, snapshot, routed);
    if !connection.try_ahead() && habit == Some(Habit::CallerFirst) {
        return Ahead::Waits(connection.hand_over(false));
    }
    let timeouts = connection.route().tunnel_rules.timeouts;
    let gives_back = habit == Some(Habit::CallerFirst) || (is_limited && habit.is_none());
    let mut waiting = Waiting {
        listening: Listening::new(habit),
        habit,
        connects: connection.arrived + timeouts.connect,
        until: connection.arrived + if gives_back { MUTUAL_SILENCE } else { timeouts.idle },
        gives_back,
        is_limited,
        caller_ended: false,
    };
    let turn = poll_fn(|cx| waiting.poll(&mut connection, cx)).await;
    settle(worker, connection, turn).await
}

async fn settle(worker: &Rc<Worker>, mut connection: Connection, turn: Turn) -> Ahead {
    match turn {
        Turn::Caller(verdict @ (Verdict::Http1 | Verdict::Http2)) => {
            let until = connection.worker.now() + connection.route().rules.timeouts.connect;
            poll_fn(|cx| connection.poll_made(until, cx)).await;
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
    /// Until when a connection may be in the making.
    connects: Timestamp,
    /// How long both may be silent.
    until: Timestamp,
    /// The caller is then waited for without the connection.
    gives_back: bool,
    is_limited: bool,
    caller_ended: bool,
}

impl Waiting {
    fn is_caller_first(&self) -> bool {
        self.habit == Some(Habit::CallerFirst)
    }

    fn poll(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<Turn> {
        connection.now = connection.worker.now();
        // Before the caller: what it says may find the connection made.
        connection.poll_way(cx);
        if let Some(turn) = self.poll_caller(connection, cx) {
            return Poll::Ready(turn);
        }
        if let Some(turn) = self.poll_endpoint(connection, cx) {
            return Poll::Ready(turn);
        }
        self.ring(connection, cx)
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
                self.until = connection.now + GRACE;
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
        let heard = match poll_read(&mut upstream.stream, &mut greeting, cx) {
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
            Ok(_) => Some(Turn::Endpoint),
            Err(_) => {
                connection.note_reset();
                Some(Turn::Endpoint)
            }
        }
    }

    fn ring(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<Turn> {
        let now = connection.now;
        if matches!(connection.way, Way::Dialing(_)) && self.connects <= now {
            connection.give_up_trying();
        }
        let until = match (connection.has_hope(), self.is_caller_first()) {
            (true, _) => self.until,
            (false, true) => return Poll::Ready(Turn::Waits),
            (false, false) if self.caller_ended => self.until,
            (false, false) => connection.arrived + GRACE,
        };
        if until <= now {
            return Poll::Ready(match connection.has_hope() {
                _ if self.caller_ended => Turn::Over,
                true if self.gives_back => Turn::Waits,
                true => Turn::Over,
                false => Turn::Refused,
            });
        }
        let looks = self.is_limited && self.habit != Some(Habit::Opaque);
        if looks && connection.dependency().sockets().wanted() {
            return Poll::Ready(Turn::Waits);
        }
        // A proxy that leaves does not wait for those who have nothing to say.
        let leaves = connection.worker.is_closing().then(|| idle_until(&connection.worker, &mut connection.down, now));
        if leaves.is_some_and(|until| until <= now) {
            return Poll::Ready(Turn::Over);
        }
        let connects = matches!(connection.way, Way::Dialing(_)).then_some(self.connects);
        let all = [Some(until), self.listening.until(), connects, leaves, looks.then(|| now + LOOK)];
        connection.down.alarm.set(all.into_iter().flatten().min(), cx.waker());
        Poll::Pending
    }
}

impl Connection {
    /// Waits for a connection that is being made, where calls go the same way: one that they began would take longer.
    fn poll_made(&mut self, until: Timestamp, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_way(cx);
        let is_made = !matches!(self.way, Way::Dialing(_)) || self.down.origin.purpose == Purpose::Outbound;
        if is_made || until <= self.worker.now() {
            return Poll::Ready(());
        }
        self.down.alarm.set(Some(until), cx.waker());
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
