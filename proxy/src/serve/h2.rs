//! HTTP/2 from callers: many calls at a time, on one connection.
//!
//! The task of the connection drives it and begins a task for each call; it holds no call itself. How it ends:
//!
//! ```text
//!   idle, or the process drains       GOAWAY, and a second one with the last id once the first was seen to arrive
//!   the calls have ended              closed; who does not answer is told so after 2 s, and cut off after 2 s more
//!   a head does not become whole      GOAWAY at once, within 10 s of its first byte
//!   a flood, a broken protocol        GOAWAY at once, with the code
//! ```
//! While the process has only given notice, a connection is asked to leave after its first call, as in HTTP/1.1: asked at once,
//! a caller would come back through the listener that is still there, and be asked again.
//!
//! A request that HTTP/2 calls malformed (RFC 9113 8.1.1) is reset on its own stream; one that is well-formed and not
//! carried out is answered, with the reason.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use plimsoll_h1::{FieldKind, FramingError, Limits, Persistence, RequestError, RequestHead};
use plimsoll_resilience::flight::Summary;
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::time::Timestamp;

use super::{DRAIN_QUIET, Downstream, HEAD_TIMEOUT, IDLE_TIMEOUT, read_away, refusal_of};
use crate::capture::Origin;
use crate::exchange::{self, Begin, CallerStream};
use crate::forward::grpc::is_grpc;
use crate::forward::request::Request;
use crate::reject::{self, AnswerForm, Refusal};
use crate::report::{CallFacts, CallReport, StatsId};
use crate::route;
use crate::runtime::drain::Phase;
use crate::runtime::timers::Alarm;
use crate::runtime::worker::Worker;
use crate::streams::server::{Connection, Incoming};
use crate::streams::{Code, ConnectionError, fields};

/// How long a caller may take to see that it is asked to leave, and again to take the last bytes.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves the connection until it ends. What `down.buf` holds was read from it already.
pub async fn serve(worker: &Rc<Worker>, down: Box<Downstream>) {
    let Downstream { stream, origin, alarm, buf, .. } = *down;
    let mut connection = Connection::new(stream, buf, worker.clock);
    let mut stay = Stay::default();
    let ended = loop {
        match poll_fn(|cx| poll_serve(worker, &origin, &mut connection, &mut stay, &alarm, cx)).await {
            Next::TooLate => {
                report(worker, &origin, &Refusal::new(Reason::RequestHeadTimeout), None, worker.now());
                stay.tell(&mut connection, Code::NO_ERROR, worker.now());
            }
            Next::Ended(ended) => break ended,
        }
    };
    match ended {
        Some(ConnectionError::Flood(what)) => {
            worker.report.flooded(origin.direction());
            tracing::warn!(peer = %origin.peer, what, "an HTTP/2 connection was ended: its caller sent too many of them");
        }
        Some(error) => tracing::debug!(peer = %origin.peer, %error, "an HTTP/2 connection ended"),
        None => {}
    }
    if let Some(mut stream) = connection.into_stream() {
        let mut buf = BytesMut::new();
        read_away(worker, &mut stream, &mut buf, &alarm).await;
        worker.buffers.give_back(buf);
    }
}

enum Next {
    TooLate,
    Ended(Option<ConnectionError>),
}

/// How long the connection stays.
#[derive(Default)]
struct Stay {
    /// Since when there has been no call.
    idle_since: Option<Timestamp>,
    /// Calls are over, and the caller has yet to take the rest of their answers.
    untaken: bool,
    /// A call was taken.
    served: bool,
    leaving: Leaving,
}

#[derive(Clone, Copy, Default)]
enum Leaving {
    #[default]
    No,
    /// Asked to leave; the time counts from the end of its last call.
    Asked,
    /// Told that it is over.
    Told(Timestamp),
}

impl Stay {
    /// A caller that does not take its answers is without a call all the same: nothing else has a clock for it.
    fn note(&mut self, has_calls: bool, has_streams: bool, now: Timestamp) {
        if has_calls {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert(now);
        }
        let untaken = has_streams && !has_calls;
        if std::mem::replace(&mut self.untaken, untaken) && !untaken && !has_calls {
            // The last of it was taken just now.
            self.idle_since = Some(now);
        }
    }

    fn ask(&mut self, connection: &mut Connection, now: Timestamp) {
        connection.drain();
        self.leaving = Leaving::Asked;
        if self.idle_since.is_some() {
            self.idle_since = Some(now);
        }
    }

    fn tell(&mut self, connection: &mut Connection, code: Code, now: Timestamp) {
        connection.end_now(code);
        self.leaving = Leaving::Told(now);
    }
}

/// Begins the calls that come in, until there is something else to do.
fn poll_serve(
    worker: &Rc<Worker>,
    origin: &Origin,
    connection: &mut Connection,
    stay: &mut Stay,
    alarm: &Alarm,
    cx: &mut Context<'_>,
) -> Poll<Next> {
    loop {
        match connection.poll_next(cx) {
            Poll::Ready(Some(Ok(incoming))) => {
                stay.served = true;
                accept(worker, origin, incoming);
                continue;
            }
            Poll::Ready(ended) => return Poll::Ready(Next::Ended(ended.and_then(Result::err))),
            Poll::Pending => {}
        }
        let now = worker.now();
        stay.note(connection.has_calls(), connection.has_streams(), now);
        if connection.is_ending() && !matches!(stay.leaving, Leaving::Told(_)) {
            stay.leaving = Leaving::Told(now);
        }
        let leaves = worker.phase() >= Phase::Notice && stay.served;
        if leaves && matches!(stay.leaving, Leaving::No) {
            stay.ask(connection, now);
            continue;
        }
        let mut until = stays_until(worker, stay, now);
        let head_until = connection.head_since().map_or(Timestamp::MAX, |since| since + HEAD_TIMEOUT);
        if head_until <= now && !matches!(stay.leaving, Leaving::Told(_)) {
            return Poll::Ready(Next::TooLate);
        }
        if now < until {
            if matches!(stay.leaving, Leaving::No | Leaving::Asked) {
                until = until.min(head_until);
            }
            alarm.set(Some(until), cx.waker());
            return Poll::Pending;
        }
        match stay.leaving {
            Leaving::No if !stay.untaken => stay.ask(connection, now),
            Leaving::No | Leaving::Asked => stay.tell(connection, Code::NO_ERROR, now),
            Leaving::Told(_) => return Poll::Ready(Next::Ended(None)),
        }
    }
}

/// Until when nothing is done about a connection from which nothing comes. Never without an end: a drain rings those who wait.
fn stays_until(worker: &Worker, stay: &Stay, now: Timestamp) -> Timestamp {
    match (stay.leaving, stay.idle_since) {
        (Leaving::Told(since), _) => since + PATIENCE,
        (_, None) => now + IDLE_TIMEOUT,
        (_, Some(since)) if stay.untaken => since + IDLE_TIMEOUT,
        (Leaving::Asked, Some(since)) => since + PATIENCE,
        (Leaving::No, Some(since)) if worker.phase() == Phase::Closing => {
            worker.process.drain.closing_since().max(since) + DRAIN_QUIET
        }
        (Leaving::No, Some(since)) => since + IDLE_TIMEOUT,
    }
}

/// Looks at the head of a call and begins it.
fn accept(worker: &Rc<Worker>, origin: &Origin, incoming: Incoming) {
    let arrived = worker.now();
    let (mut head, mut buf) = (worker.request_heads.lend(), worker.buffers.lend_head());
    match fields::compose_request(&incoming, &Limits::default(), &mut buf, &mut head) {
        Ok(_) => begin(worker, origin, head, buf, incoming, arrived),
        Err(error) => {
            worker.request_heads.give_back(head);
            worker.buffers.give_back(buf);
            refuse(worker, origin, incoming, error, arrived);
        }
    }
}

/// Routes the call and begins it, in a task of its own.
fn begin(
    worker: &Rc<Worker>,
    origin: &Origin,
    head: Box<RequestHead>,
    buf: BytesMut,
    incoming: Incoming,
    arrived: Timestamp,
) {
    let snapshot = worker.snapshot();
    let routed = match route::find(&worker.process, &snapshot, origin, &head, &buf) {
        Ok(routed) => routed,
        Err(not_routed) => {
            turn_away(worker, origin, incoming, (&head, &buf), &not_routed.refusal(), arrived);
            worker.request_heads.give_back(head);
            return worker.buffers.give_back(buf);
        }
    };
    let ends = incoming.body.is_ended();
    let Incoming { parts, body, answer } = incoming;
    let stream = CallerStream::new(*origin, worker.timers.alarm(), body, answer);
    let request = Request::of_stream(head, buf, (parts.headers, parts.uri), ends);
    let mut slot = worker.slots.lend();
    let caller = exchange::Caller::Stream(Box::new(stream));
    slot.load(worker, Begin { caller, snapshot, routed, request, arrived });
    let worker = Rc::clone(worker);
    drop(tokio::task::spawn_local(async move {
        slot.run().await;
        worker.slots.give_back(slot);
    }));
}

/// Answers a call that goes nowhere.
fn turn_away(
    worker: &Worker,
    origin: &Origin,
    mut incoming: Incoming,
    (head, buf): (&RequestHead, &[u8]),
    refusal: &Refusal<'_>,
    arrived: Timestamp,
) {
    report(worker, origin, refusal, Some(&incoming), arrived);
    if head.fields.value(FieldKind::ContentType, buf).is_some_and(is_grpc) {
        // A caller that has gone meanwhile is not told.
        let _ = incoming.answer.send(reject::grpc_answer(refusal, origin.is_local(), true), true);
        return;
    }
    let form = AnswerForm::of(Some((head, buf)), true, origin.is_local(), worker.clock.wall(arrived));
    answer(&mut incoming, refusal, &form);
}

/// Refuses a head that cannot be composed.
fn refuse(worker: &Worker, origin: &Origin, mut incoming: Incoming, error: RequestError, arrived: Timestamp) {
    let message = error.to_string();
    let refusal = refusal_of(error, &message);
    report(worker, origin, &refusal, Some(&incoming), arrived);
    if is_malformed(error) {
        incoming.answer.reset(Code::PROTOCOL_ERROR);
    } else {
        let form = AnswerForm {
            head_request: incoming.parts.method == http::Method::HEAD,
            ..AnswerForm::of(None, true, origin.is_local(), worker.clock.wall(arrived))
        };
        answer(&mut incoming, &refusal, &form);
    }
}

/// What RFC 9113 8.1.1 calls malformed: no HTTP at all, rather than a request that is refused.
fn is_malformed(error: RequestError) -> bool {
    match error {
        RequestError::Framing(error) => error != FramingError::Lookalike,
        RequestError::Line(_) => error.status() == 400,
        RequestError::ConnectionSpecific(_)
        | RequestError::Pseudo
        | RequestError::HostDiffers
        | RequestError::HostRepeated => true,
        _ => false,
    }
}

/// Answers with a refusal. There is always room for it: it is small, and what the caller's window does not take waits.
fn answer(incoming: &mut Incoming, refusal: &Refusal<'_>, form: &AnswerForm) {
    let form = AnswerForm { persistence: Persistence::Silent, ..*form };
    let (response, body) = reject::stream_answer(refusal, &form);
    // A caller that has gone meanwhile is not told.
    if let Ok(mut out) = incoming.answer.send(response, body.is_empty())
        && !body.is_empty()
    {
        let _ = out.send(body, true);
    }
}

/// A call that no dependency ever heard of is a call all the same.
fn report(worker: &Worker, origin: &Origin, refusal: &Refusal<'_>, incoming: Option<&Incoming>, arrived: Timestamp) {
    let snapshot = worker.snapshot();
    let stats = if origin.is_local() { StatsId::UNLISTED } else { snapshot.inbound().rest.stats.id() };
    let parts = incoming.map(|incoming| &incoming.parts);
    worker.report.started(stats);
    worker.report.call(&CallReport {
        stats,
        facts: CallFacts {
            time: worker.clock.wall(arrived),
            direction: origin.direction(),
            method: parts.map_or(b"", |parts| parts.method.as_str().as_bytes()),
            host: parts.and_then(|parts| parts.uri.authority()).map_or(b"", |authority| authority.as_str().as_bytes()),
            path: parts.and_then(|parts| parts.uri.path_and_query()).map_or(b"", |path| path.as_str().as_bytes()),
            trace_id: "",
            policy: None,
            route: None,
        },
        status: refusal.status(),
        grpc: None,
        refusal: Some(refusal),
        summary: Summary::default(),
        endpoint: None,
        duration: worker.now().saturating_since(arrived),
        deadline_remaining: None,
        bytes_received: 0,
        bytes_sent: 0,
    });
}
