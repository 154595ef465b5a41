//! What a TLS connection costs while nobody uses it: ten thousand idle ones are ten thousand of these.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use plimsoll_proxy::tls::{Offer, Origination, Settings};
use plimsoll_proxy::transport::Transport;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// The system's allocator, with the bytes that each thread has taken and not given back.
struct Counting;

thread_local! {
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: passes everything on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.set(BYTES.get() + layout.size().cast_signed());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size().cast_signed());
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const CONNECTIONS: usize = 50;
const BODY: usize = 100_000;

/// On a thread of its own, so that its memory is not counted. Answers each body with one, and keeps the connection.
fn serve(config: ServerConfig) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut stream = acceptor.accept(stream).await.unwrap();
                    let mut body = vec![0; BODY];
                    while stream.read_exact(&mut body).await.is_ok() {
                        stream.write_all(&body).await.unwrap();
                    }
                });
            }
        });
    });
    address
}

async fn idle(origination: &Origination, address: std::net::SocketAddr) -> Transport {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut transport, _) = origination.handshake(stream, "fraud.test", Offer::Http1).await.unwrap();
    let mut body = vec![7; BODY];
    transport.write_all(&body).await.unwrap();
    transport.read_exact(&mut body).await.unwrap();
    assert!(transport.is_silent());
    transport
}

#[test]
fn an_idle_session_is_small() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["fraud.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let secrets = tempfile::tempdir().unwrap();
    std::fs::write(secrets.path().join("ca.pem"), certificate.pem()).unwrap();
    let settings = Settings { ca_file: Some("ca.pem".into()), ..Settings::default() };
    for version in [&TLS12, &TLS13] {
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let address = serve(config);
        let origination = Origination::new(&settings, Some(secrets.path())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let each = runtime.block_on(async {
            // What is made once, and the session that the others resume.
            let _first = idle(&origination, address).await;
            let before = BYTES.get();
            let mut all = Vec::with_capacity(CONNECTIONS);
            for _ in 0..CONNECTIONS {
                all.push(idle(&origination, address).await);
            }
            (BYTES.get() - before) / CONNECTIONS.cast_signed()
        });
        println!("{:?}: {each} bytes", version.version);
        // About 8.2 KB. Half of it is rustls's buffer for reading, which keeps 4 KiB; the rest are keys and states.
        assert!(each < 9 * 1024, "{:?}: {each} bytes", version.version);
    }
}
