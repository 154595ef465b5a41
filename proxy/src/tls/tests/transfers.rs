//! Bytes through a session: small buffers, ends in order and ends that are cuts.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::*;

/// A session over sockets that hold little, so that both sides meet full ones.
async fn narrow(version: &'static SupportedProtocolVersion) -> (Transport, TlsStream<TcpStream>) {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    let server = server_config(&authority.leaf(&["fraud.test"]), &[version], Clients::Any);
    let listening = TcpSocket::new_v4().unwrap();
    listening.set_recv_buffer_size(4096).unwrap();
    listening.set_send_buffer_size(4096).unwrap();
    listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listening.listen(1).unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.set_send_buffer_size(4096).unwrap();
    let (near, far) = tokio::join!(socket.connect(listener.local_addr().unwrap()), listener.accept());
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let (near, far) = tokio::join!(
        origination.handshake(near.unwrap(), "fraud.test", Offer::Nothing),
        acceptor.accept(far.unwrap().0)
    );
    (near.unwrap().0, far.unwrap())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 % 251) as u8).collect()
}

async fn read_to_end(reader: &mut (impl AsyncRead + Unpin)) -> (Vec<u8>, std::io::Result<usize>) {
    let mut bytes = Vec::new();
    let end = reader.read_to_end(&mut bytes).await;
    (bytes, end)
}

/// Sends without ever flushing, as the exchange does.
async fn send(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    let mut sent = 0;
    while sent < bytes.len() {
        let (first, second) = bytes[sent..].split_at((bytes.len() - sent).min(1000));
        sent +=
            poll_fn(|cx| Pin::new(&mut *writer).poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(second)]))
                .await
                .unwrap();
    }
}

#[tokio::test]
async fn much_goes_both_ways_at_once_in_one_task_and_in_two() {
    let bytes = pattern(3 << 20);
    for version in [&TLS12, &TLS13] {
        for tasks in [1, 2] {
            let (near, far) = narrow(version).await;
            let (mut near_in, mut near_out) = tokio::io::split(near);
            let (mut far_in, mut far_out) = tokio::io::split(far);
            let upward = bytes.clone();
            let writing = async move {
                send(&mut near_out, &upward).await;
                near_out.shutdown().await.unwrap();
            };
            let downward = bytes.clone();
            let server = async move {
                far_out.write_all(&downward).await.unwrap();
                far_out.shutdown().await.unwrap();
            };
            let reading = async move { read_to_end(&mut near_in).await };
            let ((), (back, end), (there, their_end)) = if tasks == 1 {
                let (wrote, read, (), there) = tokio::join!(writing, reading, server, read_to_end(&mut far_in));
                (wrote, read, there)
            } else {
                let writing = tokio::spawn(writing);
                let (read, (), there) = tokio::join!(reading, server, read_to_end(&mut far_in));
                (writing.await.unwrap(), read, there)
            };
            assert!(back == bytes && there == bytes, "{version:?}");
            assert_eq!((end.unwrap(), their_end.unwrap()), (bytes.len(), bytes.len()));
        }
    }
}

#[tokio::test]
async fn what_is_written_is_with_the_kernel() {
    let (mut near, mut far) = narrow(&TLS13).await;
    let mut bytes = [0; 5];
    send(&mut near, b"hello").await;
    // Nobody flushes, reads or writes on this side.
    far.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
}

/// Writes until the socket takes no more; says how many bytes were told as written.
async fn fill(near: &mut Transport, bytes: &[u8]) -> usize {
    let mut told = 0;
    let mut refusals = 0;
    // What the peer's kernel takes may make room for some more; it ends when nobody reads.
    while refusals < 100 {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut *near).poll_write(&mut cx, &bytes[told..]) {
            Poll::Ready(written) => told += written.unwrap(),
            Poll::Pending => refusals += 1,
        }
        tokio::task::yield_now().await;
    }
    told
}

#[tokio::test]
async fn the_end_is_not_lost_when_the_socket_is_full() {
    for version in [&TLS12, &TLS13] {
        for reads in [true, false] {
            let (mut near, mut far) = narrow(version).await;
            let bytes = pattern(4 << 20);
            let told = fill(&mut near, &bytes).await;
            assert!(told < bytes.len());
            near.shut_down_write();
            let ending = async {
                if reads {
                    assert_eq!(near.read_u8().await.unwrap(), b'!');
                } else {
                    near.shutdown().await.unwrap();
                }
            };
            let server = async {
                let (there, end) = read_to_end(&mut far).await;
                assert_eq!(end.unwrap(), there.len(), "an orderly end");
                assert!(there.len() > told, "the record that did not fit went out too");
                assert!(there.len() <= told + 16 * 1024, "and it was all that was held");
                assert!(bytes.starts_with(&there));
                far.write_all(b"!").await.unwrap();
                far.flush().await.unwrap();
            };
            tokio::join!(ending, server);
            let mut cx = Context::from_waker(Waker::noop());
            let Poll::Ready(Err(error)) = Pin::new(&mut near).poll_write(&mut cx, b"more") else {
                panic!("nothing can be written after the end")
            };
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
    }
}

#[tokio::test]
async fn one_side_ends_and_the_other_goes_on() {
    let (mut near, mut far) = narrow(&TLS13).await;
    send(&mut near, b"the question").await;
    near.shut_down_write();
    let (question, end) = read_to_end(&mut far).await;
    assert_eq!((&*question, end.unwrap()), (&b"the question"[..], 12));
    let answer = pattern(200_000);
    let (wrote, (read, end)) = tokio::join!(
        async {
            far.write_all(&answer).await.unwrap();
            far.shutdown().await.unwrap();
        },
        read_to_end(&mut near)
    );
    let () = wrote;
    assert_eq!(end.unwrap(), answer.len());
    assert!(read == answer);

    let (mut near, mut far) = narrow(&TLS13).await;
    far.write_all(b"an end of the server's").await.unwrap();
    far.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut near).await.1.unwrap(), 22);
    send(&mut near, b"still heard").await;
    near.shut_down_write();
    // The server's library reads on after its own close_notify.
    assert_eq!(read_to_end(&mut far).await.0, b"still heard");
}

#[tokio::test]
async fn a_cut_is_no_end() {
    for version in [&TLS12, &TLS13] {
        let (mut near, mut far) = narrow(version).await;
        far.write_all(b"the half of it").await.unwrap();
        far.flush().await.unwrap();
        // The connection ends, the session does not.
        far.get_mut().0.shutdown().await.unwrap();
        let (read, end) = read_to_end(&mut near).await;
        assert_eq!(read, b"the half of it");
        let error = end.unwrap_err();
        assert_eq!((error.kind(), TlsError::of(&error)), (ErrorKind::UnexpectedEof, Some(&TlsError::Truncated)));
        let again = near.read_u8().await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::UnexpectedEof, "it stays one");
    }
}

#[tokio::test]
async fn what_does_not_decrypt_is_an_error_and_stays_one() {
    let (mut near, mut far) = narrow(&TLS13).await;
    far.write_all(b"well").await.unwrap();
    far.flush().await.unwrap();
    let (mut socket, _session) = far.into_inner();
    socket.write_all(b"\x17\x03\x03\x00\x20................................").await.unwrap();
    let (read, end) = read_to_end(&mut near).await;
    assert_eq!(read, b"well");
    insta::assert_snapshot!(end.unwrap_err(), @"TLS with the endpoint failed: cannot decrypt peer's message");
    assert!(near.poll_read_ready(&mut Context::from_waker(Waker::noop())).is_ready());
    near.read_u8().await.unwrap_err();
    assert!(!near.is_idle_and_open());
}

#[tokio::test]
async fn what_is_decrypted_shows_as_readable() {
    let (mut near, mut far) = narrow(&TLS13).await;
    far.write_all(b"some more than one byte").await.unwrap();
    far.flush().await.unwrap();
    assert_eq!(near.read_u8().await.unwrap(), b's');
    // The socket is empty by now.
    let mut cx = Context::from_waker(Waker::noop());
    assert!(near.poll_read_ready(&mut cx).is_ready());
    let mut rest = vec![0; 22];
    near.read_exact(&mut rest).await.unwrap();
    while near.poll_read_ready(&mut cx).is_ready() {
        let mut byte = [0];
        let mut buf = tokio::io::ReadBuf::new(&mut byte);
        assert!(Pin::new(&mut near).poll_read(&mut cx, &mut buf).is_pending());
    }
    far.shutdown().await.unwrap();
    poll_fn(|cx| near.poll_read_ready(cx)).await.unwrap();
    assert_eq!(near.read(&mut [0]).await.unwrap(), 0);
    assert!(near.poll_read_ready(&mut cx).is_ready(), "an end stays readable");
}

#[tokio::test]
async fn what_was_said_before_a_write_failed_is_why() {
    let authority = Authority::new("ours");
    let (origination, _secrets) = trusting(&authority);
    let server = server_config(&authority.leaf(&["fraud.test"]), &[&TLS13], Clients::SignedBy(&authority));
    let (made, far) = shake(&origination, "fraud.test", Offer::Nothing, &Arc::new(server)).await;
    let (mut near, _) = made.unwrap();
    let refusal = near.refusal().unwrap();
    // The server has sent its alert and is gone: the first write is answered by a reset, and the next one fails.
    far.unwrap_err();
    let error = loop {
        if let Err(error) = near.write_all(b"never read").await {
            break error;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(TlsError::of(&error), Some(&TlsError::ClientCertificateRequired));
    assert_eq!(refusal.get(), Some(&TlsError::ClientCertificateRequired));
}
