//! Room 3: what is the message?

mod h1;
pub mod h2;

use std::rc::Rc;

use bytes::BytesMut;
use plimsoll_resilience::Mode;
use plimsoll_resilience::time::Timestamp;
use tokio::net::TcpStream;

use crate::capture::Origin;
use crate::report::Direction;
use crate::runtime::timers::Alarm;
use crate::runtime::worker::Worker;

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
        self.origin.direction() == Direction::Outbound
    }
}

/// Serves one connection to its end.
pub async fn connection(worker: &Rc<Worker>, stream: TcpStream, origin: Origin) {
    let down =
        Box::new(Downstream { stream, origin, alarm: worker.timers.alarm(), buf: BytesMut::new(), idle_since: None });
    if down.is_local() {
        return h1::serve(worker, down).await;
    }
    // Held while the connection is served; one that is turned away never counts.
    match worker.process.callers.try_open() {
        Some(_served) => {
            observe_limit(worker, &down);
            h1::serve(worker, down).await;
        }
        None => Box::pin(h1::turn_away(worker, down)).await,
    }
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
