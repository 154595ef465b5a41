//! The thread with both listeners, and the once-a-second tick of statistics.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, oneshot};
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::connection::{self, Pages, Times};
use super::control::Control;
use super::pages::{AdminPages, HealthPages};
use super::token::Token;
use crate::report::{Collector, Report};

/// Connections served at once on each of the two addresses. The oldest gives way to a new one.
const MAX_CONNECTIONS: usize = 128;
/// How long accepting pauses when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An address that could not be bound.
#[derive(Debug, Error)]
#[error("cannot listen on {flag} {address}: {error}")]
pub struct BindError {
    flag: &'static str,
    address: SocketAddr,
    error: io::Error,
}

/// Both addresses, bound and not yet served: whoever starts the process binds everything before it goes on.
#[derive(Debug)]
pub struct Listeners {
    admin: std::net::TcpListener,
    health: std::net::TcpListener,
}

impl Listeners {
    /// Binds both addresses; port 0 takes a free one.
    ///
    /// # Errors
    /// The first that cannot be bound.
    pub fn bind(admin: SocketAddr, health: SocketAddr) -> Result<Self, BindError> {
        let listen = |flag, address| bind(address).map_err(|error| BindError { flag, address, error });
        Ok(Listeners { admin: listen("--admin", admin)?, health: listen("--health", health)? })
    }

    /// The admin address as bound.
    ///
    /// # Errors
    /// What the system says.
    pub fn admin_address(&self) -> io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// The health address as bound.
    ///
    /// # Errors
    /// What the system says.
    pub fn health_address(&self) -> io::Result<SocketAddr> {
        self.health.local_addr()
    }

    /// Starts the thread. It serves both addresses and ticks the collector until the result is dropped.
    ///
    /// # Errors
    /// The thread or its runtime cannot be made.
    pub fn start<C: Control + Send + Sync>(
        self,
        control: Arc<C>,
        report: Report,
        collector: Collector,
        token: Token,
    ) -> io::Result<AdminThread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
            let serve = self.serve(control, report, collector, token);
            let until_stopped = async {
                tokio::select! {
                    served = serve => {
                        if let Err(error) = served {
                            tracing::error!(%error, "the admin and health addresses are not served");
                        }
                    }
                    // Dropped or told: both mean that the process ends.
                    _ = stopped => {}
                }
            };
            LocalSet::new().block_on(&runtime, until_stopped);
        })?;
        Ok(AdminThread { stop: Some(stop), thread: Some(thread) })
    }

    async fn serve<C: Control>(
        self,
        control: Arc<C>,
        report: Report,
        collector: Collector,
        token: Token,
    ) -> io::Result<()> {
        let admin = TcpListener::from_std(self.admin)?;
        let health = TcpListener::from_std(self.health)?;
        let health_pages = Rc::new(HealthPages { control: control.clone() });
        let admin_pages = Rc::new(AdminPages { control, report, collector: Mutex::new(collector), token });
        spawn_local(tick(admin_pages.clone()));
        tokio::join!(accept(admin, admin_pages), accept(health, health_pages));
        Ok(())
    }
}

/// The running thread. Dropping it closes both addresses and waits for the thread.
#[derive(Debug)]
pub struct AdminThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for AdminThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// Once a second: the windows of the statistics move on, and what is decided by them is told.
async fn tick<C: Control>(pages: Rc<AdminPages<C>>) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        let published = pages.collector.lock().await.tick().await;
        pages.control.published(&published);
    }
}

/// Accepts for ever.
async fn accept<P: Pages + 'static>(listener: TcpListener, pages: Rc<P>) {
    let mut connections = VecDeque::<AbortHandle>::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // A peer that is gone already, or no descriptor left: neither ends the listener.
            Err(_) => {
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= MAX_CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let pages = pages.clone();
        let task = spawn_local(async move { connection::serve(stream, &*pages, &Times::DEFAULT).await });
        connections.push_back(task.abort_handle());
    }
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    // A restart must not wait for connections of the last process to time out.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(128)?;
    Ok(socket.into())
}
