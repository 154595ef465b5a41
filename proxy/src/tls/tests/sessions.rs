//! Resumption, and connections that are idle.

use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// One call; the tickets that came with the answer are read on the way.
async fn call(near: &mut Transport, far: &mut TlsStream<TcpStream>) {
    let mut bytes = [0; 4];
    near.write_all(b"ping").await.unwrap();
    far.read_exact(&mut bytes).await.unwrap();
    far.write_all(b"pong").await.unwrap();
    far.flush().await.unwrap();
    near.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"pong");
}

fn kind(near: &Transport) -> HandshakeKind {
    let Transport::Tls(session) = near else { panic!("not TLS") };
    session.connection().handshake_kind().unwrap()
}

fn tickets(mut server: ServerConfig) -> Arc<ServerConfig> {
    server.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
    Arc::new(server)
}

#[tokio::test]
async fn a_session_is_resumed() {
    let authority = Authority::new("ours");
    let leaf = authority.leaf(&["fraud.test"]);
    for version in [&TLS12, &TLS13] {
        // Another folder each time, so that each begins without sessions.
        let (origination, _secrets) = trusting(&authority);
        let server = tickets(server_config(&leaf, &[version], Clients::Any));
        let mut kinds = Vec::new();
        for _ in 0..3 {
            let (mut near, mut far) = connected(&origination, &server).await;
            call(&mut near, &mut far).await;
            kinds.push(kind(&near));
        }
        assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed], "{version:?}");
    }
}

#[tokio::test]
async fn a_session_is_resumed_with_another_offer() {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    let mut server = server_config(&authority.leaf(&["fraud.test"]), &[&TLS13], Clients::Any);
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let server = tickets(server);
    let mut near = None;
    for offer in [Offer::Http1, Offer::Http2] {
        let (made, far) = shake(&origination, "fraud.test", offer, &server).await;
        let (mut transport, negotiated) = made.unwrap();
        call(&mut transport, &mut far.unwrap()).await;
        near = Some((kind(&transport), negotiated));
    }
    assert_eq!(near, Some((HandshakeKind::Resumed, Negotiated::Http2)));
}

#[tokio::test]
async fn nothing_is_resumed_under_other_files_or_another_name() {
    let authority = Authority::new("ours");
    let [first, second] = [(); 2].map(|()| authority.leaf(&["me"]));
    let secrets = Secrets::new(&[("ca", &authority.pem), ("cert", &first.cert), ("key", &first.key)]);
    let origination = secrets.origination(&with_client(settings("ca"), "cert", "key"));
    let server =
        tickets(server_config(&authority.leaf(&["fraud.test", "b.test"]), &[&TLS13], Clients::SignedBy(&authority)));
    let (mut near, mut far) = connected(&origination, &server).await;
    call(&mut near, &mut far).await;
    let (made, _far) = shake(&origination, "b.test", Offer::Http1, &server).await;
    assert_eq!(kind(&made.unwrap().0), HandshakeKind::Full);
    secrets.put("cert", &second.cert);
    secrets.put("key", &second.key);
    origination.refresh();
    let (near, far) = connected(&origination, &server).await;
    assert_eq!(kind(&near), HandshakeKind::Full);
    assert_eq!(certificate_shown(&far), der(&second));
}

#[tokio::test]
async fn a_server_that_forgot_the_session_gets_a_full_handshake() {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    for version in [&TLS12, &TLS13] {
        let (first, restarted) = [(); 2].map(|()| authority.leaf(&["fraud.test"])).into();
        for leaf in [&first, &restarted] {
            let server = tickets(server_config(leaf, &[version], Clients::Any));
            let (mut near, mut far) = connected(&origination, &server).await;
            call(&mut near, &mut far).await;
            assert_eq!(kind(&near), HandshakeKind::Full, "{version:?}");
        }
    }
}

/// A connection of each version that is idle after one call, and a word for it.
async fn idle() -> Vec<(&'static str, Transport, TlsStream<TcpStream>)> {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    let leaf = authority.leaf(&["fraud.test"]);
    let mut idle = Vec::new();
    for (name, version) in [("1.2", &TLS12), ("1.3", &TLS13)] {
        let server = tickets(server_config(&leaf, &[version], Clients::Any));
        let (mut near, mut far) = connected(&origination, &server).await;
        call(&mut near, &mut far).await;
        idle.push((name, near, far));
    }
    idle
}

/// Both ways to ask; waits until the runtime has heard of what is known to have been sent.
async fn becomes_unusable(near: &mut Transport) {
    while near.is_idle_and_open() {
        tokio::task::yield_now().await;
    }
    assert!(!near.is_silent());
    assert!(!near.is_idle_and_open(), "it stays so");
}

#[tokio::test]
async fn an_idle_connection_is_of_use_until_the_peer_says_something() {
    for (name, mut near, mut far) in idle().await {
        assert!(near.is_idle_and_open() && near.is_silent(), "{name}");
        call(&mut near, &mut far).await;
        assert!(near.is_silent() && near.is_idle_and_open(), "{name}");
        // An orderly end of the session, while the connection stays open.
        far.get_mut().1.send_close_notify();
        far.flush().await.unwrap();
        becomes_unusable(&mut near).await;
    }
    for (_, mut near, mut far) in idle().await {
        far.write_all(b"unasked").await.unwrap();
        far.flush().await.unwrap();
        becomes_unusable(&mut near).await;
    }
    for (_, mut near, far) in idle().await {
        // The end of the connection alone.
        drop(far);
        becomes_unusable(&mut near).await;
    }
    for (_, mut near, far) in idle().await {
        let (mut socket, _) = far.into_inner();
        socket.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
        becomes_unusable(&mut near).await;
    }
    for (_, mut near, _far) in idle().await {
        near.shut_down_write();
        assert!(!near.is_idle_and_open() && !near.is_silent(), "we have ended it ourselves");
    }
}

#[tokio::test]
async fn a_ticket_is_no_news_and_is_taken_in() {
    for asks_kernel in [false, true] {
        let authority = Authority::new("ours");
        let (origination, _secrets) = trusting(&authority);
        let mut server = server_config(&authority.leaf(&["fraud.test"]), &[&TLS13], Clients::Any);
        server.send_tls13_tickets = 4;
        let server = tickets(server);
        // The server sends its tickets with the end of the handshake, and we read nothing.
        let (mut near, _far) = connected(&origination, &server).await;
        near.socket().readable().await.unwrap();
        assert!(if asks_kernel { near.is_silent() } else { near.is_idle_and_open() });
        let Transport::Tls(session) = &near else { panic!("not TLS") };
        assert_eq!(session.connection().tls13_tickets_received(), 4);
        let (again, _far) = connected(&origination, &server).await;
        assert_eq!(kind(&again), HandshakeKind::Resumed);
        assert!(near.is_silent() && near.is_idle_and_open());
    }
}

#[tokio::test]
async fn new_keys_are_no_news_and_are_answered() {
    let (_, mut near, mut far) = idle().await.pop().unwrap();
    far.get_mut().1.refresh_traffic_keys().unwrap();
    far.flush().await.unwrap();
    near.socket().readable().await.unwrap();
    assert!(near.is_silent());
    call(&mut near, &mut far).await;
    assert!(near.is_silent());
}
