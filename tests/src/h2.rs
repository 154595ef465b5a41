//! HTTP/2 by hand: frames as bytes, a connection that shows every frame, and servers that break every rule on demand.
//!
//! It is written for tests and shares no code with the proxy: its own reading of RFC 9113 and RFC 7541 is the second
//! opinion. A client that could not send a wrong frame could not test what becomes of one, so everything here is sent
//! as it is told.

pub mod frame;
pub mod hpack;
mod load;
mod peer;
mod server;
mod session;

pub use load::Load;
pub use peer::{Next, PREFACE, Peer};
pub use server::Server;
pub use session::{Answer, Session, Stream, request};
