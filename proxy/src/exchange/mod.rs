//! One call, from its head to its report: the flight decides, this moves the bytes.
//!
//! ```text
//!            flight (when, how often, how long)
//!               | actions          ^ what happened
//!   caller --> request --> link --> answer --> reply --> caller
//! ```
//! `poll` is the whole loop: do what the flight asks, move what can be moved, tell the flight, until nothing moves.
//! Nothing here waits in its own right, so one timer and the readiness of two sockets are all that wakes a call.

mod actions;
mod caller;
mod connect;
mod deliver;
mod link;
mod pumps;
mod report;
mod slot;
mod speaks;
mod streams;
mod way;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use plimsoll_h1::{BodyFraming, FieldKind, Limits, Method, RequestHead, Upgrade, Version};
use plimsoll_resilience::flight::{Call, Flight, Safety};
use plimsoll_resilience::protection::Protection;
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::rejection::Rejection;
use plimsoll_resilience::time::Timestamp;
use socket2::SockRef;

pub use self::caller::{Caller, CallerStream};
use self::link::Link;
pub use self::slot::{Begin, Slot};
use self::speaks::Speaks;
pub(crate) use self::speaks::is_tunnel_asked;
use crate::deadline;
use crate::dependency::{Dependency, Shared};
use crate::forward::answer::Answer;
use crate::forward::grpc::{Messages, is_grpc};
use crate::forward::io::has_hung_up;
use crate::forward::reply::Reply;
use crate::forward::request::Request;
use crate::route::Routed;
use crate::runtime::drain::Phase;
use crate::runtime::worker::Worker;
use crate::serve::Downstream;
use crate::snapshot::{Route, Service, Snapshot};
use crate::streams::Code;
use crate::trace::Trace;

/// How often a caller whose socket cannot be read is looked after.
const LOOK: Duration = Duration::from_millis(100);
/// How much of a body is kept where policy says nothing, for a stream that may be refused.
const KEPT_BODY: usize = 64 * 1024;
/// How much of an answer is kept while a retry is tried.
const KEPT_ANSWER: usize = 16 * 1024;

/// What becomes of the caller's connection after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The next request may follow.
    Next,
    /// It is closed once the caller has had a chance to read the answer.
    Close,
    /// The caller has gone, or the answer was cut: it is closed at once.
    Drop,
    /// The answer was cut, and only a reset can tell the caller so.
    Reset,
}

/// One call in progress.
pub struct Exchange {
    worker: Rc<Worker>,
    caller: Caller,
    snapshot: Arc<Snapshot>,
    routed: Routed,
    arrived: Timestamp,
    now: Timestamp,
    caller_deadline: Option<Timestamp>,
    trace: Trace,
    flight: Flight,
    request: Request,
    link: Link,
    /// Where the last attempt went.
    endpoint: Option<SocketAddr>,
    /// Why the last attempt got no connection, or what was wrong with its answer, in words.
    trouble: Option<Box<str>>,
    attempt: u32,
    /// Where in the order of endpoints its first attempt began.
    turn: Option<usize>,
    /// When a byte moved last.
    last_progress: Timestamp,
    answer: Answer,
    /// Rare, and on the heap for that reason.
    kept: Option<Box<Kept>>,
    reply: Reply,
    /// Something moved that earlier stages have been waiting for.
    moved: bool,
    /// When the caller's socket, which cannot be read for now, was last asked whether the caller is still there.
    last_look: Timestamp,
    /// We wait for the caller, and the flight knows.
    waits_for_caller: bool,
    /// The flight has nothing more to say.
    landed: bool,
    /// The flight was told that the answer is whole.
    told_ended: bool,
    /// The connection has become a tunnel.
    tunnel: bool,
    /// The caller was told that the server's side of it has ended.
    shut_back: bool,
    keep_alive: bool,
    /// What the attempt's connection is to speak.
    speaks: Speaks,
    grpc: bool,
    /// gRPC messages that have begun, from the caller and towards it.
    asked: Messages,
    answered: Messages,
    /// The flight knows that the call is a stream.
    told_stream: bool,
    /// What a caller's stream is reset with, if its answer is cut.
    cut_code: Code,
    rejected: Option<Rejection>,
    end: Option<End>,
    reported: bool,
    /// All that is used again was given back.
    finished: bool,
    /// The dependency has said that it wants the body (`100 Continue`), or something else in between.
    interim_passed: bool,
    /// `now` is as old as the current turn of the loop.
    polled: bool,
}

/// An answer that a retry may yet replace.
struct Kept {
    answer: Answer,
    /// Where the rest of it comes from, until it is whole, too much, or the next attempt begins.
    link: Link,
}

/// How a call ended other than by its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The caller has gone.
    CallerGone,
    /// The answer was cut.
    Cut(Reason),
    /// The caller's body breaks its framing.
    Malformed,
}

impl Exchange {
    /// Takes on the call whose head is in `request`.
    fn start(worker: Rc<Worker>, begin: Begin, waker: &Waker) -> Self {
        let Begin { caller, snapshot, routed, mut request, arrived } = begin;
        let (service, route) = routed.find(&snapshot);
        let speaks = Speaks::of(service, routed.target(), &request.head, &caller);
        if speaks != Speaks::Http1 {
            request.take_framing_off(&Limits::default());
        }
        let head = &request.head;
        let content_type = head.fields.value(FieldKind::ContentType, request.bytes());
        let grpc = caller.is_stream() && content_type.is_some_and(is_grpc);
        let caller_deadline = deadline::of_caller(head, request.bytes(), arrived);
        let trace = Trace::of(head, request.bytes(), &mut worker.random.borrow_mut());
        let call = call_of(
            head,
            request.bytes(),
            grpc,
            route,
            caller_deadline,
            arrived,
            worker.random.borrow_mut().next_u64(),
        );
        let streaming = call.streaming;
        let rules = Arc::clone(if streaming { &route.tunnel_rules } else { &route.rules });
        let mut would = Vec::new();
        let start = |shared: &mut Shared| {
            let flight = Flight::start(rules, call, &mut shared.protection, arrived);
            if let Some(waiter) = flight.waiter() {
                shared.wait(waiter, waker);
            }
            flight
        };
        let flight = service.dependency.with_call(start, |event| would.push(*event));
        let keep_alive = head.keep_alive;
        let dechunk = head.version == Version::Http10 || caller.is_stream();
        let answer = Answer::new(worker.response_heads.lend(), dechunk);
        // What goes out on a stream passes through no buffer of ours.
        let reply = Reply::new(if caller.is_stream() { BytesMut::new() } else { worker.buffers.lend() });
        let mut exchange = Self {
            worker,
            caller,
            routed,
            arrived,
            now: arrived,
            caller_deadline,
            trace,
            flight,
            request,
            link: Link::None,
            endpoint: None,
            trouble: None,
            attempt: 0,
            turn: None,
            last_progress: arrived,
            answer,
            kept: None,
            reply,
            moved: false,
            last_look: arrived,
            waits_for_caller: false,
            landed: false,
            told_ended: false,
            tunnel: false,
            shut_back: false,
            keep_alive,
            speaks,
            grpc,
            asked: Messages::default(),
            answered: Messages::default(),
            told_stream: streaming,
            cut_code: Code::CANCEL,
            rejected: None,
            end: None,
            reported: false,
            finished: false,
            interim_passed: false,
            polled: false,
            snapshot,
        };
        exchange.started();
        would.iter().for_each(|event| exchange.would(event));
        // A stream that the server refuses is sent again, whatever its method.
        let may_be_refused = matches!(speaks, Speaks::Http2 | Speaks::Either);
        if (may_be_refused || exchange.flight.may_be_retried()) && !exchange.request.is_whole() {
            exchange.keep_body();
        }
        exchange.take_body();
        exchange
    }

    /// Runs the call to its end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<After> {
        // The first turn follows the arrival of the head at once: one look at the clock is enough for both.
        if std::mem::replace(&mut self.polled, true) {
            self.now = self.worker.now();
        }
        if self.flight.waiter().is_some() {
            self.tell(cx, Flight::handle_woken);
        }
        loop {
            self.moved = false;
            if self.end == Some(End::Malformed) && !self.landed {
                self.refuse_malformed_body(cx);
            }
            self.act(cx);
            self.poll_dial(cx);
            self.poll_request(cx);
            self.poll_answer(cx);
            self.poll_kept(cx);
            self.poll_reply(cx);
            if let Some(after) = self.after() {
                self.report();
                return Poll::Ready(after);
            }
            self.note_caller_wait();
            // In this order: what the flight asks for may move bytes, and only when nothing moves are clocks looked at.
            let goes_on = self.moved || self.act(cx) || self.watch_caller(cx) || self.ring(cx);
            if !goes_on {
                return Poll::Pending;
            }
        }
    }

    fn service(&self) -> &Service {
        self.routed.find(&self.snapshot).0
    }

    fn route(&self) -> &Route {
        self.routed.find(&self.snapshot).1
    }

    fn dependency(&self) -> &Arc<Dependency> {
        &self.service().dependency
    }

    /// Tells the flight what happened, under the dependency's lock, and sees to it that it is woken if it has to wait.
    fn tell(&mut self, cx: &Context<'_>, input: impl FnOnce(&mut Flight, &mut Protection, Timestamp)) {
        let dependency = &self.routed.find(&self.snapshot).0.dependency;
        let mut would = Vec::new();
        dependency.with_call(
            |shared| {
                let before = self.flight.waiter();
                input(&mut self.flight, &mut shared.protection, self.now);
                let waiter = self.flight.waiter();
                if let Some(waiter) = waiter {
                    shared.wait(waiter, cx.waker());
                } else if let Some(before) = before {
                    shared.stop_waiting(before);
                }
            },
            |event| would.push(*event),
        );
        would.iter().for_each(|event| self.would(event));
    }

    /// Lets the flight's clocks run out, or sets the alarm for the next one.
    fn ring(&mut self, cx: &mut Context<'_>) -> bool {
        if self.landed {
            return self.ring_landed(cx);
        }
        let next = self.flight.next_timeout();
        if next.is_some_and(|at| at <= self.now) {
            self.tell(cx, Flight::handle_timeout);
            self.act(cx);
            return true;
        }
        // Bytes that wait in the kernel hide that the caller has gone behind them: then it has to be asked.
        let look = (self.is_blind()).then_some(self.last_look + LOOK);
        if look.is_some_and(|at| at <= self.now) {
            self.last_look = self.now;
            if self.caller.connection().is_some_and(|down| has_hung_up(&down.stream)) {
                self.caller_gone(cx);
                self.act(cx);
                return true;
            }
        }
        let look = look.map(|_| self.last_look + LOOK);
        let first = next.into_iter().chain(look).min();
        self.caller.alarm().set(first, cx.waker());
        false
    }

    /// With the flight over, what is left is a caller that has yet to take its answer. It is waited for as long as a byte
    /// moves now and then.
    fn ring_landed(&mut self, cx: &Context<'_>) -> bool {
        let until = self.last_progress + self.route().rules.timeouts.idle;
        if until <= self.now {
            self.end = Some(End::CallerGone);
            return true;
        }
        self.caller.alarm().set(Some(until), cx.waker());
        false
    }

    /// Whether the caller's socket is not being read, so that its end would not be noticed.
    fn is_blind(&self) -> bool {
        !self.landed
            && !self.caller.is_stream()
            && !self.tunnel
            && if self.request.is_whole() { self.request.is_full() } else { !self.reads_body() }
    }

    /// Whether there is use for more of the body: all that is here was sent, or it is kept.
    fn reads_body(&self) -> bool {
        self.request.is_sent() || self.request.is_kept() || self.holds_last_byte()
    }

    /// HTTP/1.1 knows a request to be whole by its length, HTTP/2 by an end of its own. Until both agree the last byte
    /// stays here: a request that turns out to be malformed has then not been one for the server either.
    fn holds_last_byte(&self) -> bool {
        self.caller.is_stream()
            && !self.request.is_whole()
            && matches!(self.request.head.framing, BodyFraming::Length(length) if self.request.received() >= length)
    }

    /// The clock of slow calls stands still while we wait for our caller.
    fn note_caller_wait(&mut self) {
        // With `Expect: 100-continue` it is the caller that waits, for a word of the dependency.
        let expects = self.request.head.expect_continue && !self.interim_passed && self.request.received() == 0;
        let for_request = self.link.is_open()
            && !self.request.is_whole()
            && self.request.is_sent()
            && !self.answer.has_head()
            && !expects;
        let for_room = self.reply.has_begun() && !self.reply.is_flushed(&self.answer);
        let waits = for_request || for_room;
        if waits != self.waits_for_caller {
            self.waits_for_caller = waits;
            if waits {
                self.flight.handle_caller_wait(self.now);
            } else {
                self.flight.handle_caller_ready(self.now);
            }
        }
    }

    /// What becomes of the connection, once the call is over.
    fn after(&self) -> Option<After> {
        if !self.landed {
            return None;
        }
        match self.end {
            Some(End::CallerGone) => return Some(After::Drop),
            Some(End::Cut(_)) if !self.caller.is_stream() && self.reply_ends_with_connection() => {
                return Some(After::Reset);
            }
            Some(End::Cut(_)) => return Some(After::Drop),
            Some(End::Malformed) | None => {}
        }
        if !self.reply.is_complete() {
            return None;
        }
        if self.tunnel || !self.keep_alive || self.end.is_some() {
            return Some(After::Close);
        }
        Some(After::Next)
    }

    /// Whether the caller takes the end of its connection for the end of the answer.
    fn reply_ends_with_connection(&self) -> bool {
        self.tunnel || !crate::forward::heads::delimits(self.answer.head.framing, self.request.head.version)
    }

    /// Whether this answer says that the connection lives on.
    fn decide_keep_alive(&mut self) {
        self.keep_alive &= self.worker.phase() < Phase::Notice;
        // What the caller has yet to send nobody will read, and with `Expect: 100-continue` it may not come at all.
        self.keep_alive &= self.request.is_whole();
    }

    /// Keeps the body for another attempt, as far as policy and memory allow.
    fn keep_body(&mut self) {
        let limit = self.route().rules.retry.as_ref().map_or(KEPT_BODY, |retry| retry.config.body_buffer);
        self.request.keep(limit, self.worker.process.kept_bodies.lease());
    }

    /// Gives buffers and heads back for the next call.
    fn recycle(&mut self) {
        self.drop_link();
        let worker = &self.worker;
        worker.buffers.give_back(self.reply.take_out());
        let kept = self.kept.as_mut().map(|kept| &mut kept.answer);
        for (head, buf) in std::iter::once(&mut self.answer).chain(kept).map(Answer::take_parts) {
            worker.response_heads.give_back(head);
            worker.buffers.give_back(buf);
        }
    }

    fn method(&self) -> Method {
        self.request.head.method
    }

    /// Reports the call, if that is yet to be done, and gives back what is used again: the caller's connection too, with
    /// whatever else has arrived on it.
    fn finish(&mut self) -> Option<Box<Downstream>> {
        self.abandon();
        self.recycle();
        self.end_stream();
        let (head, buf) = self.request.take_parts();
        self.worker.request_heads.give_back(head);
        self.finished = true;
        match &mut self.caller {
            Caller::Connection(down) => {
                let mut down = down.take();
                down.buf = buf;
                Some(down)
            }
            Caller::Stream(_) => {
                self.worker.buffers.give_back(buf);
                None
            }
        }
    }

    /// A stream whose answer is not whole is reset, so that it does not look so.
    fn end_stream(&mut self) {
        let is_whole = self.reply.is_complete() && self.end != Some(End::CallerGone);
        if let Some(stream) = self.caller.stream()
            && !is_whole
        {
            stream.reset(self.cut_code);
        }
    }
}

impl Drop for Exchange {
    /// Ends a call whose connection, worker or process is going away.
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let cut = self.reply.has_begun() && self.reply_ends_with_connection();
        self.abandon();
        self.end_stream();
        if let Some(down) = self.caller.connection()
            && cut
        {
            // An orderly end would make the part that went out look whole.
            let _ = SockRef::from(&down.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

fn call_of(
    head: &RequestHead,
    buf: &[u8],
    grpc: bool,
    route: &Route,
    caller_deadline: Option<Timestamp>,
    arrived: Timestamp,
    seed: u64,
) -> Call {
    let is = |kind| head.fields.contains(kind);
    let safety = match head.method {
        method if method.is_safe() => Safety::Safe,
        method if method.is_idempotent() => Safety::Idempotent,
        _ => Safety::Unsafe,
    };
    Call {
        arrived,
        caller_deadline,
        safety,
        idempotency_key: is(FieldKind::IdempotencyKey),
        retried_inbound: deadline::is_retry(head, buf),
        grpc,
        opaque: false,
        streaming: head.upgrade == Upgrade::WebSocket || is_tunnel_asked(head),
        route: route.id,
        seed,
    }
}
