//! HTTP/1.1 as this crate needs it, in one place: ask one question on a connection of its own, and serve.
//!
//! A connection per request is what the command line needs anyway. The demo's services do the same: at tens of
//! calls a second a pool would buy nothing, and dropping the future then visibly means "the caller has hung up".

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

/// The largest answer that is read: `/config-dump` of thousands of dependencies fits.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No connection.
    #[error("{0}")]
    Connect(#[source] io::Error),
    /// Connected, but what came back was no HTTP answer.
    #[error("{0}")]
    Exchange(#[source] hyper::Error),
    /// The answer broke off or was too long.
    #[error("the answer broke off: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

/// Sends `request` to `address` (`host:port`) and reads the whole answer. Dropping the future closes the connection.
///
/// # Errors
/// [`Failure`] says how far it came. There is no time limit here; the caller knows how long it is willing to wait.
pub async fn send(address: &str, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, Failure> {
    let stream = TcpStream::connect(address).await.map_err(Failure::Connect)?;
    // Small requests in one write; waiting for an acknowledgement would only add delay.
    stream.set_nodelay(true).map_err(Failure::Connect)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(Failure::Exchange)?;
    let exchange = async move {
        let answer = sender.send_request(request).await.map_err(Failure::Exchange)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(Failure::Body)?;
        Ok(Response::from_parts(head, body.to_bytes()))
    };
    // The connection's own error is the same news as the exchange's, told less well.
    let (answer, _) = tokio::join!(exchange, connection);
    answer
}

/// How long to wait after a failed accept: out of descriptors is over as soon as some call ends.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Serves `listener` for ever; each connection is a task.
pub async fn serve<H, F>(listener: TcpListener, handle: H)
where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let handle = Arc::new(handle);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Fails only when the caller is gone already, which the first read will tell.
        let _ = stream.set_nodelay(true);
        let handle = Arc::clone(&handle);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = handle(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);
            // A caller that hangs up is an everyday event, not an error of the server.
            let _ = connection.await;
        });
    }
}

/// An answer with a body of text or JSON.
pub fn answer(status: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = hyper::StatusCode::from_u16(status).expect("the callers pass codes of RFC 9110");
    response
}
