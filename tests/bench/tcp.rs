//! Bytes: bulk in each direction, and short messages there and back.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::peers::{self, Peer, Place, Speaks};
use crate::report::{self, Figures, Gate};
use crate::{Options, measure};

/// Bytes moved each way in one round, over all connections.
const BULK: u64 = 1 << 28;
/// Connections that move them together.
const BULK_CONNECTIONS: u64 = 4;
/// Connections with a message on its way.
const PING_CONNECTIONS: usize = 32;
/// Messages there and back in one round, on each of them.
const PINGS: usize = 1_000;
const MESSAGE: usize = 64;
const BLOCK: usize = 256 * 1024;

/// Runs it; true when plimsoll is within its gates.
pub fn run(options: &Options, core: usize, folder: &Path) -> bool {
    let origin = origin().expect("the origin can be bound");
    let place = Place { speaks: Speaks::Tcp, origin, core, folder };
    let peers = peers::start(place, |name| options.wants(name));
    let mut rows: Vec<Figures> = peers.iter().map(|peer| Figures::new(peer.name)).collect();
    for (round, _) in options.rounds() {
        for (peer, row) in peers.iter().zip(&mut rows) {
            let share = if round == 0 { 0.1 } else { 1.0 };
            let figures = cost(peer, share).unwrap_or_else(|error| panic!("{}: {error}", peer.name));
            if round > 0 {
                row.rounds.push(figures);
            }
        }
    }
    let title =
        format!("TCP, {BULK_CONNECTIONS} connections in bulk, {PING_CONNECTIONS} with {MESSAGE} bytes there and back");
    report::print_figures(&title, &["ms/GiB up", "ms/GiB down", "us/ping"], &rows, 3);
    let gate = |what, column| Gate { what, column, than: &["HAProxy", "Envoy"], most: 0.65 };
    report::hold(&rows, &[gate("CPU per GiB to the server", 0), gate("CPU per GiB to the caller", 1)])
}

/// One round; `share` of it for a warm-up. CPU milliseconds per GiB from callers to the server and back, microseconds
/// for each message there and back.
fn cost(peer: &Peer, share: f64) -> io::Result<Vec<f64>> {
    let bytes = (BULK as f64 * share) as u64;
    let gib = bytes as f64 / (1u64 << 30) as f64;
    let pings = (PINGS as f64 * share) as usize;
    let millis = |nanos: u64| nanos as f64 / 1e6 / gib;
    Ok(vec![
        millis(spent(peer, || bulk(peer.address, b'U', bytes))?),
        millis(spent(peer, || bulk(peer.address, b'D', bytes))?),
        spent(peer, || ping(peer.address, pings))? as f64 / 1e3 / (pings * PING_CONNECTIONS) as f64,
    ])
}

fn spent(peer: &Peer, work: impl FnOnce() -> io::Result<()>) -> io::Result<u64> {
    let before = measure::cpu_nanos(peer.pid);
    work()?;
    Ok(measure::cpu_nanos(peer.pid) - before)
}

/// Moves `bytes` one way over several connections at once.
fn bulk(target: SocketAddr, way: u8, bytes: u64) -> io::Result<()> {
    let each = bytes / BULK_CONNECTIONS;
    let movers: Vec<_> =
        (0..BULK_CONNECTIONS).map(|_| std::thread::spawn(move || move_one(target, way, each))).collect();
    movers.into_iter().try_for_each(|mover| mover.join().expect("movers do not panic"))
}

fn move_one(target: SocketAddr, way: u8, bytes: u64) -> io::Result<()> {
    let mut stream = TcpStream::connect(target)?;
    stream.write_all(&[&[way], &bytes.to_be_bytes()[..]].concat())?;
    if way == b'U' {
        fill(&mut stream, bytes)?;
        // The server says when it has everything.
        return stream.read_exact(&mut [0]);
    }
    swallow(&stream, bytes)
}

fn fill(stream: &mut TcpStream, mut bytes: u64) -> io::Result<()> {
    let block = vec![b'x'; BLOCK];
    while bytes > 0 {
        let size = bytes.min(BLOCK as u64);
        stream.write_all(&block[..usize::try_from(size).expect("at most a block")])?;
        bytes -= size;
    }
    Ok(())
}

/// Reads so many bytes without copying: the kernel drops what MSG_TRUNC asks for (tcp(7)).
fn swallow(stream: &TcpStream, mut bytes: u64) -> io::Result<()> {
    while bytes > 0 {
        let most = usize::try_from(bytes.min(4 * BLOCK as u64)).expect("at most four blocks");
        // SAFETY: with MSG_TRUNC on a TCP socket nothing is written to the buffer, which may be null.
        let got = unsafe { libc::recv(stream.as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC) };
        match got {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            1.. => bytes -= u64::try_from(got).expect("above 0"),
            _ => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

/// `rounds` messages there and back on every connection, all connections at the same time.
fn ping(target: SocketAddr, rounds: usize) -> io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..PING_CONNECTIONS {
        let mut stream = TcpStream::connect(target)?;
        stream.set_nodelay(true)?;
        stream.write_all(b"P")?;
        streams.push(stream);
    }
    let mut message = [b'm'; MESSAGE];
    for _ in 0..rounds {
        for stream in &mut streams {
            stream.write_all(&message)?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut message)?;
        }
    }
    Ok(())
}

/// Starts the server behind the proxies, on threads of its own.
pub fn origin() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A caller that is cut off shows on its own side.
            std::thread::spawn(move || serve(stream));
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut way = [0];
    stream.read_exact(&mut way)?;
    if way == *b"P" {
        let mut message = [0; MESSAGE];
        loop {
            stream.read_exact(&mut message)?;
            stream.write_all(&message)?;
        }
    }
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let length = u64::from_be_bytes(length);
    if way == *b"U" {
        swallow(&stream, length)?;
        return stream.write_all(b".");
    }
    fill(&mut stream, length)?;
    // The caller closes when it has everything: not every proxy passes on what an end overtakes.
    stream.read_exact(&mut [0])
}
