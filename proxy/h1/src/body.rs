//! Bodies, as they come: which of the bytes at hand are data, and where the message ends.

use crate::{
    chunked::{Chunked, Class},
    error::{BodyError, Truncated},
    framing::BodyFraming,
    limits::Limits,
    trailers::Trailers,
};

/// What to do with the bytes that were handed to [`BodyDecoder::decode`]: leave out `skip`, pass on `len` of those that
/// follow. The rest, if any, has not been looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Bytes to leave out, first.
    pub skip: usize,
    /// Bytes to pass on, behind them. With `len` 0 and `end` unset, `skip` is all there was.
    pub len: usize,
    /// Whether the message ends behind these bytes.
    pub end: bool,
}

/// Reads one body. Zero copy: it looks at the caller's buffer and says what is what.
///
/// ```text
/// loop { piece = decode(buf); drop piece.skip; pass on piece.len; if piece.end { break } if buf is empty { read more } }
/// ```
///
/// Every byte that was looked at is used up, so the caller's buffer may have any size.
#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    verbatim: bool,
    data_bytes: u64,
}

#[derive(Debug)]
enum State {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

impl BodyDecoder {
    /// Takes the framing off: what is passed on is the body alone.
    #[must_use]
    pub fn new(framing: BodyFraming, limits: &Limits) -> Self {
        Self::with(framing, limits, false)
    }

    /// Checks the framing and leaves it on: what is passed on can be sent as it is to a receiver that was told the same
    /// framing, in one piece for as many chunks as are there.
    ///
    /// Chunk extensions are left out, because no two implementations read them alike. Trailers are left out as well,
    /// because some are forbidden: when [`Self::trailers`] is not `None` at the end, the caller writes them with
    /// [`Trailers::put`], which also writes the empty line that ends the message.
    #[must_use]
    pub fn verbatim(framing: BodyFraming, limits: &Limits) -> Self {
        Self::with(framing, limits, true)
    }

    fn with(framing: BodyFraming, limits: &Limits, verbatim: bool) -> Self {
        let state = match framing {
            BodyFraming::None => State::Length(0),
            BodyFraming::Length(len) => State::Length(len),
            BodyFraming::Chunked => State::Chunked(Chunked::new(limits)),
            BodyFraming::UntilClose => State::UntilClose,
        };
        Self { state, verbatim, data_bytes: 0 }
    }

    /// Looks at `buf`, what comes next in the stream.
    ///
    /// # Errors
    /// When the framing is broken; the connection is of no further use.
    pub fn decode(&mut self, buf: &[u8]) -> Result<Piece, BodyError> {
        let piece = match &mut self.state {
            State::UntilClose => Piece { skip: 0, len: buf.len(), end: false },
            State::Length(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(buf.len());
                *left -= len as u64;
                Piece { skip: 0, len, end: *left == 0 }
            }
            State::Chunked(chunked) => {
                return decode_chunked(chunked, self.verbatim, &mut self.data_bytes, buf);
            }
        };
        self.data_bytes += piece.len as u64;
        Ok(piece)
    }

    /// Whether the message has ended. A body until close never has by itself.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        match &self.state {
            State::Length(left) => *left == 0,
            State::Chunked(chunked) => chunked.is_end(),
            State::UntilClose => false,
        }
    }

    /// Bytes of data that are known to come yet: all of them with `Length`, those of the current chunk with `Chunked`.
    #[must_use]
    pub const fn remaining_hint(&self) -> u64 {
        match &self.state {
            State::Length(left) => *left,
            State::Chunked(chunked) => chunked.remaining(),
            State::UntilClose => 0,
        }
    }

    /// Bytes of data so far, framing not counted.
    #[must_use]
    pub const fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// The sender has closed. That is the end of a body until close and of none other.
    ///
    /// # Errors
    /// [`Truncated`] when the message is not whole.
    pub const fn close(&self) -> Result<(), Truncated> {
        if self.is_end() || matches!(self.state, State::UntilClose) { Ok(()) } else { Err(Truncated) }
    }

    /// The trailers; `None` before the end and where no trailer was sent.
    #[must_use]
    pub fn trailers(&self) -> Option<&Trailers> {
        match &self.state {
            State::Chunked(chunked) => chunked.trailers(),
            State::Length(_) | State::UntilClose => None,
        }
    }
}

fn decode_chunked(chunked: &mut Chunked, verbatim: bool, data_bytes: &mut u64, buf: &[u8]) -> Result<Piece, BodyError> {
    let mut skip = 0;
    let mut at = 0;
    while at < buf.len() && !chunked.is_end() {
        let class = chunked.class();
        let passes = match class {
            Class::Data => true,
            Class::Framing => verbatim,
            Class::Cut => false,
        };
        if !passes && at > skip {
            break;
        }
        let used = chunked.advance(&buf[at..])?;
        at += used;
        if class == Class::Data {
            *data_bytes += used as u64;
        }
        if !passes {
            skip = at;
        }
    }
    Ok(Piece { skip, len: at - skip, end: chunked.is_end() })
}
