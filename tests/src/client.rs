//! An HTTP/1.1 client that shows exactly what came back.
//!
//! It is written for tests and shares no code with the proxy: its own reading of RFC 9112 is the second opinion. An
//! answer that does not end as its framing says is an [`Failure::Cut`], never a short body.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::PATIENCE;

/// A final answer, with the interim ones before it.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status of the final answer.
    pub status: u16,
    /// Fields of the final answer, in order.
    pub fields: Vec<(String, String)>,
    /// Its body, decoded.
    pub body: Vec<u8>,
    /// Statuses of the 1xx answers before it.
    pub interim: Vec<u16>,
    /// Trailer fields.
    pub trailers: Vec<(String, String)>,
    /// Whether the body was chunked.
    pub chunked: bool,
}

/// Why there is no whole answer.
#[derive(Debug)]
pub enum Failure {
    /// The connection ended before the first byte of an answer.
    NoAnswer(io::Error),
    /// An answer began and did not end as its framing says.
    Cut {
        /// What had arrived.
        status: u16,
        /// Bytes of body that had arrived.
        body: Vec<u8>,
    },
    /// Nothing more came, and the connection did not end either.
    Stalled {
        /// What had arrived; 0 before the head.
        status: u16,
    },
    /// It is not HTTP.
    Nonsense(String),
}

impl Response {
    /// The first field called `name`.
    pub fn field(&self, name: &str) -> Option<&str> {
        find(&self.fields, name)
    }

    /// The reason in `Proxy-Status`, where the proxy made this answer itself.
    pub fn reason(&self) -> Option<&str> {
        self.detail("reason")
    }

    /// One `key=value` of the details of `Proxy-Status`.
    pub fn detail(&self, key: &str) -> Option<&str> {
        let details = self.field("proxy-status")?.split_once("details=\"")?.1.split('"').next()?;
        details.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the connection may carry another request.
    pub fn keeps_alive(&self) -> bool {
        !self.field("connection").is_some_and(|value| value.to_ascii_lowercase().contains("close"))
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.fields {
            writeln!(f, "{name}: {value}")?;
        }
        write!(f, "\n{}", self.text())
    }
}

fn find<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    stalled: bool,
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// When nobody listens; [`Client::try_connect`] does not.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    /// Connects, or says why not.
    pub fn try_connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, received: Vec::new(), stalled: false })
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Writes `bytes` as they are.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Says that nothing more will be written.
    pub fn finish(&self) {
        // It may be closed already, which is what is wanted.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Makes one request and reads its answer.
    ///
    /// # Panics
    /// When there is no whole answer; [`Client::try_call`] does not.
    #[track_caller]
    pub fn call(&mut self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Response {
        self.try_call(method, target, fields, body).unwrap_or_else(|failure| panic!("{method} {target}: {failure:?}"))
    }

    /// Makes one request and reads its answer. `Content-Length` and `Host` are added where `fields` lacks them and
    /// they are needed.
    pub fn try_call(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, Failure> {
        let _ = self.write(request(method, target, fields, body));
        self.read_answer(method == "HEAD")
    }

    /// `GET target`.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.call("GET", target, &[], b"")
    }

    /// `POST target` with a body.
    #[track_caller]
    pub fn post(&mut self, target: &str, body: &[u8]) -> Response {
        self.call("POST", target, &[], body)
    }

    /// Reads the next final answer; `head` is true for the answer to a HEAD.
    pub fn read_answer(&mut self, head: bool) -> Result<Response, Failure> {
        let mut interim = Vec::new();
        loop {
            let (status, fields) = self.read_head()?;
            // 101 ends HTTP on this connection.
            if status == 101 || status >= 200 {
                return self.read_body(status, fields, head || status == 101, interim);
            }
            interim.push(status);
        }
    }

    /// Reads the head of an answer: its status and fields.
    pub fn read_head(&mut self) -> Result<(u16, Vec<(String, String)>), Failure> {
        let end = loop {
            if let Some(end) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            match self.fill() {
                Ok(0) if self.received.is_empty() => {
                    return Err(Failure::NoAnswer(io::ErrorKind::UnexpectedEof.into()));
                }
                Err(error) if self.received.is_empty() => return Err(Failure::NoAnswer(error)),
                Ok(0) | Err(_) => {
                    return Err(self.cut(0, Vec::new()));
                }
                Ok(_) => {}
            }
        };
        let head: Vec<u8> = self.received.drain(..end).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let nonsense = || Failure::Nonsense(text.clone());
        let mut lines = text.trim_end().split("\r\n");
        let start = lines.next().filter(|line| line.starts_with("HTTP/1.")).ok_or_else(nonsense)?;
        let status = start.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(nonsense)?;
        Ok((status, parse_fields(lines).ok_or_else(nonsense)?))
    }

    fn read_body(
        &mut self,
        status: u16,
        fields: Vec<(String, String)>,
        bodiless: bool,
        interim: Vec<u16>,
    ) -> Result<Response, Failure> {
        let mut response = Response { status, fields, body: Vec::new(), interim, trailers: Vec::new(), chunked: false };
        if bodiless || status == 204 || status == 304 {
            return Ok(response);
        }
        let chunked = response.field("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        let length = response.field("content-length").map(str::to_owned);
        if chunked {
            response.chunked = true;
            return self.read_chunks(response);
        }
        let Some(length) = length else {
            return self.read_to_end(response);
        };
        let length: usize = length.parse().map_err(|_| Failure::Nonsense(length.clone()))?;
        while self.received.len() < length {
            match self.fill() {
                Ok(0) | Err(_) => {
                    return Err(self.cut_in_buffer(status));
                }
                Ok(_) => {}
            }
        }
        response.body = self.received.drain(..length).collect();
        Ok(response)
    }

    fn read_to_end(&mut self, mut response: Response) -> Result<Response, Failure> {
        loop {
            match self.fill() {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => {
                    return Err(self.cut_in_buffer(response.status));
                }
            }
        }
        response.body = std::mem::take(&mut self.received);
        Ok(response)
    }

    fn read_chunks(&mut self, mut response: Response) -> Result<Response, Failure> {
        loop {
            let status = response.status;
            let Some(line) = self.line() else {
                return Err(self.cut(status, response.body));
            };
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| Failure::Nonsense(line.clone()))?;
            if size == 0 {
                break;
            }
            while self.received.len() < size + 2 {
                if !matches!(self.fill(), Ok(1..)) {
                    response.body.extend_from_slice(&self.received[..self.received.len().min(size)]);
                    return Err(self.cut(status, response.body));
                }
            }
            response.body.extend(self.received.drain(..size));
            self.received.drain(..2);
        }
        let mut lines = Vec::new();
        loop {
            match self.line() {
                None => {
                    return Err(self.cut(response.status, response.body));
                }
                Some(line) if line.is_empty() => break,
                Some(line) => lines.push(line),
            }
        }
        response.trailers = parse_fields(lines.iter().map(String::as_str)).unwrap_or_default();
        Ok(response)
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") {
                let line = self.received.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).ok();
            }
            if !matches!(self.fill(), Ok(1..)) {
                return None;
            }
        }
    }

    /// Waits until the other side has closed.
    ///
    /// # Panics
    /// When it sends something instead, or does neither in time.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        assert!(self.received.is_empty(), "bytes after the answer: {:?}", String::from_utf8_lossy(&self.received));
        match self.fill() {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Ok(_) => panic!("expected the end, got {:?}", String::from_utf8_lossy(&self.received)),
            Err(error) => panic!("expected the end, got {error}"),
        }
    }

    /// Reads at least one byte more, raw; 0 at the end. What arrived is in [`Client::raw`].
    pub fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = [0u8; 16 * 1024];
        let count = self.stream.read(&mut buffer).inspect_err(|error| {
            self.stalled = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        })?;
        self.received.extend_from_slice(&buffer[..count]);
        Ok(count)
    }

    /// What an answer came to that did not end as it should: silence is no end.
    fn cut(&self, status: u16, body: Vec<u8>) -> Failure {
        if self.stalled { Failure::Stalled { status } } else { Failure::Cut { status, body } }
    }

    fn cut_in_buffer(&mut self, status: u16) -> Failure {
        let body = std::mem::take(&mut self.received);
        self.cut(status, body)
    }

    /// Bytes received and not yet understood.
    pub fn raw(&self) -> &[u8] {
        &self.received
    }
}

/// The bytes of a request.
pub fn request(method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let has = |name: &str| fields.iter().any(|(field, _)| field.eq_ignore_ascii_case(name));
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    if !has("host") {
        head.push_str("Host: test.internal\r\n");
    }
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let framed = has("content-length") || has("transfer-encoding");
    if !framed && (!body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH")) {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn parse_fields<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Vec<(String, String)>> {
    lines.map(|line| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()))).collect()
}
