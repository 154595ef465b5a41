//! The Plimsoll data plane: a sidecar proxy that keeps one slow dependency from sinking the rest.
//!
//! A call meets the rooms in this order: [`capture`], [`serve`], [`route`], [`exchange`] (which the flight of
//! `plimsoll-resilience` steers), [`pick`], [`pool`], [`forward`], [`report`]. See ARCHITECTURE.md.

pub mod admin;
pub mod capture;
pub mod cli;
pub mod deadline;
pub mod dependency;
pub mod detect;
pub mod dial;
pub mod exchange;
pub mod forward;
pub mod outcome;
pub mod pick;
pub mod pool;
pub mod race;
pub mod reject;
pub mod report;
pub mod route;
pub mod runtime;
pub mod serve;
pub mod snapshot;
pub mod sockets;
pub mod streams;
pub mod tls;
pub mod trace;
pub mod transport;
