//! Room 9: move the bytes, both ways, with back-pressure.

pub mod answer;
mod body;
pub mod grpc;
pub mod heads;
pub mod io;
mod pieces;
pub mod reply;
pub mod request;
pub mod trailers;
