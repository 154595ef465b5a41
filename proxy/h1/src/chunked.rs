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
    Extension { begun: bool },
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
        if matches!(self.state, State::Data) { self.size } else { 0 }
    }

    pub(crate) const fn class(&self) -> Class {
        match self.state {
            State::Data => Class::Data,
            State::Extension { .. } | State::Trailers => Class::Cut,
            _ => Class::Framing,
        }
    }

    pub(crate) fn trailers(&self) -> Option<&Trailers> {
        self.trailers.as_ref().filter(|_| self.is_end()).map(|reader| reader.trailers())
    }

    /// Uses up bytes of one class from the start of `buf`, which is not empty, and says how many. None are used up by
    /// the step that finds the first byte of an extension or a trailer.
    pub(crate) fn advance(&mut self, buf: &[u8]) -> Result<usize, BodyError> {
        match self.state {
            State::Data => Ok(self.take_data(buf.len())),
            State::Extension { begun } => self.take_extension(begun, buf),
            State::Trailers => self.take_trailers(buf),
            State::Size { digits } => self.take_size(digits, buf),
            State::DataCr if buf.starts_with(b"\r\n") => {
                self.state = State::Size { digits: 0 };
                Ok(2)
            }
            _ => self.take_framing(buf[0]),
        }
    }

    fn take_framing(&mut self, byte: u8) -> Result<usize, BodyError> {
        self.state = match (self.state, byte) {
            (State::SizeCr, b'\r') => State::SizeLf,
            (State::SizeLf, b'\n') if self.size == 0 => State::FirstTrailer,
            (State::SizeLf, b'\n') => State::Data,
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { digits: 0 },
            (State::FirstTrailer, b'\r') => State::LastLf,
            (State::FirstTrailer, _) => {
                self.trailers = Some(Box::new(TrailerReader::new(self.trailer_bytes, self.trailer_fields)));
                self.state = State::Trailers;
                return Ok(0);
            }
            (State::LastLf, b'\n') => State::End,
            _ => return Err(BodyError::ChunkLineEnd),
        };
        Ok(1)
    }

    /// 1*HEXDIG. Sixteen digits, leading zeros included, are all that anyone reads the same way.
    fn take_size(&mut self, mut digits: u8, buf: &[u8]) -> Result<usize, BodyError> {
        if digits == 0 {
            self.size = 0;
        }
        for (at, &byte) in buf.iter().enumerate() {
            let Some(digit) = hex_digit(byte) else {
                return self.end_size(digits, byte).map(|used| at + used);
            };
            if digits == 16 || self.size > MAX_LENGTH >> 4 {
                return Err(BodyError::ChunkSizeTooLarge);
            }
            self.size = self.size << 4 | u64::from(digit);
            digits += 1;
        }
        self.state = State::Size { digits };
        Ok(buf.len())
    }

    fn end_size(&mut self, digits: u8, byte: u8) -> Result<usize, BodyError> {
        let (state, used) = match byte {
            _ if digits == 0 => return Err(BodyError::ChunkSize),
            b'\r' => (State::SizeLf, 1),
            b';' | b' ' | b'\t' => (State::Extension { begun: false }, 0),
            b'\n' => return Err(BodyError::ChunkLineEnd),
            _ => return Err(BodyError::ChunkSize),
        };
        self.state = state;
        Ok(used)
    }

    fn take_data(&mut self, available: usize) -> usize {
        let len = usize::try_from(self.size).unwrap_or(usize::MAX).min(available);
        self.size -= len as u64;
        if self.size == 0 {
            self.state = State::DataCr;
        }
        len
    }

    /// RFC 9112 7.1.1. An extension is not understood and not passed on, only kept from hiding a line end. White space in
    /// front of it has to be followed by `;`, not by the line end.
    fn take_extension(&mut self, mut begun: bool, buf: &[u8]) -> Result<usize, BodyError> {
        for (at, &byte) in buf.iter().enumerate() {
            if begun && byte == b'\r' {
                self.extension_bytes_left -= at;
                self.state = State::SizeCr;
                return Ok(at);
            }
            if at == self.extension_bytes_left {
                return Err(BodyError::ChunkExtensionsTooLarge);
            }
            match byte {
                b' ' | b'\t' => {}
                b';' => begun = true,
                b'\n' if begun => return Err(BodyError::ChunkLineEnd),
                b'!'..=b'~' if begun => {}
                _ => return Err(BodyError::ChunkExtension),
            }
        }
        self.extension_bytes_left -= buf.len();
        self.state = State::Extension { begun };
        Ok(buf.len())
    }

    fn take_trailers(&mut self, buf: &[u8]) -> Result<usize, BodyError> {
        let reader = self.trailers.as_mut().expect("made when the first trailer was found");
        let used = reader.take(buf)?;
        if reader.is_whole() {
            self.state = State::End;
        }
        Ok(used)
    }
}

const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
