//! A server of frames that does exactly what a test tells it to.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::{Session, frame, hpack};

/// A running server. Dropped, it accepts nobody any more.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Runs `script` for each connection, on a thread of its own, after the preface and with these settings sent. Its
    /// second argument is the number of the connection, from 0. When it returns, the connection is closed.
    pub fn start(
        settings: &'static [(u16, u32)],
        script: impl Fn(&mut Session, usize) + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let (connections, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped, script) = (connections.clone(), stop.clone(), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let script = script.clone();
                std::thread::spawn(move || {
                    if let Some(mut session) = Session::accept(stream, settings) {
                        script(&mut session, number);
                    }
                });
            }
        });
        Server { address, connections, stop }
    }

    /// Answers every request, once it has ended, with 200 and this body.
    pub fn answering(body: &'static str) -> Server {
        Server::start(&[], move |session, _| {
            while let Some((stream, request)) = session.next_request() {
                let length = body.len().to_string();
                let head = hpack::block(&[(":status", "200"), ("content-length", &length)]);
                let bodiless = request.field(":method") == Some("HEAD");
                let rest = if bodiless { Vec::new() } else { frame::data(stream, true, body) };
                session.send([frame::headers(stream, bodiless, head), rest].concat());
            }
        })
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}
