//! Bodies that pass through as they are: checked where they lie, and never copied.

use bytes::BytesMut;
use plimsoll_h1::{BodyDecoder, BodyError};

/// Looks at all of `buf` behind `taken` and moves `taken` behind what may be forwarded; what may not (chunk extensions,
/// or the framing itself for a decoder that takes it off) is taken out of `buf`. True when the message ends there; what
/// follows belongs to the next one.
///
/// # Errors
/// [`BodyError`] when the framing is broken.
pub fn take(
    decoder: &mut BodyDecoder,
    keep_framing: bool,
    buf: &mut BytesMut,
    taken: &mut usize,
) -> Result<bool, BodyError> {
    let mut read = *taken;
    let mut ended = decoder.is_end();
    while read < buf.len() && !ended {
        let piece = decoder.decode(&buf[read..])?;
        read += piece.skip;
        if read != *taken {
            buf.copy_within(read..read + piece.len, *taken);
        }
        *taken += piece.len;
        read += piece.len;
        ended = piece.end;
    }
    if read != *taken {
        buf.copy_within(read.., *taken);
        buf.truncate(buf.len() - (read - *taken));
    }
    if ended
        && keep_framing
        && let Some(trailers) = decoder.trailers()
    {
        // Rare enough to be moved.
        let behind = buf.split_off(*taken);
        trailers.put(buf);
        *taken = buf.len();
        buf.extend_from_slice(&behind);
    }
    Ok(ended)
}
