//! Threads, clocks, signals, drain: the only place that knows real time.

pub mod buffers;
pub mod clock;
mod controller;
pub mod drain;
mod events;
mod facts;
pub mod listeners;
pub mod memory;
pub mod process;
pub mod resolver;
mod signals;
mod start;
pub mod timers;
pub mod worker;

pub use self::start::{StartError, run};
