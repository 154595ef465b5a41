//! HTTP/2 as streams: heads, data and trailers, with back-pressure. Only this module names the crate that speaks it.
//!
//! ```text
//!   caller  --> server::Connection --> Incoming { parts, Inflow, Answerer } --> Outflow
//!   us      --> client::Handle::open --> Awaited --> (parts, Inflow), Outflow            --> endpoint
//! ```
//! `serve/h2` and the exchange know streams and not the crate, so that another engine can take its place. What the crate
//! does not bound, is bounded here: [`frames`] are seen as they pass ([`watch`]), and a [`peer`] has an [`allowance`] for those
//! that carry nothing.
//!
//! What was found out about h2 0.4.20, and follows from it here:
//!
//! | case | what happens |
//! |---|---|
//! | 1xx | both ways; an interim head that was not fetched by [`client::Awaited::poll_interim`] is lost at `poll_head` |
//! | `RST_STREAM(NO_ERROR)` after a whole answer | the answer is delivered whole; an answer that is not whole ends in `Reset(NO_ERROR)` after what had come of it |
//! | both halves dropped before the end | `CANCEL`; on the serving side `NO_ERROR` if the answer was whole. One half alone resets nothing: [`Outflow::reset`] does |
//! | a reset behind data that has not gone out | the crate throws the data away: [`Outflow::reset`] waits for it towards a caller |
//! | GOAWAY | streams above its last id are `NotProcessed`; those below go on, and are `GoneAway` if the connection ends first |
//! | `content-length` that DATA does not match | the stream is reset, `Protocol` |
//! | trailers, HEAD, 204, 304 | as they should be; a length in the answer to HEAD is not checked |
//! | heads above the list limit | the crate answers 431 by itself, without a body, and this proxy never hears of it: see [`settings`] |
//! | a malformed head | reset with `PROTOCOL_ERROR` by the crate, unheard of here: not reported as a call |
//! | an upper-case or otherwise impossible field name | the crate ends the whole connection with `PROTOCOL_ERROR` |
//! | an error within a header block | the crate says `PROTOCOL_ERROR` where RFC 9113 4.3 wants `COMPRESSION_ERROR`: put right towards callers on its way out ([`hpack`]); other such codes are put right by [`frames`] |
//! | pseudo fields where they may not stand (`:path` in an answer, `:status` in trailers) | dropped by the crate; in trailers of requests [`frames`] sees them, of answers they are unheard of |
//! | updates that overflow the window of a stream on which we have sent all | ignored: nothing is left to send |
//! | a `#` in `:path` | cut off there by the `http` crate |
//! | empty DATA that does not end | a hundred in the life of a connection end it: [`frames`] takes them out before |
//! | small DATA that nobody reads | counted, see [`settings`] |
//! | PING, SETTINGS | answered before the next frame is read, so a peer that does not read its answers stalls itself alone |
//! | heads of answers that a peer does not read | held without end by the crate: [`watch`] stops reading from it |
//! | GOAWAY from a server with calls in flight | new calls get `NotProcessed` |

mod allowance;
pub mod client;
pub mod fields;
mod frames;
mod halves;
mod hpack;
mod peer;
pub mod server;
mod settings;
mod watch;

use std::fmt;
use std::io;

use thiserror::Error;

pub use halves::{Inflow, Outflow};

use self::peer::{Peer, Verdict};

/// An error code (RFC 9113 section 7).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// No fault.
    pub const NO_ERROR: Self = Self(0);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// An error of its own.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// More was sent than the window allowed.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// Settings were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    /// A frame for a stream that had ended.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame of a size it may not have.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// The stream was never begun, and can be asked for again.
    pub const REFUSED_STREAM: Self = Self(7);
    /// The stream is no longer wanted.
    pub const CANCEL: Self = Self(8);
    /// The state of the compression is lost.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The connection of a CONNECT broke.
    pub const CONNECT_ERROR: Self = Self(10);
    /// More load than the peer is willing to take.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: Self = Self(12);
    /// This request is answered over HTTP/1.1 only.
    pub const HTTP_1_1_REQUIRED: Self = Self(13);

    /// As RFC 9113 spells it; none for a code that it does not know.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        if self.0 < 14 { Some(NAMES[self.0 as usize]) } else { None }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error code {}", self.0),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    /// The peer reset the stream.
    #[error("the stream was reset: {0}")]
    Reset(Code),
    /// Refused, or above the last id of a GOAWAY: never begun, so that it can be sent again.
    #[error("the stream was not begun")]
    NotProcessed,
    /// The connection ended with a GOAWAY, and this stream may have been processed.
    #[error("the connection was ended: {0}")]
    GoneAway(Code),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Lost(io::ErrorKind),
    /// The peer broke the protocol, and was told so.
    #[error("the peer broke the protocol")]
    Protocol,
}

impl StreamError {
    fn of(error: &h2::Error, id: u32, peer: &Peer) -> Self {
        if let Some(error) = error.get_io() {
            return peer.lost(id, error.kind());
        }
        let code = error.reason().map(|reason| Code(reason.into()));
        match code {
            // A connection that gives up a stream of ours for a GOAWAY does so for those above its last id alone.
            Some(_) if error.is_go_away() && error.is_remote() => Self::NotProcessed,
            Some(_) if error.is_library() => Self::Protocol,
            Some(code) if error.is_go_away() => Self::GoneAway(code),
            Some(code) => Self::reset(code, id, peer),
            // A use of the crate that it does not allow: ours is the fault, and the peer is not to blame.
            None => Self::Reset(Code::INTERNAL_ERROR),
        }
    }

    /// The stream ended with `code`, in whichever way.
    fn reset(code: Code, id: u32, peer: &Peer) -> Self {
        if code == Code::REFUSED_STREAM || peer.left_out(id) { Self::NotProcessed } else { Self::Reset(code) }
    }
}

/// Why a connection ended other than in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConnectionError {
    /// It broke.
    #[error("the connection broke: {0}")]
    Lost(io::ErrorKind),
    /// The peer ended it, with this reason.
    #[error("the peer ended the connection: {0}")]
    GoneAway(Code),
    /// The peer broke the protocol, and was told so with this code.
    #[error("the peer broke the protocol: {0}")]
    Protocol(Code),
    /// The peer sent more of this than anybody needs, and was told so.
    #[error("the peer sent too many {0}")]
    Flood(&'static str),
    /// We ended it.
    #[error("the connection was ended here: {0}")]
    Ended(Code),
}

impl ConnectionError {
    fn of(error: &h2::Error) -> Self {
        if let Some(error) = error.get_io() {
            return Self::Lost(error.kind());
        }
        let code = error.reason().map_or(Code::INTERNAL_ERROR, |reason| Code(reason.into()));
        match () {
            () if error.is_remote() => Self::GoneAway(code),
            // The crate's own bounds: see `settings`.
            () if error.is_library() && code == Code::ENHANCE_YOUR_CALM => {
                Self::Flood("frames that cost more than they move")
            }
            () if error.is_library() => Self::Protocol(code),
            () => Self::Ended(code),
        }
    }
}

impl From<Verdict> for ConnectionError {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Flood(what) => Self::Flood(what),
            Verdict::Broken(code) => Self::Protocol(code),
        }
    }
}

#[cfg(test)]
mod tests;
