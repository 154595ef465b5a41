//! Whose call it is: a connection of HTTP/1, which has one call at a time, or one of the streams of HTTP/2.

use std::net::Shutdown;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Response};
use socket2::SockRef;

use crate::capture::Origin;
use crate::forward::answer::Answer;
use crate::forward::reply::Reply;
use crate::runtime::buffers::Lent;
use crate::runtime::timers::Alarm;
use crate::serve::Downstream;
use crate::streams::server::Answerer;
use crate::streams::{Code, Inflow, Outflow, StreamError};

/// Whose call it is.
pub enum Caller {
    /// A connection of HTTP/1.
    Connection(Lent<Downstream>),
    /// A stream of HTTP/2.
    Stream(Box<CallerStream>),
}

/// A stream that a caller has opened.
pub struct CallerStream {
    /// Where its connection came from and was going.
    pub origin: Origin,
    /// The call's one deadline.
    pub alarm: Alarm,
    /// What the caller sends.
    pub inflow: Inflow,
    way_back: WayBack,
}

/// How far the answer has come.
enum WayBack {
    /// Its head has not gone out.
    Head(Answerer),
    /// Its body goes out; `own`: the rest of an answer of ours.
    Body { outflow: Outflow, own: Bytes },
    /// The stream had ended before the answer could begin.
    Lost(StreamError),
    /// It has gone out whole, or was cut.
    Over,
}

impl Caller {
    /// Where the call came from and was going.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        match self {
            Self::Connection(down) => &down.origin,
            Self::Stream(stream) => &stream.origin,
        }
    }

    /// Whether the caller is on this side of the trust boundary.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.origin().is_local()
    }

    /// Whether the call came over HTTP/2.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// The call's one deadline.
    pub fn alarm(&mut self) -> &mut Alarm {
        match self {
            Self::Connection(down) => &mut down.alarm,
            Self::Stream(stream) => &mut stream.alarm,
        }
    }

    /// The connection that the call has for itself.
    pub fn connection(&mut self) -> Option<&mut Downstream> {
        match self {
            Self::Connection(down) => Some(down),
            Self::Stream(_) => None,
        }
    }

    /// The stream.
    pub fn stream(&mut self) -> Option<&mut CallerStream> {
        match self {
            Self::Connection(_) => None,
            Self::Stream(stream) => Some(stream),
        }
    }

    /// Nothing more goes back on what has become a tunnel. Once.
    pub fn shut_tunnel(&mut self) {
        if let Self::Connection(down) = self {
            // Fails only when the caller is gone, which reading shows.
            let _ = SockRef::from(&down.stream).shutdown(Shutdown::Write);
        }
    }
}

impl CallerStream {
    /// A stream whose request has begun.
    #[must_use]
    pub fn new(origin: Origin, alarm: Alarm, inflow: Inflow, answerer: Answerer) -> Self {
        Self { origin, alarm, inflow, way_back: WayBack::Head(answerer) }
    }

    /// Sends an interim answer on. What fails here is a stream that has ended, which is noticed elsewhere.
    pub fn send_interim(&mut self, status: u16, fields: HeaderMap) {
        if let WayBack::Head(answerer) = &mut self.way_back {
            let _ = answerer.interim(status, fields);
        }
    }

    /// Sends the head of the final answer; with `own`, the whole of one that is ours.
    ///
    /// # Errors
    /// The stream has ended.
    pub fn send_head(&mut self, response: Response<()>, ends: bool, own: Bytes) -> Result<(), StreamError> {
        let WayBack::Head(mut answerer) = std::mem::replace(&mut self.way_back, WayBack::Over) else { return Ok(()) };
        let sent = answerer.send(response, ends);
        let error = sent.as_ref().err().copied();
        // Kept, for whoever looks after the caller: nobody else will hear of it.
        self.way_back = sent.map_or_else(WayBack::Lost, |outflow| WayBack::Body { outflow, own });
        error.map_or(Ok(()), Err)
    }

    /// Sends on what is here of the answer, as far as the caller has room for it. Ready when nothing is left for now.
    ///
    /// # Errors
    /// The caller has reset the stream, or its connection has ended.
    pub fn poll_flush(
        &mut self,
        reply: &mut Reply,
        answer: &mut Answer,
        retries_over: bool,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), StreamError>> {
        let (outflow, own) = match &mut self.way_back {
            WayBack::Body { outflow, own } => (outflow, own),
            WayBack::Lost(error) => return Poll::Ready(Err(*error)),
            WayBack::Head(_) | WayBack::Over => return Poll::Ready(Ok(())),
        };
        while !reply.is_complete() {
            let is_own = reply.is_own();
            let left = if is_own { own.len() } else { answer.unsent().len() };
            let is_last = is_own || answer.is_whole();
            if left > 0 {
                let room = std::task::ready!(outflow.poll_room(left, cx))?;
                let piece = if is_own { own.split_to(room.min(own.len())) } else { answer.take_piece(room) };
                let all_sent = if is_own { own.is_empty() } else { answer.unsent().is_empty() };
                let ends = is_last && all_sent && (is_own || answer.trailers().is_none());
                reply.on_stream_sent(piece.len(), ends);
                *moved = true;
                outflow.send(piece, ends)?;
            } else if is_last {
                match answer.trailers().filter(|_| !is_own) {
                    Some(trailers) => outflow.send_trailers(with_pushback(trailers.to_map(), retries_over))?,
                    None => outflow.send(Bytes::new(), true)?,
                }
                reply.on_stream_sent(0, true);
                *moved = true;
            } else {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the caller has reset the stream, or its connection has ended.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<StreamError> {
        match &mut self.way_back {
            WayBack::Head(answerer) => answerer.poll_reset(cx),
            WayBack::Body { outflow, .. } => outflow.poll_reset(cx),
            WayBack::Lost(error) => Poll::Ready(*error),
            WayBack::Over => Poll::Pending,
        }
    }

    /// Ends the stream so that what went out of the answer does not look whole.
    pub fn reset(&mut self, code: Code) {
        match std::mem::replace(&mut self.way_back, WayBack::Over) {
            WayBack::Head(mut answerer) => answerer.reset(code),
            WayBack::Body { mut outflow, .. } => outflow.reset(code),
            WayBack::Lost(_) | WayBack::Over => {}
        }
    }
}

/// What a gRPC client is told where HTTP's is told `x-plimsoll-retry: no`.
fn with_pushback(mut trailers: HeaderMap, retries_over: bool) -> HeaderMap {
    let failed = trailers.get("grpc-status").is_some_and(|status| status != "0");
    if retries_over && failed {
        trailers.insert("grpc-retry-pushback-ms", http::HeaderValue::from_static("-1"));
    }
    trailers
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::task::Waker;

    use bytes::BytesMut;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::capture::Purpose;
    use crate::runtime::clock::Clock;
    use crate::runtime::timers::Timers;
    use crate::streams::client::Handle;
    use crate::streams::server::{Connection, Incoming};

    /// A reset and an answer that arrive together: whichever is looked at first.
    #[test]
    fn a_caller_that_left_before_its_answer_begins_is_known_to_have_left() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default()).unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (far, peer) = listener.accept().await.unwrap();
            let clock = Clock::start();
            let timers = Timers::new(clock);
            let (mut handle, driver) = Handle::connect(near, clock, timers.alarm()).await.unwrap();
            tokio::task::spawn_local(driver);
            let mut connection = Connection::new(far, BytesMut::new(), clock);
            let request = http::Request::builder().uri("http://a.test/").body(()).unwrap();
            let (_awaited, mut outflow) = handle.open(request, true).unwrap();
            let incoming = poll_fn(|cx| connection.poll_next(cx)).await.unwrap().unwrap();
            let Incoming { body, mut answer, .. } = incoming;
            outflow.reset(Code::CANCEL);
            poll_fn(|cx| {
                assert!(connection.poll_next(cx).is_pending());
                answer.poll_reset(cx)
            })
            .await;
            let origin = Origin { purpose: Purpose::Outbound, peer, destination: None };
            let mut stream = CallerStream::new(origin, timers.alarm(), body, answer);
            assert!(stream.send_head(Response::new(()), false, Bytes::from_static(b"late")).is_err());
            let mut cx = Context::from_waker(Waker::noop());
            assert_eq!(stream.poll_gone(&mut cx), Poll::Ready(StreamError::Reset(Code::CANCEL)));
            let (mut reply, mut answer) = (Reply::new(BytesMut::new()), Answer::new(Box::default(), true));
            reply.begin_on_stream(200, true, false);
            let flushed = stream.poll_flush(&mut reply, &mut answer, false, &mut false, &mut cx);
            assert!(matches!(flushed, Poll::Ready(Err(_))), "{flushed:?}");
        });
    }
}
