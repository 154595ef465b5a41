//! Room 3: what is the message?

mod h1;

use std::rc::Rc;

use bytes::BytesMut;
use plimsoll_resilience::time::Timestamp;
use tokio::net::TcpStream;

use crate::capture::Origin;
use crate::reject::Numbers;
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

/// Serves one connection to its end. `open` is how many there are in its direction, this one included.
pub async fn connection(worker: &Rc<Worker>, stream: TcpStream, origin: Origin, open: usize) {
    let down =
        Box::new(Downstream { stream, origin, alarm: worker.timers.alarm(), buf: BytesMut::new(), idle_since: None });
    match too_many(worker, &down, open) {
        None => h1::serve(worker, down).await,
        Some(numbers) => Box::pin(h1::turn_away(worker, down, numbers)).await,
    }
}

/// `bulkhead.maxConnections` of the workload: whether this connection is one too many.
fn too_many(worker: &Worker, down: &Downstream, open: usize) -> Option<Numbers> {
    if down.origin.direction() == Direction::Outbound {
        return None;
    }
    let snapshot = worker.snapshot();
    let limit = snapshot.inbound().connections.filter(|limit| open > limit.config.max as usize)?;
    let numbers = Numbers { observed: open as u64, limit: u64::from(limit.config.max) };
    if limit.mode.enforces() {
        return Some(numbers);
    }
    h1::observe_turning_away(worker, down, numbers);
    None
}

#[cfg(test)]
mod tests {
    /// Ten thousand idle connections are ten thousand of these: whoever adds to it pays for each of them.
    #[test]
    fn an_idle_connection_is_small() {
        fn size_of_future<A, F: Future>(
            _: impl Fn(A, tokio::net::TcpStream, crate::capture::Origin, usize) -> F,
        ) -> usize {
            size_of::<F>()
        }
        let size = size_of_future::<&std::rc::Rc<crate::runtime::worker::Worker>, _>(super::connection);
        assert!(size <= 900, "{size} bytes");
        let call = size_of::<crate::exchange::Exchange>();
        assert!(call <= 1700, "{call} bytes");
    }
}
