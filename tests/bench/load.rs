//! The load and the origin, in one thread and one epoll loop.
//!
//! They share a loop because they share a core: every context switch saved there is one less reason for the proxy
//! under test to wait for its load. Two ways to drive: *closed* (each connection sends its next request when it has
//! its answer: saturation) and *open* (a request every 1/rate seconds whatever has been answered: a constant rate,
//! which wrk does not have).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

const LISTENER: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// What a small JSON API answers.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n\
Content-Length: 100\r\n\r\n\
{\"id\":\"pay_1042\",\"score\":17,\"decision\":\"allow\",\"reasons\":[\"known_device\",\"usual_amount\"],\"ms\":12345}";

const REQUEST: &[u8] = b"GET /v1/scores/1042 HTTP/1.1\r\nHost: fraud.internal\r\nUser-Agent: plimsoll-bench\r\n\
Accept: application/json\r\nAccept-Encoding: identity\r\nX-Merchant: m-17\r\n\r\n";

/// How requests are timed.
#[derive(Clone, Copy)]
pub enum Pace {
    /// As fast as answers come.
    Saturated,
    /// Requests a second, evenly spaced, whatever the answers do.
    PerSecond(u32),
}

/// What a run came to.
#[derive(Default)]
pub struct Tally {
    /// Whole answers with status 200.
    pub answers: u64,
    /// Answers with another status, and connections that were lost.
    pub errors: u64,
    /// Requests that were due while every connection was busy.
    pub late: u64,
    /// Microseconds from sending to the last byte, unsorted.
    pub latencies: Vec<u32>,
}

impl Tally {
    /// The latency that `share` (0..=1) of the answers stayed within, in microseconds.
    pub fn quantile(&mut self, share: f64) -> u32 {
        if self.latencies.is_empty() {
            return 0;
        }
        self.latencies.sort_unstable();
        let last = self.latencies.len() - 1;
        self.latencies[(last as f64 * share).round() as usize]
    }
}

enum Role {
    Origin,
    Client { sent_at: Option<Instant> },
}

struct Peer {
    socket: TcpStream,
    role: Role,
    received: Vec<u8>,
}

/// An origin server, and client connections to whatever proxy stands before it.
pub struct Rig {
    epoll: Epoll,
    listener: TcpListener,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

impl Rig {
    /// Binds the origin; it answers only while a run is on.
    pub fn new() -> io::Result<Rig> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        Ok(Rig { epoll, listener, peers: Vec::new(), free: Vec::new(), buffer: vec![0; 16 * 1024] })
    }

    /// Where the origin listens.
    pub fn origin(&self) -> SocketAddr {
        self.listener.local_addr().expect("a bound listener has an address")
    }

    fn add(&mut self, socket: TcpStream, role: Role) -> io::Result<usize> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        self.epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
        self.peers[index] = Some(Peer { socket, role, received: Vec::new() });
        Ok(index)
    }

    fn remove(&mut self, index: usize) {
        self.peers[index] = None;
        self.free.push(index);
    }

    /// Runs `connections` keep-alive connections against `target` for `length`, then closes them.
    pub fn run(&mut self, target: SocketAddr, connections: usize, pace: Pace, length: Duration) -> io::Result<Tally> {
        let mut idle = VecDeque::new();
        for _ in 0..connections {
            idle.push_back(self.add(TcpStream::connect(target)?, Role::Client { sent_at: None })?);
        }
        let clients: Vec<usize> = idle.iter().copied().collect();
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK)?;
        if let Pace::PerSecond(rate) = pace {
            let every = TimeSpec::from_duration(Duration::from_secs(1) / rate);
            timer.set(Expiration::Interval(every), TimerSetTimeFlags::empty())?;
        }
        self.epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        let mut tally = Tally::default();
        let mut owed = 0;
        let end = Instant::now() + length;
        loop {
            let over = Instant::now() >= end;
            if over && idle.len() == self.alive(&clients) {
                break;
            }
            // A lost answer would otherwise hold the run for ever.
            if Instant::now() >= end + Duration::from_secs(5) {
                tally.errors += (self.alive(&clients) - idle.len()) as u64;
                break;
            }
            self.turn(&timer, &mut idle, &mut owed, &mut tally)?;
            if over {
                continue;
            }
            match pace {
                Pace::Saturated => {
                    while let Some(index) = idle.pop_front() {
                        self.send(index)?;
                    }
                }
                Pace::PerSecond(_) => {
                    while owed > 0 {
                        let Some(index) = idle.pop_front() else {
                            tally.late += 1;
                            break;
                        };
                        owed -= 1;
                        self.send(index)?;
                    }
                }
            }
        }
        self.epoll.delete(&timer)?;
        for index in clients {
            if self.peers[index].is_some() {
                self.remove(index);
            }
        }
        Ok(tally)
    }

    /// Opens `count` connections to `target`, makes one request on each in turn, and hands them over still open.
    pub fn open_idle(&mut self, target: SocketAddr, count: usize) -> io::Result<Vec<TcpStream>> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK)?;
        let mut kept = Vec::with_capacity(count);
        for _ in 0..count {
            let index = self.add(TcpStream::connect(target)?, Role::Client { sent_at: None })?;
            self.send(index)?;
            let (mut idle, mut owed, mut tally) = (VecDeque::new(), 0, Tally::default());
            while idle.is_empty() {
                self.turn(&timer, &mut idle, &mut owed, &mut tally)?;
                if tally.errors > 0 {
                    return Err(io::Error::other("a connection that should stay idle was closed or refused"));
                }
            }
            let peer = self.peers[index].take().expect("the client that was just answered");
            self.free.push(index);
            self.epoll.delete(&peer.socket)?;
            kept.push(peer.socket);
        }
        Ok(kept)
    }

    fn alive(&self, clients: &[usize]) -> usize {
        clients.iter().filter(|&&index| self.peers[index].is_some()).count()
    }

    fn send(&mut self, index: usize) -> io::Result<()> {
        let Some(Peer { socket, role: Role::Client { sent_at }, .. }) = &mut self.peers[index] else {
            return Ok(());
        };
        *sent_at = Some(Instant::now());
        socket.write_all(REQUEST)
    }

    /// One turn of the loop: origin answers, clients that have theirs go to `idle`.
    fn turn(
        &mut self,
        timer: &TimerFd,
        idle: &mut VecDeque<usize>,
        owed: &mut u64,
        tally: &mut Tally,
    ) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 256];
        let ready = match self.epoll.wait(&mut events, EpollTimeout::from(100u8)) {
            Ok(ready) => ready,
            Err(nix::errno::Errno::EINTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in &events[..ready] {
            match event.data() {
                LISTENER => {
                    let (socket, _) = self.listener.accept()?;
                    self.add(socket, Role::Origin)?;
                }
                TIMER => *owed += expirations(timer.as_fd()),
                index => self.readable(usize::try_from(index).expect("an index"), idle, tally),
            }
        }
        Ok(())
    }

    fn readable(&mut self, index: usize, idle: &mut VecDeque<usize>, tally: &mut Tally) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        match peer.socket.read(&mut self.buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Ok(0) | Err(_) => {
                if matches!(peer.role, Role::Client { .. }) {
                    tally.errors += 1;
                    idle.retain(|&other| other != index);
                }
                return self.remove(index);
            }
            Ok(count) => peer.received.extend_from_slice(&self.buffer[..count]),
        }
        match &mut peer.role {
            Role::Origin => {
                if peer.received.ends_with(b"\r\n\r\n") {
                    peer.received.clear();
                    // The proxy may have gone; its own error counts, not ours.
                    let _ = peer.socket.write_all(ANSWER);
                }
            }
            Role::Client { sent_at } => {
                let Some(whole) = answer_length(&peer.received) else {
                    return;
                };
                if peer.received.len() < whole {
                    return;
                }
                if peer.received.starts_with(b"HTTP/1.1 200") {
                    tally.answers += 1;
                } else {
                    tally.errors += 1;
                }
                if let Some(at) = sent_at.take() {
                    tally.latencies.push(u32::try_from(at.elapsed().as_micros()).unwrap_or(u32::MAX));
                }
                peer.received.clear();
                idle.push_back(index);
            }
        }
    }
}

fn expirations(timer: BorrowedFd<'_>) -> u64 {
    let mut count = [0u8; 8];
    match nix::unistd::read(timer, &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

/// Head and body of the answer in `received`, once its head is there.
fn answer_length(received: &[u8]) -> Option<usize> {
    let head = received.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&received[..head]).ok()?;
    let body = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .unwrap_or(0);
    Some(head + body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_as_long_as_it_says() {
        assert_eq!(answer_length(ANSWER), Some(ANSWER.len()));
    }
}
