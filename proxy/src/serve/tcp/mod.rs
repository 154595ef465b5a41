//! TCP that we do not look into, and TLS that we do not open: a connection is a call.
//!
//! ```text
//!            flight (may it be made, how long may it be silent)
//!               | actions          ^ what happened
//!   caller <-------- relay --------> endpoint
//! ```
//! What acts on it: `maxConnections`, `connectionRate`, the connect and idle timeouts, and breaker and ejection by failed
//! connects and by resets that come before the endpoint's first byte. A connection that is refused, or ends otherwise
//! than its peers wanted, is reset: no byte of ours is ever put into a protocol that we do not know.

mod ahead;
mod connection;
mod flow;
mod pipes;
mod relay;
mod report;

#[cfg(test)]
mod tests;
mod wire;

use std::future::poll_fn;
use std::rc::Rc;

use super::Downstream;
use crate::detect::Verdict;
use crate::route;
use crate::runtime::worker::Worker;

pub use self::ahead::{Ahead, ahead};
pub use self::flow::{Flow, Halt, Lender};
pub use self::pipes::Pipes;
pub use self::relay::{Ended, Relay};
pub use self::wire::{Wire, reset_on_close};

use self::connection::Connection;

/// Serves a connection that is not HTTP to its end.
pub async fn serve(worker: &Rc<Worker>, down: Box<Downstream>, verdict: Verdict) {
    let (is_tls, name) = match verdict {
        Verdict::Tls(hello) => (true, hello.server_name),
        Verdict::Http1 | Verdict::Http2 | Verdict::Opaque => (false, None),
    };
    let snapshot = worker.snapshot();
    match route::find_opaque(&worker.process, &snapshot, &down.origin, name.as_deref()) {
        Err(not_routed) => report::refuse(worker, &down, name.as_deref(), &not_routed.refusal()),
        Ok(routed) => {
            let mut connection = Connection::new(worker, down, snapshot, routed);
            (connection.is_tls, connection.name) = (is_tls, name);
            connection.commit();
            poll_fn(|cx| connection.poll(cx)).await;
        }
    }
}

/// Resets a connection that is one too many.
pub fn turn_away(worker: &Worker, down: &Downstream) {
    let snapshot = worker.snapshot();
    report::refuse(worker, down, None, &super::too_many_connections(worker, &snapshot));
}
