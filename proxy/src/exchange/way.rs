//! How an attempt comes by a connection, once it has its endpoint.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use plimsoll_resilience::flight::Failure;
use tokio::sync::watch;

use super::link::{Way, wait_for_socket};
use crate::dependency::Dependency;
use crate::dial::{DialError, Dialed, Security, dial, words};
use crate::pool::Upstream;
use crate::pool::streams::{Found, Made, StreamKey};
use crate::runtime::worker::Worker;
use crate::sockets::OpenSocket;
use crate::streams::client::Handle;
use crate::tls::Negotiated;

/// How often a new connection is asked whether its endpoint has said what it is willing to do.
const SETTLING: Duration = Duration::from_millis(2);

/// What is needed to make a connection.
pub struct Plan {
    /// Where to, and under which settings.
    pub key: StreamKey,
    /// For whom.
    pub dependency: Arc<Dependency>,
    /// TLS of ours.
    pub security: Option<Security>,
    /// The endpoint has to say first what it is willing to do: whether it takes a WebSocket over HTTP/2.
    pub needs_settings: bool,
    /// How long making it may take.
    pub connect: Duration,
    /// How long to wait for a socket under `maxConnections`.
    pub wait: Duration,
    /// How long it may then be without a call.
    pub idle: Duration,
}

impl Plan {
    async fn dial(&self, worker: &Worker, socket: OpenSocket) -> Result<Dialed, DialError> {
        let process = Arc::clone(&worker.process);
        let destination = self.key.destination.clone();
        dial(process, Arc::clone(&self.dependency), destination, socket, self.security.clone()).await
    }

    fn upstream(&self, dialed: Dialed) -> Upstream {
        Upstream::new(dialed.transport, dialed.address, self.dependency.id, self.key.security, dialed.socket)
    }
}

/// A connection for one attempt.
pub async fn connection(worker: Rc<Worker>, plan: Plan, socket: OpenSocket) -> Result<Way, DialError> {
    let dialed = plan.dial(&worker, socket).await?;
    Ok(Way::Connection(plan.upstream(dialed)))
}

/// A stream for one attempt: of a connection that somebody else is making, or of one of its own making.
pub async fn stream(worker: Rc<Worker>, plan: Plan, socket: Option<OpenSocket>) -> Result<Way, DialError> {
    let plan = Rc::new(plan);
    let mut socket = socket;
    // A connection was there for this attempt, or was waited for.
    let mut had_one = false;
    loop {
        let found = worker.streams.borrow_mut().find(&plan.key, plan.dependency.sockets(), worker.now());
        match found {
            Found::Room(opened) if plan.needs_settings && !opened.handle.is_settled() => {
                drop(opened);
                had_one = true;
                tokio::time::sleep(SETTLING).await;
            }
            Found::Room(opened) => return Ok(Way::Stream(opened)),
            Found::Dialing(mut told) => {
                had_one = true;
                match told.wait_for(Option::is_some).await {
                    Ok(told) => told.clone().expect("waited for")?,
                    // Whoever was making it is gone with its worker.
                    Err(_) => return Err(not_made("the worker has ended")),
                }
            }
            // One of its own: HTTP/1.1 carries one call at a time.
            Found::Http1 => {
                let idle = worker.take_idle(plan.dependency.id, &plan.key.destination, plan.key.security, false);
                if let Some(upstream) = idle {
                    return Ok(Way::Connection(upstream));
                }
                let Some(socket) = take_socket(&mut socket, &plan) else {
                    match wait_in_line(&worker, &plan).await {
                        Line::Socket(granted) => socket = Some(granted),
                        Line::Way => {}
                        Line::Over => return Ok(Way::Taken),
                    }
                    continue;
                };
                let dialed = plan.dial(&worker, socket).await?;
                if dialed.negotiated != Negotiated::Http2 {
                    return Ok(Way::Connection(plan.upstream(dialed)));
                }
                // The server has learned HTTP/2 meanwhile.
                let made = shake_hands(&worker, &plan, dialed).await;
                worker.streams.borrow_mut().finish(&plan.key, made, worker.now());
            }
            // One that takes no call is a failure, and not a reason to make another, and another.
            Found::Nothing if had_one && !worker.streams.borrow().has_busy(&plan.key) => {
                let refusal = worker.streams.borrow().refusal(&plan.key);
                return Err(refusal.map_or_else(
                    || not_made("the connection ended before it took the call, or takes none"),
                    |refusal| DialError::Failed(Failure::Tls, words(&refusal.to_string())),
                ));
            }
            Found::Nothing => {
                let Some(socket) = take_socket(&mut socket, &plan) else {
                    match wait_in_line(&worker, &plan).await {
                        Line::Socket(granted) => socket = Some(granted),
                        Line::Way => {}
                        Line::Over => return Ok(Way::Taken),
                    }
                    continue;
                };
                let (tell, told) = watch::channel(None);
                worker.streams.borrow_mut().begin(&plan.key, told);
                // A task of its own: the caller that began it may go away while others wait for it.
                drop(tokio::task::spawn_local(make(Rc::clone(&worker), Rc::clone(&plan), socket, tell)));
            }
        }
    }
}

/// What waiting in line has come to.
enum Line {
    /// A socket.
    Socket(OpenSocket),
    /// A connection of this worker that takes the call, or will.
    Way,
    /// The wait was too long.
    Over,
}

/// The connection that was waited for is no use any more, and `maxConnections` allows no other for now.
async fn wait_in_line(worker: &Worker, plan: &Plan) -> Line {
    let urgent = !worker.streams.borrow().has_any(plan.key.dependency);
    worker.process.close_idle(plan.key.dependency, urgent);
    // Shorter than the connect timeout, which would blame the dependency.
    let limit = plan.wait.min(plan.connect / 2);
    let mut socket = pin!(wait_for_socket(Arc::clone(plan.dependency.sockets()), limit));
    poll_fn(|cx| match socket.as_mut().poll(cx) {
        Poll::Ready(granted) => Poll::Ready(granted.map_or(Line::Over, Line::Socket)),
        Poll::Pending if worker.streams.borrow().has_way(&plan.key) => Poll::Ready(Line::Way),
        Poll::Pending => Poll::Pending,
    })
    .await
}

fn take_socket(socket: &mut Option<OpenSocket>, plan: &Plan) -> Option<OpenSocket> {
    socket.take().or_else(|| plan.dependency.sockets().try_open())
}

fn not_made(why: &str) -> DialError {
    DialError::Failed(Failure::Connect, why.into())
}

/// Makes a connection for whoever waits for one.
async fn make(
    worker: Rc<Worker>,
    plan: Rc<Plan>,
    socket: OpenSocket,
    tell: watch::Sender<Option<Result<(), DialError>>>,
) {
    let made = tokio::time::timeout(plan.connect, async {
        let dialed = plan.dial(&worker, socket).await?;
        if dialed.negotiated == Negotiated::Http1 {
            // The first of those who wait takes it.
            let upstream = plan.upstream(dialed);
            worker.give_back(&plan.dependency, upstream, None, plan.idle, worker.now());
            return Ok(Made::Http1);
        }
        Ok(shake_hands(&worker, &plan, dialed).await)
    });
    let (made, told) = match made.await {
        Ok(Ok(Made::Nothing)) => (Made::Nothing, Err(not_made("the server does not speak HTTP/2"))),
        Err(_) => (Made::Nothing, Err(not_made("timed out"))),
        Ok(Ok(made)) => (made, Ok(())),
        Ok(Err(error)) => (Made::Nothing, Err(error)),
    };
    worker.streams.borrow_mut().finish(&plan.key, made, worker.now());
    // Who has come too late to wait for this connection waits for a socket, and may have no need of one any more.
    plan.dependency.sockets().nudge_all();
    let _ = tell.send(Some(told));
}

async fn shake_hands(worker: &Worker, plan: &Plan, dialed: Dialed) -> Made {
    let refusal = dialed.transport.refusal();
    match Handle::connect(dialed.transport, worker.clock, worker.timers.alarm()).await {
        Ok((handle, driver)) => {
            let socket = dialed.socket;
            drop(tokio::task::spawn_local(async move {
                driver.await;
                drop(socket);
            }));
            Made::Streams { handle, address: dialed.address, refusal, patience: plan.idle }
        }
        Err(error) => {
            let dependency = &*plan.dependency.name;
            tracing::debug!(dependency, address = %dialed.address, %error, "no HTTP/2 connection");
            Made::Nothing
        }
    }
}
