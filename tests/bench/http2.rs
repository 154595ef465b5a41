//! HTTP/2 with prior knowledge: h2load before the proxies, and an origin that costs next to nothing behind them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use plimsoll_tests::h2::frame::{self, Frame, setting};
use plimsoll_tests::h2::{PREFACE, hpack};
use plimsoll_tests::process::require_program;

use crate::peers::{self, Peer, Place, Speaks};
use crate::report::{self, Figures, Gate};
use crate::{Options, measure};

const CONNECTIONS: usize = 8;
/// On each of them.
const STREAMS: usize = 16;

/// What a small JSON API answers.
const BODY: &[u8] =
    b"{\"id\":\"pay_1042\",\"score\":17,\"decision\":\"allow\",\"reasons\":[\"known_device\",\"usual_amount\"],\"ms\":12345}";

/// Runs it; true when plimsoll is within its gates.
pub fn run(options: &Options, core: usize, folder: &Path) -> bool {
    let origin = origin().expect("the origin can be bound");
    let place = Place { speaks: Speaks::Http2, origin, core, folder };
    let peers = peers::start(place, |name| options.wants(name));
    let mut rows: Vec<Figures> = peers.iter().map(|peer| Figures::new(peer.name)).collect();
    let mut made = vec![0; peers.len()];
    for (round, length) in options.rounds() {
        for ((peer, row), made) in peers.iter().zip(&mut rows).zip(&mut made) {
            let (figures, calls) = cost(peer, length);
            *made += calls;
            if round > 0 {
                row.rounds.push(figures);
            }
        }
    }
    for (peer, made) in peers.iter().zip(made) {
        peer.assert_counted(made);
    }
    let title = format!("HTTP/2, {CONNECTIONS} connections with {STREAMS} streams each, saturated");
    report::print_figures(&title, &["us CPU/req", "req/s", "mean us", "errors"], &rows, 1);
    report::hold(&rows, &[Gate { what: "CPU per HTTP/2 request", column: 0, than: &["Envoy"], most: 0.35 }])
}

/// One round of one proxy, and the calls that were answered.
fn cost(peer: &Peer, length: Duration) -> (Vec<f64>, u64) {
    let mut command = Command::new(require_program("h2load"));
    command.args(["-t", "1", "-c", &CONNECTIONS.to_string(), "-m", &STREAMS.to_string()]);
    command.args([
        "-D",
        &length.as_secs().max(1).to_string(),
        "-H",
        "accept: application/json",
        "-H",
        "x-merchant: m-17",
    ]);
    command.arg(format!("http://{}/v1/scores/1042", peer.address));
    let before = measure::cpu_nanos(peer.pid);
    let begun = Instant::now();
    let output = command.output().expect("h2load can be run");
    let took = begun.elapsed();
    let nanos = measure::cpu_nanos(peer.pid) - before;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // Each status line counts what was answered so; at the end of a timed run what is in flight is given up.
    let (calls, errors) = answers(&said).unwrap_or_else(|| panic!("{}: h2load said:\n{said}", peer.name));
    let each = nanos as f64 / 1_000.0 / calls.max(1) as f64;
    (vec![each, calls as f64 / took.as_secs_f64(), mean_latency(&said), errors as f64], calls)
}

/// 2xx answers, and all others, of `status codes: 123 2xx, 0 3xx, 0 4xx, 0 5xx`.
fn answers(said: &str) -> Option<(u64, u64)> {
    let line = said.lines().find_map(|line| line.strip_prefix("status codes: "))?;
    let counts: Option<Vec<u64>> = line.split(", ").map(|part| part.split(' ').next()?.parse().ok()).collect();
    let counts = counts?;
    Some((*counts.first()?, counts[1..].iter().sum()))
}

/// The mean of `time for request: min max mean sd`, in microseconds; h2load shows no quantiles.
fn mean_latency(said: &str) -> f64 {
    let line = said.lines().find_map(|line| line.strip_prefix("time for request:")).unwrap_or_default();
    let mean = line.split_whitespace().nth(2).unwrap_or_default();
    let split = mean.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(mean.len());
    let scale = match &mean[split..] {
        "us" => 1.0,
        "ms" => 1_000.0,
        _ => 1_000_000.0,
    };
    mean[..split].parse::<f64>().unwrap_or(f64::NAN) * scale
}

/// Starts the origin on a thread of its own.
pub fn origin() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || serve(&listener).expect("the origin runs as long as the benchmark"));
    Ok(address)
}

/// A connection of the origin. It never decodes a request: each HEADERS with END_STREAM is answered the same way.
struct Caller {
    socket: TcpStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    window: usize,
    /// Streams whose answer waits for the connection's window.
    waiting: Vec<u32>,
    /// Whether the fields of answers are in the caller's table.
    indexed: bool,
    may_index: bool,
}

fn serve(listener: &TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, u64::MAX))?;
    let mut callers: Vec<Option<Caller>> = Vec::new();
    let mut events = vec![EpollEvent::empty(); 64];
    let mut buffer = vec![0u8; 64 * 1024];
    loop {
        let ready = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) => continue,
            ready => ready?,
        };
        for event in &events[..ready] {
            if event.data() == u64::MAX {
                let (socket, _) = listener.accept()?;
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
                epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, callers.len() as u64))?;
                callers.push(Some(Caller::new(socket)));
                continue;
            }
            let index = usize::try_from(event.data()).expect("an index");
            let Some(caller) = &mut callers[index] else { continue };
            match caller.turn(&mut buffer) {
                Some(waits) => {
                    let more = if waits { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
                    epoll.modify(&caller.socket, &mut EpollEvent::new(EpollFlags::EPOLLIN | more, event.data()))?;
                }
                None => callers[index] = None,
            }
        }
    }
}

impl Caller {
    fn new(socket: TcpStream) -> Caller {
        let unsent = frame::settings(&[(setting::MAX_CONCURRENT_STREAMS, 1_000)]);
        Caller {
            socket,
            received: Vec::new(),
            unsent,
            window: 65_535,
            waiting: Vec::new(),
            indexed: false,
            may_index: true,
        }
    }

    /// Reads and answers once; whether it waits for room to write, none when the caller has gone.
    fn turn(&mut self, buffer: &mut [u8]) -> Option<bool> {
        match self.socket.read(buffer) {
            Ok(0) => return None,
            Ok(count) => self.received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        let mut read = if self.received.starts_with(PREFACE) { PREFACE.len() } else { 0 };
        while let Some((frame, length)) = Frame::parse(&self.received[read..]) {
            read += length;
            self.handle(&frame);
        }
        self.received.drain(..read);
        while self.window >= BODY.len() && !self.waiting.is_empty() {
            let stream = self.waiting.remove(0);
            self.answer(stream);
        }
        match self.socket.write(&self.unsent) {
            Ok(sent) => drop(self.unsent.drain(..sent)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        Some(!self.unsent.is_empty())
    }

    fn handle(&mut self, frame: &Frame) {
        match frame.kind {
            frame::HEADERS if frame.has(frame::END_STREAM) => self.waiting.push(frame.stream),
            frame::SETTINGS if !frame.has(frame::ACK) => {
                let small = |six: &[u8]| six[..2] == [0, 1] && six[2..4] == [0, 0] && six[4] < 0x10;
                self.may_index &= !frame.payload.chunks_exact(6).any(small);
                self.unsent.extend(frame::settings_ack());
            }
            frame::PING if !frame.has(frame::ACK) => {
                self.unsent.extend(frame::frame(frame::PING, frame::ACK, 0, &frame.payload));
            }
            frame::WINDOW_UPDATE if frame.stream == 0 => self.window += frame.number(0) as usize,
            _ => {}
        }
    }

    fn answer(&mut self, stream: u32) {
        self.window -= BODY.len();
        let block = if self.indexed {
            vec![0x88, 0xc0, 0xbf, 0xbe]
        } else {
            let first = if self.may_index { 0x40 } else { 0 };
            self.indexed = self.may_index;
            let length = BODY.len().to_string();
            let fields =
                [("content-type", "application/json"), ("cache-control", "no-store"), ("content-length", &length)];
            let literals =
                fields.iter().flat_map(|(name, value)| hpack::literal(first, name.as_bytes(), value.as_bytes()));
            [0x88].into_iter().chain(literals).collect()
        };
        self.unsent.extend(frame::headers(stream, false, block));
        self.unsent.extend(frame::data(stream, true, BODY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_h2load_says_is_read() {
        let said = "status codes: 120 2xx, 0 3xx, 1 4xx, 2 5xx\n\
                    time for request:       27us      1.20ms       1.50ms       11us    81.32%\n";
        assert_eq!(answers(said), Some((120, 3)));
        assert_eq!(mean_latency(said), 1_500.0);
    }
}
