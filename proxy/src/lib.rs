//! See ARCHITECTURE.md.
pub mod reject;
pub mod report;
