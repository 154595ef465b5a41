//! The floor: what moving a request and its answer costs when nothing looks at them.
//!
//! One thread, level-triggered epoll, one upstream connection for each downstream one, two receives and two sends a
//! request. No parsing, no pool, no timer. Nothing that understands HTTP can be cheaper, so ratios against it say what
//! understanding and policy cost.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

const LISTENER: u64 = u64::MAX;

/// One direction's sink and what it could not take yet.
struct Half {
    socket: TcpStream,
    unsent: Vec<u8>,
}

/// Relays every connection to `listen` to a connection of its own to `upstream`, for ever.
pub fn run(listen: SocketAddr, upstream: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    // Halves of a pair sit beside each other, so the peer of `i` is `i ^ 1`.
    let mut halves: Vec<Option<Half>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut events = vec![EpollEvent::empty(); 256];
    let mut buffer = vec![0u8; 16 * 1024];
    loop {
        let ready = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Ok(ready) => ready,
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..ready] {
            if event.data() == LISTENER {
                let (downstream, _) = listener.accept()?;
                let first = free.pop().unwrap_or_else(|| {
                    halves.push(None);
                    halves.push(None);
                    halves.len() - 2
                });
                for (index, socket) in [downstream, TcpStream::connect(upstream)?].into_iter().enumerate() {
                    socket.set_nonblocking(true)?;
                    socket.set_nodelay(true)?;
                    let token = (first + index) as u64;
                    epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
                    halves[first + index] = Some(Half { socket, unsent: Vec::new() });
                }
                continue;
            }
            let from = usize::try_from(event.data()).expect("tokens are indices");
            if !relay(&epoll, &mut halves, from, event.events(), &mut buffer)? {
                halves[from] = None;
                halves[from ^ 1] = None;
                free.push(from & !1);
            }
        }
    }
}

/// Moves what is ready; false when the pair has come to its end.
fn relay(
    epoll: &Epoll,
    halves: &mut [Option<Half>],
    from: usize,
    flags: EpollFlags,
    buffer: &mut [u8],
) -> io::Result<bool> {
    let (low, high) = halves.split_at_mut(from | 1);
    let (even, odd) = (&mut low[from & !1], &mut high[0]);
    let (source, sink) = if from & 1 == 0 { (even, odd) } else { (odd, even) };
    let (Some(source), Some(sink)) = (source, sink) else {
        return Ok(true); // an event that was ready before its pair was closed
    };
    if flags.contains(EpollFlags::EPOLLOUT) && !flush(source)? {
        return Ok(true);
    }
    if flags.contains(EpollFlags::EPOLLOUT) {
        watch(epoll, source, from, EpollFlags::EPOLLIN)?;
        watch(epoll, sink, from ^ 1, EpollFlags::EPOLLIN)?;
        return Ok(true);
    }
    let received = match (&source.socket).read(buffer) {
        Ok(0) => return Ok(false),
        Ok(received) => received,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
        Err(_) => return Ok(false),
    };
    let sent = match (&sink.socket).write(&buffer[..received]) {
        Ok(sent) => sent,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(_) => return Ok(false),
    };
    if sent < received {
        sink.unsent.extend_from_slice(&buffer[sent..received]);
        // Reading stops until the other side has taken what there is.
        watch(epoll, source, from, EpollFlags::empty())?;
        watch(epoll, sink, from ^ 1, EpollFlags::EPOLLOUT)?;
    }
    Ok(true)
}

fn flush(half: &mut Half) -> io::Result<bool> {
    match (&half.socket).write(&half.unsent) {
        Ok(sent) => drop(half.unsent.drain(..sent)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    Ok(half.unsent.is_empty())
}

fn watch(epoll: &Epoll, half: &Half, token: usize, flags: EpollFlags) -> io::Result<()> {
    epoll.modify(&half.socket, &mut EpollEvent::new(flags, token as u64))?;
    Ok(())
}
