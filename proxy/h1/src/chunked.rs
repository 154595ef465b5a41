//! The chunked coding (RFC 9112 section 7.1), byte by byte where it must be and by the chunk where it can.

use crate::{
    error::BodyError,
    framing::MAX_LENGTH,
    limits::Limits,
    trailers::{TrailerReader, Trailers},
};

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Sizes and line ends.
    Framing,
    /// The body.
    Data,
    /// Extensions and trailers, never passed on as they are.
    Cut,
}

/// ```text
///  Size --";" or white space--> Extension --> SizeCr --.
///    `--CR-----------------------------------------------+--> SizeLf --size > 0--> Data --> DataCr --> DataLf --> Size
///                                                               `--size = 0--> FirstTrailer --CR--> LastLf --> End
///                                                                                    `--else--> Trailers --> End
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size { digits: u8 },
    Extension { last: u8 },
    SizeCr,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    FirstTrailer,
    LastLf,
    Trailers,
    End,
}

#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
    /// Of the chunk being read; while in `Data`, what is left of it.
    size: u64,
    extension_bytes_left: usize,
    trailer_bytes: usize,
    trailer_fields: usize,
    trailers: Option<Box<TrailerReader>>,
}

impl Chunked {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            state: State::Size { digits: 0 },
            size: 0,
            extension_bytes_left: limits.chunk_extension_bytes,
            trailer_bytes: limits.trailer_bytes,
            trailer_fields: limits.fields,
            trailers: None,
        }
    }

    pub(crate) const fn is_end(&self) -> bool {
        matches!(self.state, State::End)
    }

    pub(crate) const fn remaining(&self) -> u64 {
        if matches!(self.state, State::Data) {
            self.size
        } else {
            0
        }
    }

    pub(crate) const fn class(&self) -> Class {
        match self.state {
            State::Data => Class::Data,
            State::Extension { .. } | State::Trailers => Class::Cut,
            _ => Class::Framing,
        }
    }

    pub(crate) fn trailers(&self) -> Option<&Trailers> {
        self.trailers
            .as_ref()
            .filter(|_| self.is_end())
            .map(|reader| reader.trailers())
    }

    /// Uses up bytes of one class from the start of `buf`, which is not empty, and says how many. None are used up by
    /// the step that finds the first byte of an extension or a trailer.
    pub(crate) fn advance(&mut self, buf: &[u8]) -> Result<usize, BodyError> {
        match self.state {
            State::Data => Ok(self.take_data(buf.len())),
            State::Extension { last } => self.take_extension(last, buf),
            State::Trailers => self.take_trailers(buf),
            _ => self.take_framing(buf[0]),
        }
    }

    fn take_framing(&mut self, byte: u8) -> Result<usize, BodyError> {
        self.state = match (self.state, byte) {
            (State::Size { digits }, _) => return self.take_size(digits, byte),
            (State::SizeCr, b'\r') => State::SizeLf,
            (State::SizeLf, b'\n') if self.size == 0 => State::FirstTrailer,
            (State::SizeLf, b'\n') => State::Data,
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { digits: 0 },
            (State::FirstTrailer, b'\r') => State::LastLf,
            (State::FirstTrailer, _) => {
                self.trailers = Some(Box::new(TrailerReader::new(
                    self.trailer_bytes,
                    self.trailer_fields,
                )));
                self.state = State::Trailers;
                return Ok(0);
            }
            (State::LastLf, b'\n') => State::End,
            _ => return Err(BodyError::ChunkLineEnd),
        };
        Ok(1)
    }

    /// 1*HEXDIG. Sixteen digits, leading zeros included, are all that anyone reads the same way.
    fn take_size(&mut self, digits: u8, byte: u8) -> Result<usize, BodyError> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ if digits == 0 => return Err(BodyError::ChunkSize),
            b'\r' => {
                self.state = State::SizeLf;
                return Ok(1);
            }
            b';' | b' ' | b'\t' => {
                self.state = State::Extension { last: 0 };
                return Ok(0);
            }
            b'\n' => return Err(BodyError::ChunkLineEnd),
            _ => return Err(BodyError::ChunkSize),
        };
        if digits == 0 {
            self.size = 0;
        }
        if digits == 16 || self.size > MAX_LENGTH >> 4 {
            return Err(BodyError::ChunkSizeTooLarge);
        }
        self.size = self.size << 4 | u64::from(digit);
        self.state = State::Size { digits: digits + 1 };
        Ok(1)
    }

    fn take_data(&mut self, available: usize) -> usize {
        let len = usize::try_from(self.size)
            .unwrap_or(usize::MAX)
            .min(available);
        self.size -= len as u64;
        if self.size == 0 {
            self.state = State::DataCr;
        }
        len
    }

    /// RFC 9112 7.1.1. An extension is not understood and not passed on, only kept from hiding a line end; white space
    /// has to be followed by `;`, not by the line end.
    fn take_extension(&mut self, mut last: u8, buf: &[u8]) -> Result<usize, BodyError> {
        for (at, &byte) in buf.iter().enumerate() {
            match (last, byte) {
                (0 | 1, b' ' | b'\t') => last = 1,
                (0 | 1, b';') => last = b';',
                (0 | 1, _) => return Err(BodyError::ChunkExtension),
                (_, b'\r') => {
                    self.state = State::SizeCr;
                    return self.count_extension(at).map(|()| at);
                }
                (_, b'\n') => return Err(BodyError::ChunkLineEnd),
                (_, b' '..=b'~' | b'\t') => last = byte,
                _ => return Err(BodyError::ChunkExtension),
            }
        }
        self.state = State::Extension { last };
        self.count_extension(buf.len()).map(|()| buf.len())
    }

    fn count_extension(&mut self, bytes: usize) -> Result<(), BodyError> {
        self.extension_bytes_left = self
            .extension_bytes_left
            .checked_sub(bytes)
            .ok_or(BodyError::ChunkExtensionsTooLarge)?;
        Ok(())
    }

    fn take_trailers(&mut self, buf: &[u8]) -> Result<usize, BodyError> {
        let reader = self
            .trailers
            .as_mut()
            .expect("made when the first trailer was found");
        let used = reader.take(buf)?;
        if reader.is_whole() {
            self.state = State::End;
        }
        Ok(used)
    }
}
