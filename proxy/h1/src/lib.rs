//! HTTP/1.1 framing for a proxy, as a pure decoder and encoder: no I/O, no clock, no allocation per field.
//!
//! ```text
//!  bytes in --> decode_request / decode_response --> head (ranges of the buffer, kinds, framing)
//!           --> BodyDecoder                      --> which bytes are body, where the message ends
//! bytes out <-- encode_request / encode_response <-- head + Rewrite (what to drop, what to add)
//!           <-- BodyEncoder                      <-- what stands around the data
//! ```
//!
//! A head that came by HTTP/2 is composed into the same form: [`compose_request`], [`compose_response`].
//!
//! It protects the two ends of a connection from reading one stream as two different ones: what could be read in more
//! than one way is refused (RFC 9112 section 11). What is forwarded has exactly one framing, and nothing in it that only
//! the previous hop was meant to see.
//!
//! ```
//! use plimsoll_h1::{Decoded, Limits, RequestHead, Rewrite, decode_request, encode_request};
//!
//! let buf = b"GET http://rates.test/eur HTTP/1.1\r\nHost: rates.test\r\nConnection: close\r\nAccept: */*\r\n\r\n";
//! let mut head = RequestHead::default();
//! let decoded = decode_request(buf, &Limits::default(), &mut head)?;
//! assert_eq!(decoded, Decoded::Complete { len: buf.len() });
//! assert!(!head.keep_alive);
//!
//! let mut out = Vec::new();
//! encode_request(&head, buf, &Rewrite { add: &[(b"via", b"1.1 plimsoll")], ..Rewrite::default() }, &mut out);
//! assert_eq!(out, b"GET /eur HTTP/1.1\r\nAccept: */*\r\nhost: rates.test\r\nvia: 1.1 plimsoll\r\n\r\n");
//! # Ok::<(), plimsoll_h1::RequestError>(())
//! ```
//!
//! Deliberately absent: a map of fields (each is recognised once, [`FieldKind`]), repair of broken messages, HTTP/0.9,
//! transfer codings other than `chunked`.

mod body;
mod chunked;
mod compose;
mod connection;
mod encode;
mod encode_body;
mod error;
mod field;
mod framing;
mod kind;
mod limits;
mod lines;
mod method;
mod request;
mod response;
mod target;
mod trailers;

pub use body::{BodyDecoder, Piece};
pub use compose::{Pseudo, compose_request, compose_response};
pub use encode::{Framing, Persistence, Rewrite, encode_request, encode_response};
pub use encode_body::{BodyEncoder, Frame};
pub use error::{
    BodyError, ConnectionError, EncodeError, FramingError, LineError, RequestError, ResponseError, Truncated,
};
pub use field::{Field, Fields, Span};
pub use framing::{BodyFraming, Version};
pub use kind::{FieldKind, KindSet};
pub use limits::{Limits, MAX_FIELDS};
pub use lines::{Decoded, may_complete};
pub use method::Method;
pub use request::{RequestHead, Upgrade, decode_request};
pub use response::{ResponseHead, decode_response};
pub use target::TargetForm;
pub use trailers::Trailers;
