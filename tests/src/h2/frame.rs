//! Frames (RFC 9113 4.1): written as they are told, right or wrong.

/// DATA.
pub const DATA: u8 = 0;
/// HEADERS.
pub const HEADERS: u8 = 1;
/// PRIORITY.
pub const PRIORITY: u8 = 2;
/// RST_STREAM.
pub const RST_STREAM: u8 = 3;
/// SETTINGS.
pub const SETTINGS: u8 = 4;
/// PUSH_PROMISE.
pub const PUSH_PROMISE: u8 = 5;
/// PING.
pub const PING: u8 = 6;
/// GOAWAY.
pub const GOAWAY: u8 = 7;
/// WINDOW_UPDATE.
pub const WINDOW_UPDATE: u8 = 8;
/// CONTINUATION.
pub const CONTINUATION: u8 = 9;

/// ACK of SETTINGS and PING.
pub const ACK: u8 = 1;
/// END_STREAM of DATA and HEADERS.
pub const END_STREAM: u8 = 1;
/// END_HEADERS of HEADERS, PUSH_PROMISE and CONTINUATION.
pub const END_HEADERS: u8 = 4;
/// PADDED of DATA, HEADERS and PUSH_PROMISE.
pub const PADDED: u8 = 8;
/// PRIORITY of HEADERS.
pub const WITH_PRIORITY: u8 = 0x20;

/// Error codes (RFC 9113 7).
pub mod code {
    #![allow(missing_docs, reason = "the names are those of RFC 9113 7")]
    pub const NO_ERROR: u32 = 0;
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const INTERNAL_ERROR: u32 = 2;
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    pub const SETTINGS_TIMEOUT: u32 = 4;
    pub const STREAM_CLOSED: u32 = 5;
    pub const FRAME_SIZE_ERROR: u32 = 6;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const COMPRESSION_ERROR: u32 = 9;
    pub const CONNECT_ERROR: u32 = 10;
    pub const ENHANCE_YOUR_CALM: u32 = 11;
    pub const INADEQUATE_SECURITY: u32 = 12;
    pub const HTTP_1_1_REQUIRED: u32 = 13;
}

/// Settings (RFC 9113 6.5.2, RFC 8441 3).
pub mod setting {
    #![allow(missing_docs, reason = "the names are those of RFC 9113 6.5.2")]
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// One frame as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Type.
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// Stream identifier, without the reserved bit.
    pub stream: u32,
    /// Payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The first frame in `bytes` and its length, once it is there.
    pub fn parse(bytes: &[u8]) -> Option<(Frame, usize)> {
        let (head, rest) = bytes.split_at_checked(9)?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let payload = rest.get(..length)?.to_vec();
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Some((Frame { kind: head[3], flags: head[4], stream, payload }, 9 + length))
    }

    /// Whether all of `flags` are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The 32-bit number at `offset` of the payload; 0 past its end.
    pub fn number(&self, offset: usize) -> u32 {
        let bytes = self.payload.get(offset..offset + 4).and_then(|four| four.try_into().ok());
        bytes.map_or(0, u32::from_be_bytes)
    }

    /// The payload without padding and priority.
    pub fn content(&self) -> &[u8] {
        let padded = self.has(PADDED) && matches!(self.kind, DATA | HEADERS | PUSH_PROMISE);
        let (padding, begin) = if padded { (usize::from(self.payload[0]), 1) } else { (0, 0) };
        let begin = begin + if self.kind == HEADERS && self.has(WITH_PRIORITY) { 5 } else { 0 };
        &self.payload[begin..self.payload.len() - padding]
    }
}

/// A frame of any kind with the length of its payload.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let length = u32::try_from(payload.len()).expect("tests send no frame of 4 GiB").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Several frames, one after the other.
pub fn join(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.concat()
}

/// DATA.
pub fn data(stream: u32, ends: bool, payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(DATA, if ends { END_STREAM } else { 0 }, stream, payload)
}

/// HEADERS with a whole block.
pub fn headers(stream: u32, ends: bool, block: impl AsRef<[u8]>) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | if ends { END_STREAM } else { 0 }, stream, block)
}

/// RST_STREAM.
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, code.to_be_bytes())
}

/// SETTINGS.
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let pair = |(key, value): &(u16, u32)| [&key.to_be_bytes()[..], &value.to_be_bytes()[..]].concat();
    frame(SETTINGS, 0, 0, values.iter().flat_map(pair).collect::<Vec<u8>>())
}

/// The acknowledgement of SETTINGS.
pub fn settings_ack() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, [])
}

/// PING.
pub fn ping(payload: [u8; 8]) -> Vec<u8> {
    frame(PING, 0, 0, payload)
}

/// GOAWAY.
pub fn goaway(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, [last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// WINDOW_UPDATE.
pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, increment.to_be_bytes())
}

/// PRIORITY on `stream`, which depends on another.
pub fn priority(stream: u32, depends_on: u32, weight: u8) -> Vec<u8> {
    frame(PRIORITY, 0, stream, [&depends_on.to_be_bytes()[..], &[weight]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let bytes = join(&[headers(3, true, b"abc"), ping(*b"01234567")]);
        let (first, length) = Frame::parse(&bytes).expect("a frame");
        assert_eq!((first.kind, first.stream, first.content()), (HEADERS, 3, &b"abc"[..]));
        assert!(first.has(END_STREAM | END_HEADERS) && !first.has(PADDED));
        let (second, _) = Frame::parse(&bytes[length..]).expect("a frame");
        assert_eq!((second.kind, second.payload.as_slice()), (PING, &b"01234567"[..]));
        assert_eq!(Frame::parse(&bytes[..length - 1]), None);
    }

    #[test]
    fn padding_is_no_content() {
        let bytes = frame(DATA, PADDED, 1, b"\x02abc\0\0");
        assert_eq!(Frame::parse(&bytes).expect("a frame").0.content(), b"abc");
    }
}
