//! Room 3: what is the message?
//!
//! What a connection carries is known from policy (`protocol`), or from its first words, or from who speaks first; then
//! it belongs to one of the three rooms inside.

mod h1;
pub mod h2;
mod listening;
pub mod tcp;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use plimsoll_h1::RequestError;
use plimsoll_policy::Protocol;
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::time::Timestamp;
use plimsoll_resilience::{Cause, Mode};
use tokio::net::TcpStream;

use self::listening::{Heard, Listening, idle_until};
use self::tcp::Ahead;
use crate::capture::{Origin, Purpose};
use crate::detect::{Detected, Habit, Verdict};
use crate::forward::io::poll_read;
use crate::reject::{Numbers, Refusal};
use crate::route;
use crate::runtime::process::Process;
use crate::runtime::timers::Alarm;
use crate::runtime::worker::Worker;
use crate::snapshot::Snapshot;

/// How long a head may take from its first byte (policy.md, built-in defaults).
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be idle between requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// A connection that drains is closed once it has been idle for this long: a request that is on its way arrives before.
const DRAIN_QUIET: Duration = Duration::from_millis(500);
/// What is read away of whatever follows the last that is answered, and how long that may take.
const READ_AWAY: usize = 64 * 1024;
const READ_AWAY_TIME: Duration = Duration::from_secs(2);
/// How long a caller may be silent before the endpoint is asked whether it has something to say.
const GRACE: Duration = Duration::from_millis(10);
/// The same where callers are known to speak first.
const GRACE_CALLER_FIRST: Duration = Duration::from_secs(1);
/// How long a caller that is turned away may take to show in which language it wants to be told.
const TURN_AWAY: Duration = Duration::from_secs(1);

/// A caller's connection.
pub struct Downstream {
    /// The socket.
    pub stream: TcpStream,
    /// Where it came from and was going.
    pub origin: Origin,
    /// The one deadline that the connection has at any time.
    pub alarm: Alarm,
    /// What was read and not used yet. Borrowed: an idle connection has no buffer.
    pub buf: BytesMut,
    /// Since when nothing has been said.
    pub idle_since: Option<Timestamp>,
}

impl Downstream {
    /// Whether the caller is on this side of the trust boundary, and may be told names and numbers of policy.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.origin.is_local()
    }
}

/// Serves one connection to its end.
pub async fn connection(worker: &Rc<Worker>, stream: TcpStream, origin: Origin) {
    let down =
        Box::new(Downstream { stream, origin, alarm: worker.timers.alarm(), buf: BytesMut::new(), idle_since: None });
    // Held while the connection is served; one that is turned away never counts.
    let _served = if down.is_local() {
        None
    } else {
        let Some(served) = worker.process.callers.try_open() else {
            return Box::pin(turn_away(worker, down)).await;
        };
        observe_limit(worker, &down);
        Some(served)
    };
    let Some((down, verdict)) = detect(worker, down).await else { return };
    match verdict {
        Verdict::Http1 => h1::serve(worker, down).await,
        Verdict::Http2 => Box::pin(h2::serve(worker, down)).await,
        verdict @ (Verdict::Tls(_) | Verdict::Opaque) => Box::pin(tcp::serve(worker, down, verdict)).await,
    }
}

/// Room 2: what the connection carries. `None`: it has ended.
async fn detect(worker: &Rc<Worker>, mut down: Box<Downstream>) -> Option<(Box<Downstream>, Verdict)> {
    if let Some(declared) = declared(worker, &down.origin) {
        return Some((down, declared));
    }
    let destination = destination(&worker.process, &down.origin);
    let habit = destination.and_then(|destination| worker.process.habits.of(destination, worker.now()));
    let grace = match (destination, habit) {
        // The forward proxy learns where to from the request.
        (None, _) => None,
        (Some(_), None) => Some(GRACE),
        (Some(_), Some(Habit::CallerFirst)) => Some(GRACE_CALLER_FIRST),
        (Some(_), Some(Habit::Opaque)) => Some(Duration::ZERO),
    };
    let mut first = first_words(worker, &mut down, habit, grace).await;
    if matches!(first, First::Silence) {
        match Box::pin(tcp::ahead(worker, down, habit)).await {
            Ahead::Over => return None,
            Ahead::Said(heard, verdict) => {
                down = heard;
                first = First::Said(verdict);
            }
            Ahead::Waits(silent) => {
                down = silent;
                first = first_words(worker, &mut down, habit, None).await;
            }
        }
    }
    let First::Said(verdict) = first else { return None };
    learn(worker, &down.origin, verdict.detected());
    Some((down, verdict))
}

enum First {
    Said(Verdict),
    /// Nothing, for as long as the grace.
    Silence,
    Ended,
}

/// Waits for the first words of a caller: at most for `grace`, else for as long as an idle connection is kept.
async fn first_words(worker: &Worker, down: &mut Downstream, habit: Option<Habit>, grace: Option<Duration>) -> First {
    let mut listening = Listening::new(habit);
    let silent = grace.map(|grace| worker.now() + grace);
    poll_fn(|cx| poll_first_words(&mut listening, worker, down, silent, cx)).await
}

fn poll_first_words(
    listening: &mut Listening,
    worker: &Worker,
    down: &mut Downstream,
    silent: Option<Timestamp>,
    cx: &mut Context<'_>,
) -> Poll<First> {
    match listening.poll(worker, down, cx) {
        Poll::Ready(Heard::Said(verdict)) => return Poll::Ready(First::Said(verdict)),
        Poll::Ready(Heard::Ended | Heard::Reset) => return Poll::Ready(First::Ended),
        Poll::Pending => {}
    }
    let now = worker.now();
    let until = match (listening.until(), silent) {
        (Some(leans), _) => leans,
        (None, Some(silent)) if silent <= now => return Poll::Ready(First::Silence),
        (None, Some(silent)) => silent,
        (None, None) => {
            let idle = idle_until(worker, down, now);
            if idle <= now {
                return Poll::Ready(First::Ended);
            }
            idle
        }
    };
    down.alarm.set(Some(until), cx.waker());
    Poll::Pending
}

/// What policy says that the connection carries.
fn declared(worker: &Worker, origin: &Origin) -> Option<Verdict> {
    let snapshot = worker.snapshot();
    let protocol = match origin.purpose {
        Purpose::Inbound => {
            let port = destination(&worker.process, origin)?.port();
            snapshot.inbound().ports.iter().find(|known| known.port == port)?.protocol
        }
        Purpose::Listen(_) | Purpose::Outbound => {
            let routed = route::find_opaque(&worker.process, &snapshot, origin, None).ok()?;
            routed.find(&snapshot).0.protocol
        }
    };
    match protocol {
        Protocol::Auto => None,
        Protocol::Http1 => Some(Verdict::Http1),
        Protocol::Http2 | Protocol::Grpc => Some(Verdict::Http2),
        Protocol::Tcp => Some(Verdict::Opaque),
    }
}

/// Where a connection leads if nothing it says changes that; `None` for the forward proxy.
fn destination(process: &Process, origin: &Origin) -> Option<SocketAddr> {
    match origin.purpose {
        Purpose::Listen(address) => Some(address),
        Purpose::Inbound => origin.destination.or(process.options.app),
        Purpose::Outbound => origin.destination,
    }
}

/// Counts what was found, and remembers it for the next connection to the same destination.
fn learn(worker: &Worker, origin: &Origin, found: Detected) {
    worker.report.detected(found);
    let habit = match found {
        Detected::Http1 | Detected::Http2 | Detected::Tls => Habit::CallerFirst,
        Detected::Tcp | Detected::ServerFirst => Habit::Opaque,
    };
    if let Some(destination) = destination(&worker.process, origin) {
        worker.process.habits.learn(destination, habit, worker.now());
    }
}

/// Ends a connection that is one too many: in HTTP with an answer.
async fn turn_away(worker: &Rc<Worker>, mut down: Box<Downstream>) {
    match first_words(worker, &mut down, None, Some(TURN_AWAY)).await {
        First::Said(Verdict::Http1) => h1::turn_away(worker, down).await,
        First::Said(_) | First::Silence => tcp::turn_away(worker, &down),
        First::Ended => {}
    }
}

/// Why a head that cannot be read is refused; `message`: the error in words.
fn refusal_of(error: RequestError, message: &str) -> Refusal<'_> {
    match error.status() {
        414 => Refusal::target_too_long(None),
        431 => Refusal::headers_too_large(None),
        status => {
            let mut refusal = Refusal::malformed(message);
            refusal.status = Some(status).filter(|status| *status != 400);
            refusal
        }
    }
}

/// Reads on for a moment, after our side was closed. Closing with unread bytes would make the kernel send a reset, which
/// can overtake what was said last (RFC 9112 9.6).
async fn read_away(worker: &Worker, stream: &mut TcpStream, buf: &mut BytesMut, alarm: &Alarm) {
    let deadline = worker.now() + READ_AWAY_TIME;
    let mut left = READ_AWAY;
    if buf.capacity() == 0 {
        *buf = worker.buffers.lend();
    }
    poll_fn(|cx| {
        while left > 0 {
            buf.clear();
            match poll_read(stream, buf, cx) {
                Poll::Ready(Ok(count)) if count > 0 => left = left.saturating_sub(count),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if worker.now() >= deadline => return Poll::Ready(()),
                Poll::Pending => {
                    alarm.set(Some(deadline), cx.waker());
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(())
    })
    .await;
}

fn too_many_connections<'s>(worker: &Worker, snapshot: &'s Snapshot) -> Refusal<'s> {
    let limit = snapshot.inbound().connections.map_or(0, |limit| u64::from(limit.config.max));
    let mut refusal = Refusal::new(Reason::BulkheadFull);
    refusal.policy = snapshot.inbound().policy.as_deref();
    refusal.block = Some("bulkhead");
    refusal.numbers = Some(Numbers { observed: worker.process.callers.open() as u64, limit });
    refusal.cause = Some(Cause::Connections);
    refusal.generation = Some(&snapshot.generation);
    refusal
}

/// What `bulkhead.maxConnections` of the workload in Observe would have turned away is counted.
fn observe_limit(worker: &Worker, down: &Downstream) {
    let snapshot = worker.snapshot();
    let limit = snapshot.inbound().connections.filter(|limit| limit.mode == Mode::Observe);
    if limit.is_some_and(|limit| worker.process.callers.open() > limit.config.max as usize) {
        h1::observe_turning_away(worker, down);
    }
}

#[cfg(test)]
mod tests {
    /// Ten thousand idle connections are ten thousand of these: whoever adds to it pays for each of them.
    #[test]
    fn an_idle_connection_is_small() {
        fn size_of_future<A, F: Future>(_: impl Fn(A, tokio::net::TcpStream, crate::capture::Origin) -> F) -> usize {
            size_of::<F>()
        }
        let size = size_of_future::<&std::rc::Rc<crate::runtime::worker::Worker>, _>(super::connection);
        assert!(size <= 900, "{size} bytes");
        let call = size_of::<crate::exchange::Exchange>();
        assert!(call <= 1700, "{call} bytes");
    }
}
