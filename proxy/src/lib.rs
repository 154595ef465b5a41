//! See ARCHITECTURE.md.
pub mod admin;
pub mod cli;
pub mod reject;
pub mod report;
