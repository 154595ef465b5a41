//! How much of a head is read before its sender is told that it is too much (RFC 9110 15.5.15, RFC 6585 5).

use crate::error::LineError;

/// The most field lines that any head may have, whatever [`Limits::fields`] says: they are parsed on the stack.
pub const MAX_FIELDS: usize = 128;

/// Bounds on what one message may make us hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head: start line, field lines and the empty line. 64 KiB.
    pub head_bytes: usize,
    /// Field lines of a head, at most [`MAX_FIELDS`].
    pub fields: usize,
    /// Bytes of a request target. 16 KiB.
    pub target_bytes: usize,
    /// Bytes of a trailer section. 8 KiB.
    pub trailer_bytes: usize,
    /// Bytes of chunk extensions in one body. 4 KiB; they carry nothing that anyone uses.
    pub chunk_extension_bytes: usize,
}

impl Limits {
    /// The start of `buf` that a head has to fit in.
    pub(crate) fn window<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        &buf[..buf.len().min(self.most_head_bytes())]
    }

    /// Whether an unfinished head that fills `window` may still grow.
    pub(crate) fn check_room(&self, window: &[u8]) -> Result<(), LineError> {
        if window.len() < self.most_head_bytes() { Ok(()) } else { Err(LineError::HeadTooLarge) }
    }

    /// Spans are 32 bits wide.
    fn most_head_bytes(&self) -> usize {
        self.head_bytes.min(1 << 30)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 64 * 1024,
            fields: MAX_FIELDS,
            target_bytes: 16 * 1024,
            trailer_bytes: 8 * 1024,
            chunk_extension_bytes: 4 * 1024,
        }
    }
}
