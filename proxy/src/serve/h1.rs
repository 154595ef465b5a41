//! HTTP/1.1 from callers: one request after the other, on one connection.

use std::future::poll_fn;
use std::net::Shutdown;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_h1::{Decoded, Limits, RequestError, RequestHead, Span, decode_request, may_complete};
use plimsoll_resilience::flight::Summary;
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::time::Timestamp;
use socket2::SockRef;

use super::listening::idle_until;
use super::{Downstream, HEAD_TIMEOUT, READ_AWAY_TIME, read_away, refusal_of, too_many_connections};
use crate::exchange::{After, Begin, Caller, Slot};
use crate::forward::io::{poll_read, poll_write};
use crate::forward::request::Request;
use crate::reject::{AnswerForm, Refusal, write_answer};
use crate::report::{CallFacts, CallReport, StatsId};
use crate::route::{self, NotRouted};
use crate::runtime::worker::Worker;

/// Serves the connection until it ends.
pub async fn serve(worker: &Rc<Worker>, mut down: Box<Downstream>) {
    while let Some(next) = next_request(worker, &mut down).await {
        let after = match next {
            Next::Request { head, len, arrived } => {
                let after;
                (down, after) = exchange(worker, down, head, len, arrived).await;
                after
            }
            // Rare, and boxed: what they need would otherwise be part of every idle connection.
            Next::Malformed(error) => {
                let refuse = async { refuse(worker, &mut down, &refusal_of(error, &error.to_string()), None).await };
                Box::pin(refuse).await
            }
            Next::TooLate => Box::pin(refuse(worker, &mut down, &Refusal::new(Reason::RequestHeadTimeout), None)).await,
        };
        match after {
            After::Next => {}
            After::Close => {
                Box::pin(linger(worker, &mut down)).await;
                break;
            }
            After::Drop => break,
            After::Reset => {
                // A zero linger time turns the close into a reset.
                let _ = SockRef::from(&down.stream).set_linger(Some(Duration::ZERO));
                break;
            }
        }
    }
    worker.buffers.give_back(std::mem::take(&mut down.buf));
}

/// Answers a connection that is one too many, and ends it.
pub async fn turn_away(worker: &Worker, mut down: Box<Downstream>) {
    let snapshot = worker.snapshot();
    let refusal = too_many_connections(worker, &snapshot);
    if refuse(worker, &mut down, &refusal, None).await == After::Close {
        linger(worker, &mut down).await;
    }
    worker.buffers.give_back(std::mem::take(&mut down.buf));
}

/// Counts a connection that would have been one too many.
pub fn observe_turning_away(worker: &Worker, down: &Downstream) {
    let snapshot = worker.snapshot();
    let refusal = too_many_connections(worker, &snapshot);
    worker.report.would_refuse(snapshot.inbound().rest.stats.id(), &refusal, &facts(worker, down, None));
}

enum Next {
    Request { head: Box<RequestHead>, len: usize, arrived: Timestamp },
    Malformed(RequestError),
    TooLate,
}

/// Waits for the next request head. `None`: the connection has ended, as far as we are concerned without a fault.
async fn next_request(worker: &Worker, down: &mut Downstream) -> Option<Next> {
    let limits = Limits::default();
    let mut seen = 0;
    let mut deadline = None;
    loop {
        if may_complete(&down.buf, seen, &limits) {
            let mut head = worker.request_heads.lend();
            match decode_request(&down.buf, &limits, &mut head) {
                Ok(Decoded::Complete { len }) => return Some(Next::Request { head, len, arrived: worker.now() }),
                Ok(Decoded::Incomplete) => worker.request_heads.give_back(head),
                Err(error) => return Some(Next::Malformed(error)),
            }
        }
        if down.buf[..] == *b"\r\n" {
            // Some clients send an empty line after a body (RFC 9112 2.2): it begins nothing.
            down.buf.clear();
        }
        seen = down.buf.len();
        if seen == 0 {
            worker.buffers.give_back(std::mem::take(&mut down.buf));
        } else if deadline.is_none() {
            deadline = Some(worker.now() + HEAD_TIMEOUT);
        }
        match poll_fn(|cx| poll_more(worker, down, deadline, cx)).await {
            More::Read => {}
            More::Ended => return None,
            More::TooLate => return Some(Next::TooLate),
        }
    }
}

enum More {
    Read,
    Ended,
    TooLate,
}

/// Reads more of a head, or waits for its first byte with no buffer.
fn poll_more(worker: &Worker, down: &mut Downstream, deadline: Option<Timestamp>, cx: &mut Context<'_>) -> Poll<More> {
    let is_readable = down.stream.poll_read_ready(cx);
    if is_readable.is_ready() {
        if down.buf.capacity() == 0 {
            down.buf = worker.buffers.lend();
        } else if down.buf.len() == down.buf.capacity() {
            down.buf.reserve(crate::runtime::buffers::INITIAL);
        }
        match poll_read(&mut down.stream, &mut down.buf, cx) {
            Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(More::Ended),
            Poll::Ready(Ok(_)) => return Poll::Ready(More::Read),
            // Readiness was stale, as it always is for a connection that has just been accepted.
            Poll::Pending if down.buf.is_empty() => worker.buffers.give_back(std::mem::take(&mut down.buf)),
            Poll::Pending => {}
        }
    }
    let now = worker.now();
    let until = deadline.unwrap_or_else(|| idle_until(worker, down, now));
    if now < until {
        down.alarm.set(Some(until), cx.waker());
        return Poll::Pending;
    }
    down.idle_since = None;
    Poll::Ready(if deadline.is_some() { More::TooLate } else { More::Ended })
}

async fn exchange(
    worker: &Rc<Worker>,
    mut down: Box<Downstream>,
    head: Box<RequestHead>,
    len: usize,
    arrived: Timestamp,
) -> (Box<Downstream>, After) {
    down.idle_since = None;
    let mut slot = worker.slots.lend();
    if let Err((mut down, head, not_routed)) = load(worker, &mut slot, down, head, len, arrived) {
        let refused = async {
            let after = refuse(worker, &mut down, &not_routed.refusal(), Some((&head, arrived))).await;
            (down, after)
        };
        return Box::pin(refused).await;
    }
    let (down, after) = slot.run().await;
    worker.slots.give_back(slot);
    (down.expect("the call had the connection for itself"), after)
}

type Back = (Box<Downstream>, Box<RequestHead>, NotRouted);

/// Routes the request and puts the call into `slot`.
fn load(
    worker: &Rc<Worker>,
    slot: &mut Slot,
    mut down: Box<Downstream>,
    head: Box<RequestHead>,
    len: usize,
    arrived: Timestamp,
) -> Result<(), Back> {
    let snapshot = worker.snapshot();
    match route::find(&worker.process, &snapshot, &down.origin, &head, &down.buf) {
        Err(not_routed) => Err((down, head, not_routed)),
        Ok(routed) => {
            let request = Request::new(head, std::mem::take(&mut down.buf), len, &Limits::default());
            slot.load(worker, Begin { caller: Caller::Connection(down.into()), snapshot, routed, request, arrived });
            Ok(())
        }
    }
}

/// Answers a request that is not carried out, and ends the connection: what follows cannot be told from what it belongs to.
async fn refuse(
    worker: &Worker,
    down: &mut Downstream,
    refusal: &Refusal<'_>,
    request: Option<(&RequestHead, Timestamp)>,
) -> After {
    let head = request.map(|(head, _)| (head, &down.buf[..]));
    let form = AnswerForm::of(head, false, down.is_local(), worker.clock.wall(worker.now()));
    let mut answer = Vec::new();
    write_answer(&mut answer, refusal, &form);
    report_refused(worker, down, refusal, request);
    let mut sent = 0;
    let deadline = worker.now() + READ_AWAY_TIME;
    let written = poll_fn(|cx| {
        while sent < answer.len() {
            match poll_write(&down.stream, &answer[sent..], &[], cx) {
                Poll::Ready(Ok(count)) => sent += count,
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending if worker.now() >= deadline => return Poll::Ready(false),
                Poll::Pending => {
                    down.alarm.set(Some(deadline), cx.waker());
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(true)
    });
    if written.await { After::Close } else { After::Drop }
}

/// Closes our side, and the connection once what was said last has arrived.
async fn linger(worker: &Worker, down: &mut Downstream) {
    if SockRef::from(&down.stream).shutdown(Shutdown::Write).is_ok() {
        read_away(worker, &mut down.stream, &mut down.buf, &down.alarm).await;
    }
}

/// A call that no dependency ever heard of is a call all the same.
fn report_refused(
    worker: &Worker,
    down: &Downstream,
    refusal: &Refusal<'_>,
    request: Option<(&RequestHead, Timestamp)>,
) {
    let snapshot = worker.snapshot();
    let stats = if down.is_local() { StatsId::UNLISTED } else { snapshot.inbound().rest.stats.id() };
    let now = worker.now();
    worker.report.started(stats);
    worker.report.call(&CallReport {
        stats,
        facts: facts(worker, down, request),
        status: refusal.status(),
        grpc: None,
        refusal: Some(refusal),
        summary: Summary::default(),
        endpoint: None,
        duration: request.map_or(Duration::ZERO, |(_, arrived)| now.saturating_since(arrived)),
        deadline_remaining: None,
        bytes_received: 0,
        bytes_sent: 0,
    });
}

/// What is known of a request that no exchange was made for.
fn facts<'a>(worker: &Worker, down: &'a Downstream, request: Option<(&RequestHead, Timestamp)>) -> CallFacts<'a> {
    let part = |span: fn(&RequestHead) -> Span| request.map_or(&[][..], |(head, _)| span(head).of(&down.buf));
    CallFacts {
        time: worker.clock.wall(request.map_or_else(|| worker.now(), |(_, arrived)| arrived)),
        direction: down.origin.direction(),
        method: part(|head| head.method_name),
        host: part(|head| head.host),
        path: part(|head| head.path),
        trace_id: "",
        policy: None,
        route: None,
    }
}
