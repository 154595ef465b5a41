//! Bodies as they are sent: what goes around each piece of data, and whether the sum is what the head said.

use bytes::BufMut;

use crate::{error::EncodeError, framing::BodyFraming, trailers::Trailers};

/// Writes one body. The data itself may be written by the caller, between [`Frame::prefix`] and [`Frame::suffix`].
#[derive(Clone, Copy, Debug)]
pub struct BodyEncoder {
    framing: BodyFraming,
}

impl BodyEncoder {
    /// For a body that its head announced like this.
    #[must_use]
    pub const fn new(framing: BodyFraming) -> Self {
        Self { framing }
    }

    /// What has to stand around the next `len` bytes of data. For none there is nothing, since an empty chunk is the end.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] when the head did not announce that many.
    pub fn frame(&mut self, len: usize) -> Result<Frame, EncodeError> {
        match &mut self.framing {
            BodyFraming::None if len > 0 => Err(EncodeError::TooLong),
            BodyFraming::Length(left) => {
                *left = left.checked_sub(len as u64).ok_or(EncodeError::TooLong)?;
                Ok(Frame::NOTHING)
            }
            BodyFraming::Chunked if len > 0 => Ok(Frame::chunk(len)),
            BodyFraming::None | BodyFraming::Chunked | BodyFraming::UntilClose => Ok(Frame::NOTHING),
        }
    }

    /// Appends `data` and what stands around it.
    ///
    /// # Errors
    /// As [`Self::frame`]; nothing is appended then.
    pub fn put(&mut self, data: &[u8], out: &mut impl BufMut) -> Result<(), EncodeError> {
        let frame = self.frame(data.len())?;
        for part in [frame.prefix(), data, frame.suffix()] {
            out.put_slice(part);
        }
        Ok(())
    }

    /// Appends what ends the body. A body until close ends with the connection, and only chunks have room for trailers.
    ///
    /// # Errors
    /// [`EncodeError::TooShort`] when more was announced: the connection has to be closed.
    pub fn finish(self, trailers: Option<&Trailers>, out: &mut impl BufMut) -> Result<(), EncodeError> {
        match (self.framing, trailers) {
            (BodyFraming::Length(1..), _) => Err(EncodeError::TooShort),
            (BodyFraming::Chunked, trailers) => {
                out.put_slice(b"0\r\n");
                match trailers {
                    Some(trailers) => trailers.put(out),
                    None => out.put_slice(b"\r\n"),
                }
                Ok(())
            }
            (BodyFraming::None | BodyFraming::Length(0) | BodyFraming::UntilClose, _) => Ok(()),
        }
    }

    /// Bytes that the head announced and that have not come yet.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        if let BodyFraming::Length(left) = self.framing { left } else { 0 }
    }
}

/// What stands around a piece of data.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    prefix: [u8; 18],
    start: u8,
    suffix: &'static [u8],
}

impl Frame {
    const NOTHING: Self = Self { prefix: [0; 18], start: 18, suffix: b"" };

    fn chunk(len: usize) -> Self {
        let mut prefix = [0; 18];
        prefix[16..].copy_from_slice(b"\r\n");
        let mut start = 16;
        let mut left = len;
        while left > 0 {
            start -= 1;
            prefix[start] = b"0123456789abcdef"[left & 0xf];
            left >>= 4;
        }
        Self { prefix, start: start as u8, suffix: b"\r\n" }
    }

    /// To write before the data.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        &self.prefix[usize::from(self.start)..]
    }

    /// To write behind the data.
    #[must_use]
    pub const fn suffix(&self) -> &'static [u8] {
        self.suffix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_kept_to() {
        let mut out = Vec::new();
        let mut body = BodyEncoder::new(BodyFraming::Length(3));
        assert_eq!(body.put(b"ab", &mut out), Ok(()));
        assert_eq!((body.remaining(), body.finish(None, &mut Vec::new())), (1, Err(EncodeError::TooShort)));
        assert_eq!(body.put(b"cd", &mut out), Err(EncodeError::TooLong));
        assert_eq!(body.put(b"c", &mut out), Ok(()));
        assert_eq!(body.finish(None, &mut out), Ok(()));
        assert_eq!(out, b"abc");
    }

    #[test]
    fn no_body_has_no_data() {
        let mut body = BodyEncoder::new(BodyFraming::None);
        assert_eq!(body.put(b"", &mut Vec::new()), Ok(()));
        assert_eq!(body.put(b"a", &mut Vec::new()), Err(EncodeError::TooLong));
        assert_eq!(body.finish(None, &mut Vec::new()), Ok(()));
    }

    #[test]
    fn nothing_is_no_chunk() {
        let mut out = Vec::new();
        let mut body = BodyEncoder::new(BodyFraming::Chunked);
        for data in [&b""[..], &[b'x'; 16], b"y"] {
            assert_eq!(body.put(data, &mut out), Ok(()));
        }
        assert_eq!(body.finish(None, &mut out), Ok(()));
        assert_eq!(out, b"10\r\nxxxxxxxxxxxxxxxx\r\n1\r\ny\r\n0\r\n\r\n");
        assert_eq!(Frame::chunk(usize::MAX).prefix(), format!("{:x}\r\n", usize::MAX).as_bytes());
    }

    #[test]
    fn a_body_until_close_is_its_data() {
        let mut out = Vec::new();
        let mut body = BodyEncoder::new(BodyFraming::UntilClose);
        assert_eq!(body.put(b"ab", &mut out), Ok(()));
        assert_eq!(body.finish(None, &mut out), Ok(()));
        assert_eq!(out, b"ab");
    }
}
