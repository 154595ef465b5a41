//! Why a message is refused: precise enough for a log, and with what to answer.

use thiserror::Error;

use crate::kind::FieldKind;

/// A head whose lines are not HTTP/1.1 (RFC 9112 sections 2 and 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// The head outgrew [`crate::Limits::head_bytes`].
    #[error("the head is larger than the limit")]
    HeadTooLarge,
    /// More field lines than [`crate::Limits::fields`].
    #[error("the head has more fields than the limit")]
    TooManyFields,
    /// The start line is not three parts with one space between them, or holds a byte it may not.
    #[error("the start line is malformed")]
    StartLine,
    /// A version that is none.
    #[error("the HTTP version is malformed")]
    Version,
    /// A major version other than 1, or a minor one that does not exist.
    #[error("only HTTP/1.0 and HTTP/1.1 are spoken here")]
    UnsupportedVersion,
    /// A line ends with LF alone.
    #[error("a line of the head ends with a bare LF")]
    BareLf,
    /// CR stands somewhere else than before LF.
    #[error("the head holds a CR that is not part of a line end")]
    BareCr,
    /// A line begins with white space.
    #[error("a field line begins with white space (obsolete line folding)")]
    Folded,
    /// White space between field name and colon.
    #[error("white space stands between a field name and its colon")]
    SpaceBeforeColon,
    /// Empty, or holds a byte that no token may hold, or no colon follows.
    #[error("a field name is malformed")]
    FieldName,
    /// NUL or another control character.
    #[error("a field value holds a control character")]
    FieldValue,
}

/// Fields that leave open where the message ends (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FramingError {
    /// Anything but digits, a list included.
    #[error("Content-Length is not a number")]
    LengthMalformed,
    /// Above 2^63 - 1.
    #[error("Content-Length is too large")]
    LengthTooLarge,
    /// More than one `Content-Length` line, equal or not (in an answer: not equal).
    #[error("Content-Length is given more than once")]
    LengthRepeated,
    /// Either could be believed, which is how requests are smuggled.
    #[error("both Content-Length and Transfer-Encoding are given")]
    LengthAndCoding,
    /// A coding that is not implemented under a final `chunked`.
    #[error("Transfer-Encoding names a coding other than chunked")]
    CodingUnsupported,
    /// `chunked` is not the last coding, or is applied twice.
    #[error("Transfer-Encoding does not end with one chunked")]
    CodingMalformed,
    /// More than one `Transfer-Encoding` line.
    #[error("Transfer-Encoding is given more than once")]
    CodingRepeated,
    /// See [`FieldKind::FramingLookalike`].
    #[error("a field is named like Content-Length or Transfer-Encoding, in other punctuation")]
    Lookalike,
    /// END_STREAM stands where a body was announced (RFC 9113 8.1.1).
    #[error("Content-Length announces a body, and none follows")]
    LengthWithoutBody,
    /// HTTP/1.0 has no transfer codings.
    #[error("Transfer-Encoding is given in an HTTP/1.0 message")]
    CodingInHttp10,
}

/// A `Connection` field that cannot be obeyed (RFC 9110 7.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConnectionError {
    /// An option is not a token.
    #[error("Connection is malformed")]
    Malformed,
    /// More options than anyone has.
    #[error("Connection names too many options")]
    TooMany,
    /// Obeying would take this field from the receiver, whom it is meant for.
    #[error("Connection names {}, which is meant for the receiver", .0.name())]
    EndToEnd(FieldKind),
}

/// Why a request is refused. The connection is of no further use, since it is not known where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// See [`LineError`].
    #[error(transparent)]
    Line(#[from] LineError),
    /// See [`FramingError`].
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// See [`ConnectionError`].
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Longer than any method.
    #[error("the method is too long")]
    MethodTooLong,
    /// The target outgrew [`crate::Limits::target_bytes`].
    #[error("the request target is longer than the limit")]
    TargetTooLong,
    /// Not a form that the method may have, or with a byte that no target may hold.
    #[error("the request target is malformed")]
    Target,
    /// The authority in the target, or what `CONNECT` names, is no host with an optional port.
    #[error("the authority in the request target is malformed")]
    Authority,
    /// CONNECT with a body: its end and the begin of the tunnel would be one reader's guess (RFC 9110 9.3.6).
    #[error("CONNECT has a body")]
    ConnectBody,
    /// HTTP/1.1 without `Host` (RFC 9112 3.2).
    #[error("Host is missing")]
    HostMissing,
    /// More than one `Host` line, equal or not.
    #[error("Host is given more than once")]
    HostRepeated,
    /// No host with an optional port.
    #[error("Host is malformed")]
    HostMalformed,
    /// `Host` says something else than `:authority` (RFC 9113 8.3.1).
    #[error("Host differs from :authority")]
    HostDiffers,
    /// A field of the connection, in a protocol that has none of them (RFC 9113 8.2.2).
    #[error("{} has no place in HTTP/2", .0.name())]
    ConnectionSpecific(FieldKind),
    /// A pseudo field that the request must have, or must not have, to be of its kind (RFC 9113 8.3.1, 8.5, RFC 8441 4).
    #[error("the pseudo fields do not make a request")]
    Pseudo,
    /// An extended CONNECT to something else than a WebSocket (RFC 8441, RFC 9220 3).
    #[error("the protocol that CONNECT asks for is not spoken here")]
    ProtocolUnsupported,
}

impl RequestError {
    /// What to answer: 400, 414, 431, 501 or 505.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::TargetTooLong => 414,
            Self::Line(LineError::HeadTooLarge | LineError::TooManyFields) => 431,
            Self::Framing(FramingError::CodingUnsupported) | Self::ProtocolUnsupported => 501,
            Self::Line(LineError::UnsupportedVersion) => 505,
            _ => 400,
        }
    }
}

/// Why an answer cannot be passed on. The connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ResponseError {
    /// See [`LineError`].
    #[error(transparent)]
    Line(#[from] LineError),
    /// See [`FramingError`].
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// See [`ConnectionError`].
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// See [`RequestError::ConnectionSpecific`].
    #[error("{} has no place in HTTP/2", .0.name())]
    ConnectionSpecific(FieldKind),
    /// Not three digits from 100 on.
    #[error("the status code is malformed")]
    Status,
}

/// Why a body cannot be read on (RFC 9112 section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// No hexadecimal digit where a chunk begins.
    #[error("a chunk size is malformed")]
    ChunkSize,
    /// More than 16 digits, or above 2^63 - 1.
    #[error("a chunk size is too large")]
    ChunkSizeTooLarge,
    /// A control character, or white space before the line end.
    #[error("a chunk extension is malformed")]
    ChunkExtension,
    /// More than [`crate::Limits::chunk_extension_bytes`] in one body.
    #[error("the chunk extensions are larger than the limit")]
    ChunkExtensionsTooLarge,
    /// CR or LF alone, or no line end after the data of a chunk.
    #[error("a line end is missing between chunks")]
    ChunkLineEnd,
    /// The trailer section outgrew [`crate::Limits::trailer_bytes`] or the number of fields.
    #[error("the trailer section is larger than the limit")]
    TrailersTooLarge,
    /// See [`LineError`].
    #[error("trailers: {0}")]
    Trailers(LineError),
}

/// The sender closed before the message was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the connection was closed in the middle of a message")]
pub struct Truncated;

/// A body that does not have the length its head announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// More bytes than `Content-Length` said, or any where the message has no body.
    #[error("the body is longer than its head said")]
    TooLong,
    /// `finish` before all of `Content-Length` was there.
    #[error("the body is shorter than its head said")]
    TooShort,
}
