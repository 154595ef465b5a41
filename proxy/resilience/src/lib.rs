//! Pure state machines that keep a caller up when something it calls is slow or broken.
//!
//! Nothing here does I/O, reads a clock or draws a random number of its own: every call is told `now`, seeds are
//! parameters, and the proxy and the simulator drive the same code. Read [`flight`] for the life of one call,
//! [`protection`] for what the calls of one dependency share, and then the machine you came for.

#![forbid(unsafe_code)]
#![allow(clippy::needless_pass_by_value, reason = "tickets, permits and tokens are consumed on purpose")]

pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod bulkhead;
pub mod codes;
pub mod deadline;
pub mod error;
pub mod event;
pub mod flight;
pub mod least_request;
pub mod mode;
pub mod outcome;
pub mod protection;
pub mod random;
pub mod reason;
pub mod rejection;
pub mod rules;
pub mod time;
pub mod token_bucket;
pub mod window;

pub use error::ConfigError;
pub use event::Event;
pub use flight::{Action, Attempt, AttemptKind, Call, Failure, Flight, Head, RetryDenied, Safety, Summary};
pub use mode::{Mode, Moded};
pub use outcome::{Ended, Outcome, classify};
pub use protection::{Protection, ProtectionConfig, ProtectionView, RouteProtection};
pub use random::Random;
pub use reason::Reason;
pub use rejection::{Block, Cause, EndpointKey, Rejected, Rejection, RouteId};
pub use rules::Rules;
pub use time::Timestamp;
