//! A peer that writes any frame it likes and sees every frame it gets.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const UNKNOWN: u8 = 0xfa;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self { kind, flags, stream, payload: payload.into() }
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.payload.len() as u32).to_be_bytes()[1..]);
        out.extend_from_slice(&[self.kind, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.payload);
    }

    /// The error code of a RST_STREAM or GOAWAY.
    pub fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A header block of literals that are never indexed (RFC 7541 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        put_string(name, &mut out);
        put_string(value, &mut out);
    }
    out
}

fn put_string(text: &str, out: &mut Vec<u8>) {
    let mut len = text.len();
    if len < 127 {
        out.push(len as u8);
    } else {
        out.push(127);
        len -= 127;
        while len >= 128 {
            out.push((len % 128) as u8 | 128);
            len /= 128;
        }
        out.push(len as u8);
    }
    out.extend_from_slice(text.as_bytes());
}

pub fn get(stream: u32) -> Frame {
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", "/")];
    Frame::new(HEADERS, END_HEADERS | END_STREAM, stream, block(&fields))
}

pub fn post(stream: u32, fields: &[(&str, &str)]) -> Frame {
    let all = [&[(":method", "POST"), (":scheme", "http"), (":authority", "a.test"), (":path", "/")], fields].concat();
    Frame::new(HEADERS, END_HEADERS, stream, block(&all))
}

pub fn reset(stream: u32, code: u32) -> Frame {
    Frame::new(RST_STREAM, 0, stream, code.to_be_bytes())
}

pub struct Raw {
    pub stream: TcpStream,
}

impl Raw {
    /// The calling side, greeted and settled.
    pub async fn caller(mut stream: TcpStream) -> Self {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut raw = Self { stream };
        raw.send(&[Frame::new(SETTINGS, 0, 0, []), Frame::new(SETTINGS, ACK, 0, [])]).await;
        raw
    }

    /// The called side, greeted and settled.
    pub async fn endpoint(mut stream: TcpStream) -> Self {
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        let mut raw = Self { stream };
        raw.send(&[Frame::new(SETTINGS, 0, 0, []), Frame::new(SETTINGS, ACK, 0, [])]).await;
        raw
    }

    /// Writes; a peer that has closed is found out by reading.
    pub async fn send(&mut self, frames: &[Frame]) {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.put(&mut bytes));
        let _ = self.stream.write_all(&bytes).await;
    }

    /// The next frame; `None` when the peer has closed.
    pub async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of this kind.
    pub async fn find(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().await.expect("the peer has closed");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// How the connection was ended: the code of the last GOAWAY before its end.
    pub async fn end(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next().await {
            if frame.kind == GOAWAY {
                code = Some(frame.code());
            }
        }
        code
    }
}
