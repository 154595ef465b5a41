//! From the command line to a proxy that is ready, and on to its end.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use arc_swap::ArcSwap;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use plimsoll_policy::PolicySet;
use plimsoll_resilience::Random;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::clock::Clock;
use super::controller::{Controller, Refused};
use super::drain::{Drain, Phase};
use super::events::EventDesk;
use super::listeners;
use super::memory::KeptBodies;
use super::process::Process;
use super::resolver::Resolver;
use super::signals::Signals;
use super::worker::{Message, Worker};
use crate::admin::{BindError, Listeners, Token, TokenError};
use crate::capture::{Own, Purpose};
use crate::cli::Options;
use crate::detect::Habits;
use crate::report::{LogError, Report, start_log};
use crate::snapshot::{Originations, Registry, Snapshot, compile};

/// Workers, unless told otherwise: a sidecar is a guest on its machine.
const MOST_WORKERS: usize = 2;

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The log.
    #[error("{0}")]
    Log(#[from] LogError),
    /// The policy.
    #[error("{0}")]
    Policy(#[from] Refused),
    /// An address of ours.
    #[error("cannot listen on {flag} {address}: {error}")]
    Bind {
        /// Which flag gave it.
        flag: &'static str,
        /// Which.
        address: SocketAddr,
        /// What the kernel says.
        error: io::Error,
    },
    /// The admin or the health address.
    #[error("{0}")]
    Admin(#[from] BindError),
    /// The admin token.
    #[error("{0}")]
    Token(#[from] TokenError),
    /// No place for the admin token.
    #[error("no state directory: give --state-dir, or --admin-token-file")]
    NoStateDir,
    /// Threads, or the access log.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Runs a proxy until it has drained.
///
/// # Errors
/// [`StartError`] when it could not start; nothing was served then.
pub fn run(options: Options) -> Result<(), StartError> {
    let _log = start_log(&options.log, options.log_format.into())?;
    raise_file_limit();
    let access_log = options.access_log.clone().map(|target| (target, options.log_format.into()));
    let (report, collector) = Report::new(access_log)?;
    let admin = Listeners::bind(options.admin, options.health)?;
    let (admin_address, health_address) = (admin.admin_address()?, admin.health_address()?);
    let token = admin_token(&options, admin_address.port())?;
    let (process, registry, mailboxes) = prepare(options, report)?;
    let controller = Controller::new(Arc::clone(&process), registry, [admin_address.port(), health_address.port()]);
    let workers = start_workers(&process, mailboxes)?;
    if !process.options.policy.is_empty() {
        controller.load_files()?;
    }
    let inbound = listen(&controller, "--inbound", process.options.inbound, Purpose::Inbound)?;
    let outbound = listen(&controller, "--outbound", process.options.outbound, Purpose::Outbound)?;
    let _admin = admin.start(Arc::clone(&controller), process.report.clone(), collector, token)?;
    let signals = Signals::install()?;
    process.drain.advance(Phase::Serving, process.clock.now());
    announce(&controller, inbound, outbound, admin_address, health_address);
    signals.until_drained(&process, &controller);
    process.tell_all(|| Message::Exit);
    workers.into_iter().for_each(|worker| drop(worker.join()));
    Ok(())
}

type Mailbox = UnboundedReceiver<Message>;

fn prepare(options: Options, report: Report) -> Result<(Arc<Process>, Registry, Vec<Mailbox>), StartError> {
    let clock = Clock::start();
    let count = options.workers.map_or_else(default_workers, NonZeroUsize::get);
    let (workers, mailboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| unbounded_channel()).unzip();
    let snapshot = Arc::new(ArcSwap::from_pointee(Snapshot::empty()));
    let desk = EventDesk { report: report.clone(), snapshot: Arc::clone(&snapshot), clock };
    let mut registry = Registry::new(report.clone(), Arc::new(desk), random_seed());
    let first =
        compile(&PolicySet::default(), None, None, Originations::default(), &mut registry, "local-0", clock.now());
    snapshot.store(Arc::new(first.snapshot));
    let resolver = Resolver::start(options.dns_server.clone())?;
    let process = Process {
        options,
        clock,
        snapshot,
        drain: Drain::default(),
        own: Own::default(),
        resolver,
        habits: Habits::default(),
        kept_bodies: KeptBodies::default(),
        report,
        connections: Default::default(),
        accepting: AtomicUsize::new(0),
        callers: Arc::default(),
        workers,
    };
    process.own.refresh_addresses();
    Ok((Arc::new(process), registry, mailboxes))
}

fn start_workers(process: &Arc<Process>, mailboxes: Vec<Mailbox>) -> io::Result<Vec<JoinHandle<()>>> {
    let mut seeds = Random::new(random_seed());
    let start = |(number, mailbox): (usize, Mailbox)| {
        let (process, seed) = (Arc::clone(process), seeds.next_u64());
        let (started, result) = mpsc::channel();
        let work = move || work(process, seed, mailbox, &started);
        let worker = thread::Builder::new().name(format!("worker-{number}")).spawn(work)?;
        result.recv().unwrap_or_else(|_| Err(io::Error::other("a worker ended as it began")))?;
        Ok(worker)
    };
    mailboxes.into_iter().enumerate().map(start).collect()
}

fn work(process: Arc<Process>, seed: u64, mailbox: Mailbox, started: &mpsc::Sender<io::Result<()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let (runtime, result) = match runtime {
        Ok(runtime) => (Some(runtime), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // Whoever started us is waiting for this.
    let _ = started.send(result);
    let Some(runtime) = runtime else { return };
    let (report, collection) = process.report.worker();
    let worker = Worker::new(process, report, seed);
    runtime.block_on(worker.run(mailbox, collection));
}

/// Binds an address of ours, and its counterpart of the other family where that is the default address: redirected IPv6
/// traffic arrives there. A machine without IPv6 is no error.
fn listen(
    controller: &Controller,
    flag: &'static str,
    address: SocketAddr,
    purpose: Purpose,
) -> Result<SocketAddr, StartError> {
    let bound = controller.listen(address, purpose).map_err(|error| StartError::Bind { flag, address, error })?;
    let other = listeners::counterpart(bound).filter(|_| is_default(address));
    if let Some(other) = other
        && let Err(error) = controller.listen(other, purpose)
    {
        match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => tracing::info!(%other, "no IPv6 here"),
            _ => return Err(StartError::Bind { flag, address: other, error }),
        }
    }
    Ok(bound)
}

fn is_default(address: SocketAddr) -> bool {
    [crate::cli::DEFAULT_INBOUND, crate::cli::DEFAULT_OUTBOUND].iter().any(|default| default.parse() == Ok(address))
}

fn admin_token(options: &Options, port: u16) -> Result<Token, StartError> {
    match &options.admin_token_file {
        Some(file) => Ok(Token::read(file)?),
        None => Ok(Token::create(&options.state_dir().ok_or(StartError::NoStateDir)?, port)?),
    }
}

/// One line of JSON for whoever started us: the addresses as bound.
fn announce(controller: &Controller, inbound: SocketAddr, outbound: SocketAddr, admin: SocketAddr, health: SocketAddr) {
    let listens: serde_json::Map<_, _> =
        controller.listens().into_iter().map(|(policy, address)| (policy, address.to_string().into())).collect();
    let line = serde_json::json!({
        "event": "ready", "inbound": inbound, "outbound": outbound, "admin": admin, "health": health, "listen": listens,
    });
    // Whoever reads it may have gone; the proxy serves all the same.
    let _ = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
    tracing::info!(%inbound, %outbound, %admin, %health, "ready");
}

/// One for each CPU that the cgroup's quota gives us, at most [`MOST_WORKERS`].
fn default_workers() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MOST_WORKERS)
}

/// Every connection takes two descriptors: use all that we may have.
fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Without it the soft limit holds, and accepting says so when it is reached.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
