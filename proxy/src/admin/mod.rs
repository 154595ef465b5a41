//! The admin and the health address, on a thread and a runtime of their own: a scrape or a push never costs a call.
//!
//! ```text
//!   health  /ready /live                                   anybody
//!   admin   /ready /live /metrics /status                  anybody who may connect, without Host tricks or Origin
//!           /policy /config-dump /decisions /events, PUT, POST     with the token
//! ```
//!
//! Everything is bounded: connections (the oldest gives way, so that a flood cannot lock an operator or a probe out),
//! heads, bodies, and the time each may take. What the pages need from the proxy is the [`Control`] trait.

mod answer;
mod connection;
mod control;
mod events;
mod force;
mod listen;
mod metrics;
mod pages;
mod process;
mod route;
mod status;
#[cfg(test)]
mod tests;
mod token;

pub use control::{
    Control, DependencyFacts, EndpointFacts, EndpointSource, Facts, ForceOrder, ForceRefused, Ineffective, PolicyFacts,
    PutAnswer, TlsFacts,
};
pub use listen::{AdminThread, BindError, Listeners};
pub use token::{Token, TokenError, token_path};
