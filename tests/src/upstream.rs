//! A dependency that does exactly what a test tells it to, and counts exactly what reaches it.
//!
//! A handler looks at each request and answers with a script: bytes, waits, resets, silence. In-flight calls are
//! counted from the moment a request has been read until just *before* the last byte of its script is written: once
//! that byte is out, the proxy may rightly send the next call, and counting later would see one too many.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Target, as written.
    pub target: String,
    /// Fields in order.
    pub fields: Vec<(String, String)>,
    /// Body, decoded; empty when the script asked not to read it.
    pub body: Vec<u8>,
    /// The number of its connection, from 0.
    pub connection: usize,
    /// The number of this request on its connection, from 0.
    pub nth: usize,
    /// Requests before it on all connections.
    pub before: usize,
}

impl Request {
    /// The first field called `name`.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// One step of an answer.
#[derive(Clone)]
pub enum Step {
    /// Write these bytes.
    Bytes(Vec<u8>),
    /// Write this many bytes, as fast as they are taken.
    Fill(usize),
    /// Wait; ended early when the caller goes away.
    Wait(Duration),
    /// Wait until a gate opens; ended early when the caller goes away.
    Gate(Gate),
    /// Wait until a gate opens without looking at the socket: nothing is read, and nobody's leaving is noticed.
    Ignore(Gate),
    /// Say nothing until the caller goes away.
    Hang,
    /// Close with a FIN.
    Close,
    /// Close with a RST.
    Reset,
    /// Write back whatever comes, until the caller closes.
    Echo,
}

/// What a server does with one request.
pub type Script = Vec<Step>;

/// `200` with a body.
pub fn ok(body: &str) -> Script {
    answer(200, &[], body)
}

/// A whole answer, in one write.
pub fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Script {
    let mut text = format!("HTTP/1.1 {status} Some\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    vec![Step::Bytes(text.into_bytes())]
}

/// A script that begins by waiting.
pub fn after(wait: Duration, mut script: Script) -> Script {
    script.insert(0, Step::Wait(wait));
    script
}

/// A script that begins when `gate` opens.
pub fn behind(gate: &Gate, mut script: Script) -> Script {
    script.insert(0, Step::Gate(gate.clone()));
    script
}

/// Raw text.
pub fn raw(text: &str) -> Step {
    Step::Bytes(text.as_bytes().to_vec())
}

/// Holds answers back until a test opens it.
#[derive(Clone, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// Lets everyone through, from now on.
    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    open: AtomicUsize,
    requests: AtomicUsize,
    in_flight: AtomicUsize,
    most: AtomicUsize,
    abandoned: AtomicUsize,
}

type Handler = dyn Fn(&Request) -> Script + Send + Sync;

struct Shared {
    handler: Box<Handler>,
    wants_body: bool,
    counts: Counts,
    seen: Mutex<Vec<Request>>,
    changed: Condvar,
    stop: AtomicBool,
    close_idle_after: Mutex<Option<Duration>>,
}

/// A running server. Dropped, it stops.
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

/// Requests remembered; enough for every test that looks at single ones.
const REMEMBERED: usize = 20_000;

impl Upstream {
    /// Serves `handler` on a free port of 127.0.0.1, bodies read before it is asked.
    pub fn start(handler: impl Fn(&Request) -> Script + Send + Sync + 'static) -> Upstream {
        Upstream::bind("127.0.0.1:0".parse().expect("an address"), true, handler)
    }

    /// Serves `handler`, asked as soon as a head is there; bodies are left in the socket.
    pub fn start_early(handler: impl Fn(&Request) -> Script + Send + Sync + 'static) -> Upstream {
        Upstream::bind("127.0.0.1:0".parse().expect("an address"), false, handler)
    }

    /// Serves `handler` at `address`.
    ///
    /// # Panics
    /// When it cannot be bound.
    pub fn bind(
        address: SocketAddr,
        wants_body: bool,
        handler: impl Fn(&Request) -> Script + Send + Sync + 'static,
    ) -> Upstream {
        let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("cannot bind {address}: {error}"));
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            wants_body,
            counts: Counts::default(),
            seen: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            close_idle_after: Mutex::default(),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || accept(&listener, &accepting));
        Upstream { address, shared }
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.counts.connections.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub fn open_connections(&self) -> usize {
        self.shared.counts.open.load(Ordering::SeqCst)
    }

    /// Requests whose head has arrived.
    pub fn requests(&self) -> usize {
        self.shared.counts.requests.load(Ordering::SeqCst)
    }

    /// Calls in flight now.
    pub fn in_flight(&self) -> usize {
        self.shared.counts.in_flight.load(Ordering::SeqCst)
    }

    /// The most calls that were ever in flight together.
    pub fn most_in_flight(&self) -> usize {
        self.shared.counts.most.load(Ordering::SeqCst)
    }

    /// Scripts that were not ended because the caller went away.
    pub fn abandoned(&self) -> usize {
        self.shared.counts.abandoned.load(Ordering::SeqCst)
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Request> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes connections that have waited this long for a request.
    pub fn close_idle_after(&self, idle: Duration) {
        *self.shared.close_idle_after.lock().unwrap_or_else(PoisonError::into_inner) = Some(idle);
    }

    /// Waits for the request number `count` (1 = the first).
    ///
    /// # Panics
    /// When it does not come.
    #[track_caller]
    pub fn wait_for_requests(&self, count: usize) {
        let seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = self.shared.changed.wait_timeout_while(seen, crate::PATIENCE, |_| self.requests() < count);
        let (_seen, waited) = enough.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "only {} of {count} requests came", self.requests());
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let number = shared.counts.connections.fetch_add(1, Ordering::SeqCst);
        let shared = shared.clone();
        let serve = move || {
            shared.counts.open.fetch_add(1, Ordering::SeqCst);
            let mut connection = Connection { stream, shared: shared.clone(), received: Vec::new(), number };
            connection.serve();
            shared.counts.open.fetch_sub(1, Ordering::SeqCst);
        };
        // Hundreds of them must fit: the stack holds one small buffer.
        std::thread::Builder::new().stack_size(256 * 1024).spawn(serve).expect("a thread can be started");
    }
}

struct Connection {
    stream: TcpStream,
    shared: Arc<Shared>,
    received: Vec<u8>,
    number: usize,
}

/// Whether the connection lives on after a script.
#[derive(PartialEq)]
enum After {
    NextRequest,
    Closed,
    Abandoned,
}

impl Connection {
    fn serve(&mut self) {
        let _ = self.stream.set_nodelay(true);
        let mut nth = 0;
        while let Some(mut request) = self.read_request(nth) {
            let shared = self.shared.clone();
            let counts = &shared.counts;
            request.before = counts.requests.fetch_add(1, Ordering::SeqCst);
            let now = counts.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            counts.most.fetch_max(now, Ordering::SeqCst);
            self.remember(&request);
            let script = (shared.handler)(&request);
            let mut counted = true;
            let after = self.play(&script, &mut counted);
            if counted {
                counts.in_flight.fetch_sub(1, Ordering::SeqCst);
            }
            if after == After::Abandoned {
                counts.abandoned.fetch_add(1, Ordering::SeqCst);
            }
            if after != After::NextRequest {
                return;
            }
            nth += 1;
        }
    }

    fn remember(&self, request: &Request) {
        let mut seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < REMEMBERED {
            seen.push(request.clone());
        }
        drop(seen);
        self.shared.changed.notify_all();
    }

    fn read_request(&mut self, nth: usize) -> Option<Request> {
        let end = loop {
            if let Some(end) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            let idle = *self.shared.close_idle_after.lock().unwrap_or_else(PoisonError::into_inner);
            self.fill(idle)?;
        };
        let head: Vec<u8> = self.received.drain(..end).collect();
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.trim_end().split("\r\n");
        let mut start = lines.next()?.split(' ');
        let (method, target) = (start.next()?.to_owned(), start.next()?.to_owned());
        let fields = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut request = Request { method, target, fields, body: Vec::new(), connection: self.number, nth, before: 0 };
        if self.shared.wants_body {
            request.body = self.read_body(&request)?;
        }
        Some(request)
    }

    fn read_body(&mut self, request: &Request) -> Option<Vec<u8>> {
        if request.field("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
        }
        if let Some(length) = request.field("content-length") {
            let length = length.parse().ok()?;
            while self.received.len() < length {
                self.fill(None)?;
            }
            return Some(self.received.drain(..length).collect());
        }
        let mut body = Vec::new();
        if request.field("transfer-encoding").is_none() {
            return Some(body);
        }
        loop {
            let size = usize::from_str_radix(self.line()?.split(';').next()?.trim(), 16).ok()?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Some(body);
            }
            while self.received.len() < size + 2 {
                self.fill(None)?;
            }
            body.extend(self.received.drain(..size));
            self.received.drain(..2);
        }
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") {
                return String::from_utf8(self.received.drain(..end + 2).take(end).collect()).ok();
            }
            self.fill(None)?;
        }
    }

    /// Reads more; none when the caller has gone, the server stops, or `idle` has passed.
    fn fill(&mut self, idle: Option<Duration>) -> Option<()> {
        let end = idle.map(|idle| Instant::now() + idle);
        let mut buffer = [0u8; 16 * 1024];
        loop {
            if self.shared.stop.load(Ordering::SeqCst) || end.is_some_and(|end| Instant::now() >= end) {
                return None;
            }
            if !self.readable(Duration::from_millis(if idle.is_some() { 5 } else { 50 })) {
                continue;
            }
            let count = self.stream.read(&mut buffer).ok().filter(|&count| count > 0)?;
            self.received.extend_from_slice(&buffer[..count]);
            return Some(());
        }
    }

    fn readable(&self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::from(u16::try_from(patience.as_millis()).unwrap_or(u16::MAX));
        matches!(poll(&mut fds, patience), Ok(1..))
    }

    fn play(&mut self, script: &[Step], counted: &mut bool) -> After {
        let last_write = script.iter().rposition(|step| matches!(step, Step::Bytes(_) | Step::Fill(_)));
        for (index, step) in script.iter().enumerate() {
            let is_last = Some(index) == last_write && index + 1 == script.len();
            if is_last && *counted {
                self.shared.counts.in_flight.fetch_sub(1, Ordering::SeqCst);
                *counted = false;
            }
            let after = self.step(step);
            if after != After::NextRequest {
                return after;
            }
        }
        After::NextRequest
    }

    fn step(&mut self, step: &Step) -> After {
        match step {
            Step::Bytes(bytes) => match self.stream.write_all(bytes) {
                Ok(()) => After::NextRequest,
                Err(_) => After::Abandoned,
            },
            Step::Fill(count) => self.write_fill(*count),
            Step::Wait(wait) => {
                let end = Instant::now() + *wait;
                self.wait_until(|| Instant::now() >= end, Some(end))
            }
            Step::Gate(gate) => self.wait_until(|| gate.0.load(Ordering::SeqCst), None),
            Step::Ignore(gate) => {
                while !gate.0.load(Ordering::SeqCst) && !self.shared.stop.load(Ordering::SeqCst) {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                After::NextRequest
            }
            Step::Hang => self.wait_until(|| false, None),
            Step::Close => {
                let _ = self.stream.shutdown(std::net::Shutdown::Both);
                After::Closed
            }
            Step::Reset => {
                let socket = socket2::SockRef::from(&self.stream);
                let _ = socket.set_linger(Some(Duration::ZERO));
                After::Closed
            }
            Step::Echo => self.echo(),
        }
    }

    fn echo(&mut self) -> After {
        loop {
            let received = std::mem::take(&mut self.received);
            if self.stream.write_all(&received).is_err() || self.fill(None).is_none() {
                return After::Closed;
            }
        }
    }

    fn write_fill(&mut self, count: usize) -> After {
        let block = [b'x'; 16 * 1024];
        let mut left = count;
        while left > 0 {
            let size = left.min(block.len());
            if self.stream.write_all(&block[..size]).is_err() {
                return After::Abandoned;
            }
            left -= size;
        }
        After::NextRequest
    }

    /// Waits for `done`, and notices a caller that goes away meanwhile.
    fn wait_until(&mut self, done: impl Fn() -> bool, end: Option<Instant>) -> After {
        let mut buffer = [0u8; 4096];
        loop {
            if done() {
                return After::NextRequest;
            }
            if self.shared.stop.load(Ordering::SeqCst) {
                return After::Closed;
            }
            let left = end.map_or(Duration::from_millis(5), |end| end.saturating_duration_since(Instant::now()));
            if !self.readable(left.min(Duration::from_millis(5))) {
                continue;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return After::Abandoned,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return After::Abandoned,
            }
        }
    }
}
