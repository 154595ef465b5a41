//! One HTTP/1.1 connection to the admin or health address: small, strict, bounded in bytes and in time.

use std::future::Future;
use std::io;
use std::time::Duration;

use plimsoll_h1::{BodyDecoder, Decoded, FieldKind, Limits, RequestHead, TargetForm, decode_request, may_complete};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::Answer;
use super::events;

/// The largest body that is read.
pub(super) const MAX_BODY: usize = 1024 * 1024;

const LIMITS: Limits = Limits {
    head_bytes: 16 * 1024,
    fields: 64,
    target_bytes: 4 * 1024,
    trailer_bytes: 4 * 1024,
    chunk_extension_bytes: 1024,
};

/// How long things may take. Parameters, so that tests need not wait as long as peers do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// From the end of the head to the last byte of the body.
    pub body: Duration,
    /// For an answer whose reader does not read.
    pub write: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// For reading away what follows a refused head, so that the answer is not lost to a reset.
    pub linger: Duration,
}

impl Times {
    pub const DEFAULT: Times = Times {
        head: Duration::from_secs(5),
        body: Duration::from_secs(15),
        write: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        linger: Duration::from_secs(2),
    };
}

/// A request as pages see it.
#[derive(Debug)]
pub(super) struct Request {
    pub method: String,
    pub path: String,
    pub query: String,
    pub host: Vec<u8>,
    pub has_origin: bool,
    pub authorization: Option<Vec<u8>>,
    /// `X-Plimsoll-File`
    pub file: Option<String>,
    pub body: Vec<u8>,
}

/// What a page says.
pub(super) enum Reply {
    Answer(Answer),
    /// The connection becomes a stream of events.
    Events(events::Subscription),
}

/// Where requests go.
pub(super) trait Pages {
    /// Whether the request may be served at all; asked before its body is read.
    fn admit(&self, request: &Request) -> Result<(), Answer>;
    fn serve(&self, request: Request) -> impl Future<Output = Reply>;
}

/// Serves one connection to its end.
pub(super) async fn serve<P: Pages>(stream: TcpStream, pages: &P, times: &Times) {
    let mut connection = Connection { times: *times, stream, buffer: Vec::new(), head: RequestHead::default() };
    // The peer's faults are the peer's; it has been answered where it could be.
    let _ = connection.drive(pages).await;
}

struct Connection {
    times: Times,
    stream: TcpStream,
    buffer: Vec<u8>,
    head: RequestHead,
}

/// A request that cannot be read to its end.
enum Broken {
    /// The connection is gone or silent: nobody is there to be answered.
    Gone,
    Refused(Answer),
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Broken::Gone
    }
}

impl Connection {
    async fn drive<P: Pages>(&mut self, pages: &P) -> io::Result<()> {
        loop {
            let (request, keep_alive) = match self.request(pages).await {
                Ok(read) => read,
                Err(Broken::Gone) => return Ok(()),
                Err(Broken::Refused(answer)) => return self.refuse(&answer).await,
            };
            let head_only = request.method == "HEAD";
            match pages.serve(request).await {
                Reply::Answer(answer) => self.write(&answer.encode(head_only, !keep_alive)).await?,
                Reply::Events(subscription) => {
                    return events::stream(&mut self.stream, subscription).await;
                }
            }
            if !keep_alive {
                return self.stream.shutdown().await;
            }
        }
    }

    /// Reads one request with its body. The flag: whether another may follow.
    async fn request<P: Pages>(&mut self, pages: &P) -> Result<(Request, bool), Broken> {
        let head_length = self.read_head().await?;
        let mut request = self.parsed()?;
        pages.admit(&request).map_err(Broken::Refused)?;
        let body = BodyDecoder::new(self.head.framing, &LIMITS);
        if body.remaining_hint() > MAX_BODY as u64 {
            return Err(Broken::Refused(too_large()));
        }
        self.buffer.drain(..head_length);
        if !body.is_end() {
            if self.head.expect_continue && self.buffer.is_empty() {
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            }
            let read = timeout(self.times.body, self.read_body(body)).await;
            request.body = read.map_err(|_| late("the body"))??;
        }
        Ok((request, self.head.keep_alive))
    }

    /// Reads until `self.head` holds a head; returns its length in the buffer.
    async fn read_head(&mut self) -> Result<usize, Broken> {
        if self.buffer.is_empty() {
            match timeout(self.times.idle, self.fill()).await {
                Ok(Ok(true)) => {}
                _ => return Err(Broken::Gone),
            }
        }
        timeout(self.times.head, self.complete_head()).await.map_err(|_| late("the head"))?
    }

    async fn complete_head(&mut self) -> Result<usize, Broken> {
        let mut seen = 0;
        loop {
            if may_complete(&self.buffer, seen, &LIMITS) {
                seen = self.buffer.len();
                match decode_request(&self.buffer, &LIMITS, &mut self.head) {
                    Ok(Decoded::Complete { len }) => return Ok(len),
                    Ok(Decoded::Incomplete) => {}
                    Err(error) => {
                        return Err(Broken::Refused(Answer::error(error.status(), error.to_string())));
                    }
                }
            }
            if !self.fill().await? {
                return Err(Broken::Gone);
            }
        }
    }

    fn parsed(&self) -> Result<Request, Broken> {
        let (head, buffer) = (&self.head, &self.buffer[..]);
        if head.form != TargetForm::Origin {
            // It is no proxy: whoever sends a whole URL here took the wrong port.
            return Err(Broken::Refused(Answer::error(
                400,
                "this is the admin address: send the path alone, /status for example",
            )));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let target = text(head.path.of(buffer));
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let file = head
            .fields
            .all(FieldKind::XPlimsoll)
            .find(|field| field.name.of(buffer).eq_ignore_ascii_case(b"x-plimsoll-file"));
        // Two of them is one too many: which one is meant?
        let authorization = match head.fields.all(FieldKind::Authorization).count() {
            1 => head.fields.value(FieldKind::Authorization, buffer).map(<[u8]>::to_vec),
            _ => None,
        };
        Ok(Request {
            method: text(head.method_name.of(buffer)),
            path: path.to_owned(),
            query: query.to_owned(),
            host: head.host.of(buffer).to_vec(),
            has_origin: head.fields.contains(FieldKind::Origin),
            authorization,
            file: file.map(|field| text(field.value.of(buffer))),
            body: Vec::new(),
        })
    }

    async fn read_body(&mut self, mut decoder: BodyDecoder) -> Result<Vec<u8>, Broken> {
        let mut body = Vec::new();
        loop {
            while !self.buffer.is_empty() && !decoder.is_end() {
                let piece = decoder
                    .decode(&self.buffer)
                    .map_err(|error| Broken::Refused(Answer::error(400, error.to_string())))?;
                if body.len() + piece.len > MAX_BODY {
                    return Err(Broken::Refused(too_large()));
                }
                body.extend_from_slice(&self.buffer[piece.skip..piece.skip + piece.len]);
                self.buffer.drain(..piece.skip + piece.len);
            }
            if decoder.is_end() {
                return Ok(body);
            }
            if !self.fill().await? {
                return Err(Broken::Gone);
            }
        }
    }

    /// Reads what is there; false at the end of the stream.
    async fn fill(&mut self) -> io::Result<bool> {
        self.buffer.reserve(4 * 1024);
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(self.times.write, self.stream.write_all(bytes)).await?
    }

    /// Answers and ends the connection; what still comes in is read away for a while.
    async fn refuse(&mut self, answer: &Answer) -> io::Result<()> {
        self.write(&answer.encode(false, true)).await?;
        self.stream.shutdown().await?;
        let linger = self.times.linger;
        let read_away = async {
            loop {
                self.buffer.clear();
                if !matches!(self.fill().await, Ok(true)) {
                    return;
                }
            }
        };
        let _ = timeout(linger, read_away).await;
        Ok(())
    }
}

fn late(what: &str) -> Broken {
    Broken::Refused(Answer::error(408, format!("{what} of the request did not arrive in time")))
}

fn too_large() -> Answer {
    Answer::error(413, format!("a body has at most {MAX_BODY} bytes; is this the right file?"))
}
