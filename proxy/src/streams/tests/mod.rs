mod endings;
mod floods;
mod frames;

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use super::client::Handle;
use super::server::{Connection, Incoming};
use super::*;
use crate::runtime::clock::Clock;
use crate::runtime::timers::Timers;

fn local(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default()).unwrap();
    runtime.block_on(test);
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (near, far)
}

/// A client of ours on a server of ours, whose calls `answer` answers.
async fn joined<F: Future<Output = ()> + 'static>(answer: impl Fn(Incoming) -> F + 'static) -> Handle {
    let (near, far) = pair().await;
    let clock = Clock::start();
    tokio::task::spawn_local(async move {
        let mut connection = Connection::new(far, BytesMut::new(), clock);
        while let Some(Ok(incoming)) = poll_fn(|cx| connection.poll_next(cx)).await {
            tokio::task::spawn_local(answer(incoming));
        }
    });
    let timers = Timers::new(clock);
    tokio::task::spawn_local(Rc::clone(&timers).drive());
    let (handle, driver) = Handle::connect(near, clock, timers.alarm()).await.unwrap();
    tokio::task::spawn_local(driver);
    handle
}

fn to(path: &str) -> Request<()> {
    Request::builder().uri(format!("http://a.test{path}")).body(()).unwrap()
}

async fn all(body: &mut Inflow) -> Result<Vec<u8>, StreamError> {
    let mut whole = Vec::new();
    while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
        let data = data?;
        whole.extend_from_slice(&data);
        body.release(data.len());
    }
    Ok(whole)
}

#[test]
fn a_call_there_and_back_with_everything_in_it() {
    local(async {
        let mut handle = joined(|mut incoming| async move {
            assert_eq!(incoming.parts.uri.path(), "/all");
            let mut early = HeaderMap::new();
            early.insert("link", HeaderValue::from_static("</style.css>"));
            incoming.answer.interim(103, early).unwrap();
            let body = all(&mut incoming.body).await.unwrap();
            let trailers = poll_fn(|cx| incoming.body.poll_trailers(cx)).await.unwrap().unwrap();
            assert_eq!(trailers["x-end"], "1");
            assert!(incoming.body.is_ended());
            let mut out = incoming.answer.send(Response::new(()), false).unwrap();
            let mut body = Bytes::from(body);
            while !body.is_empty() {
                let room = poll_fn(|cx| out.poll_room(body.len(), cx)).await.unwrap();
                out.send(body.split_to(room), false).unwrap();
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            out.send_trailers(trailers).unwrap();
        })
        .await;
        let (mut awaited, mut out) = handle.open(to("/all"), false).unwrap();
        assert_eq!(handle.streams(), 1);
        let sent = vec![7; 1_000_000];
        let mut rest = Bytes::from(sent.clone());
        while !rest.is_empty() {
            let room = poll_fn(|cx| out.poll_room(rest.len(), cx)).await.unwrap();
            out.send(rest.split_to(room), false).unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-end", HeaderValue::from_static("1"));
        out.send_trailers(trailers).unwrap();
        let (status, fields) = poll_fn(|cx| awaited.poll_interim(cx)).await.unwrap();
        assert_eq!((status, &fields["link"]), (103, &HeaderValue::from_static("</style.css>")));
        assert!(poll_fn(|cx| awaited.poll_interim(cx)).await.is_none());
        let (parts, mut body) = poll_fn(|cx| awaited.poll_head(cx)).await.unwrap();
        assert_eq!(parts.status, 200);
        assert!(handle.extended_connect() && handle.is_settled());
        assert_eq!(all(&mut body).await.unwrap(), sent);
        let trailers = poll_fn(|cx| body.poll_trailers(cx)).await.unwrap().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        drop((awaited, body, out));
        assert_eq!(handle.streams(), 0);
    });
}
