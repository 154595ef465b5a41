//! Relays over real sockets: what is owned while nothing moves, and that nothing is lost, whatever the pieces.

use std::future::poll_fn;

use bytes::BytesMut;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::{Ended, Lender, Pipes, Relay};
use crate::runtime::buffers::Buffers;
use crate::transport::Transport;

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

/// Two ends of one connection, with socket buffers of `size`.
async fn pair(size: usize) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (theirs, _) = listener.accept().await.unwrap();
    for stream in [&ours, &theirs] {
        let socket = socket2::SockRef::from(stream);
        socket.set_send_buffer_size(size).unwrap();
        socket.set_recv_buffer_size(size).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    (ours, theirs)
}

fn byte(at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// What one end says, in pieces of these sizes, over and over.
#[derive(Clone, Debug)]
struct Script {
    total: usize,
    pieces: Vec<usize>,
}

async fn say(mut to: OwnedWriteHalf, script: Script) {
    let bytes: Vec<u8> = (0..script.total).map(byte).collect();
    let mut rest = &bytes[..];
    for piece in script.pieces.iter().cycle() {
        let (now, later) = rest.split_at((*piece).min(rest.len()));
        to.write_all(now).await.unwrap();
        rest = later;
        if rest.is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    to.shutdown().await.unwrap();
}

async fn hear(mut from: OwnedReadHalf, script: Script) {
    let mut all = Vec::new();
    from.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), script.total);
    assert!(all.iter().enumerate().all(|(at, have)| *have == byte(at)), "bytes were changed or moved");
}

async fn relayed(sent: Script, received: Script, size: usize, pipes: &Pipes) -> Relay {
    let ((caller, mut caller_inside), (endpoint, endpoint_inside)) = (pair(size).await, pair(size).await);
    let mut endpoint_inside = Transport::Plain(endpoint_inside);
    let buffers = Buffers::default();
    let lender = Lender { buffers: &buffers, pipes };
    let mut relay = Relay::new(BytesMut::new(), BytesMut::new());
    let (caller_hears, caller_says) = caller.into_split();
    let (endpoint_hears, endpoint_says) = endpoint.into_split();
    let ended = poll_fn(|cx| relay.poll(&mut caller_inside, &mut endpoint_inside, lender, cx));
    let (ended, ..) = tokio::join!(
        ended,
        say(caller_says, sent.clone()),
        say(endpoint_says, received.clone()),
        hear(endpoint_hears, sent),
        hear(caller_hears, received),
    );
    assert_eq!(ended, Ended::Whole);
    relay
}

fn script() -> impl Strategy<Value = Script> {
    let piece = prop_oneof![1usize..200, 1000usize..20_000, 50_000usize..400_000];
    // Enough, often, to be worth a pipe, and to become small messages again.
    (prop_oneof![Just(0usize), 1usize..5_000, 100_000usize..2_000_000], prop::collection::vec(piece, 1..6)).prop_map(
        |(total, pieces)| Script { total, pieces: if total > 5_000 { [pieces, vec![9_000]].concat() } else { pieces } },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_byte_arrives_once_and_in_order(
        sent in script(),
        received in script(),
        size in prop_oneof![Just(64usize << 10), Just(512usize << 10)],
        has_pipes in any::<bool>(),
    ) {
        let pipes = if has_pipes { Pipes::default() } else { Pipes::of(0) };
        let (there, back) = (sent.total as u64, received.total as u64);
        let relay = run(relayed(sent, received, size, &pipes));
        prop_assert_eq!((relay.sent().bytes_in(), relay.sent().bytes_out()), (there, there));
        prop_assert_eq!((relay.received().bytes_in(), relay.received().bytes_out()), (back, back));
        prop_assert_eq!(pipes.lent(), 0);
    }
}

/// What a connection costs while nothing moves, beside its sockets.
#[test]
fn an_idle_connection_is_small() {
    let size = size_of::<super::connection::Connection>();
    assert!(size <= 1_250, "{size} bytes");
}

#[test]
fn bulk_goes_through_a_pipe_that_is_given_back_when_nothing_moves() {
    let pipes = Pipes::default();
    run(async {
        let ((mut caller, mut caller_inside), (mut endpoint, endpoint_inside)) =
            (pair(1 << 20).await, pair(1 << 20).await);
        let mut endpoint_inside = Transport::Plain(endpoint_inside);
        let buffers = Buffers::default();
        let lender = Lender { buffers: &buffers, pipes: &pipes };
        let mut relay = Relay::new(BytesMut::from(&b"first"[..]), BytesMut::new());
        let moves = poll_fn(|cx| relay.poll(&mut caller_inside, &mut endpoint_inside, lender, cx));
        let talk = async {
            let mut first = [0; 5];
            endpoint.read_exact(&mut first).await.unwrap();
            assert_eq!(&first, b"first");
            for _ in 0..50 {
                caller.write_all(&[1; 100]).await.unwrap();
                endpoint.read_exact(&mut [0; 100]).await.unwrap();
            }
            assert_eq!(pipes.made(), 0, "messages are not worth one");
            let (bulk, mut heard) = (vec![7; 4 << 20], vec![0; 4 << 20]);
            let (written, read) = tokio::join!(caller.write_all(&bulk), endpoint.read_exact(&mut heard));
            written.unwrap();
            read.unwrap();
            assert!(bulk == heard);
            assert_eq!((pipes.made(), pipes.lent()), (1, 0), "one was made, and nobody has it");
            caller.shutdown().await.unwrap();
            endpoint.shutdown().await.unwrap();
        };
        let (ended, ()) = tokio::join!(moves, talk);
        assert_eq!(ended, Ended::Whole);
    });
}

#[test]
fn a_reset_ends_both_directions_whoever_sends_it() {
    for by_caller in [true, false] {
        let ended = run(async {
            let ((caller, mut caller_inside), (endpoint, endpoint_inside)) = (pair(1 << 16).await, pair(1 << 16).await);
            let mut endpoint_inside = Transport::Plain(endpoint_inside);
            let (buffers, pipes) = (Buffers::default(), Pipes::default());
            let lender = Lender { buffers: &buffers, pipes: &pipes };
            let mut relay = Relay::new(BytesMut::new(), BytesMut::new());
            let (goes, stays) = if by_caller { (caller, endpoint) } else { (endpoint, caller) };
            super::reset_on_close(&goes);
            drop(goes);
            let ended = poll_fn(|cx| relay.poll(&mut caller_inside, &mut endpoint_inside, lender, cx)).await;
            drop(stays);
            ended
        });
        assert_eq!(ended, if by_caller { Ended::CallerReset } else { Ended::EndpointReset });
    }
}

/// What a peer said before it went is passed on, though it takes nothing any more.
#[test]
fn last_words_are_passed_on_before_the_reset() {
    let (heard, ended) = run(async {
        let ((mut caller, mut caller_inside), (mut endpoint, endpoint_inside)) =
            (pair(1 << 16).await, pair(1 << 16).await);
        let mut endpoint_inside = Transport::Plain(endpoint_inside);
        let (buffers, pipes) = (Buffers::default(), Pipes::default());
        let lender = Lender { buffers: &buffers, pipes: &pipes };
        let mut relay = Relay::new(BytesMut::new(), BytesMut::new());
        // The endpoint says why, and closes with words of the caller unread: a reset follows its last words.
        caller.write_all(b"unread").await.unwrap();
        endpoint_inside_gets(&mut caller_inside, &mut endpoint_inside).await;
        endpoint.write_all(b"too many connections").await.unwrap();
        drop(endpoint);
        let ended = poll_fn(|cx| relay.poll(&mut caller_inside, &mut endpoint_inside, lender, cx)).await;
        super::reset_on_close(&caller_inside);
        drop(caller_inside);
        let mut heard = vec![0; 20];
        caller.read_exact(&mut heard).await.unwrap();
        (heard, ended)
    });
    assert_eq!((&heard[..], ended), (&b"too many connections"[..], Ended::EndpointReset));
}

/// Carries what the caller has said over by hand.
async fn endpoint_inside_gets(caller: &mut TcpStream, endpoint: &mut Transport) {
    let mut words = [0; 6];
    caller.read_exact(&mut words).await.unwrap();
    endpoint.write_all(&words).await.unwrap();
}
