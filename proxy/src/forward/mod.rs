//! Room 9: move the bytes, both ways, with back-pressure.

pub mod answer;
mod body;
pub mod heads;
pub mod io;
pub mod reply;
pub mod request;
