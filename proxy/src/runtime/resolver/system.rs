//! One look-up: the hosts file, then the name servers, then whatever else the system knows.
//!
//! - Both families are asked for at once. Once one has addresses, the other is waited for 50 ms more (RFC 8305,
//!   section 3): a name server that drops questions for AAAA costs no connection. Without the other family the answer is
//!   used for a second, and then there is the other one, too.
//! - The name servers are asked in their order, each with a head start over the next. One that answers with a failure
//!   is passed over at once.
//! - The candidates of a search list are tried in their order until one has an address. One that nobody can answer for
//!   does not keep the others from being tried, as in the system's resolver: domains that are out of order are common.
//! - mDNS, LDAP and the like are only known to the system's own resolver. It blocks, so it is asked on threads, and only
//!   when there is no such name elsewhere and nsswitch.conf names more than files and DNS.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::sync::Semaphore;

use super::answer::{Answer, Found, LONGEST, ResolveError, SHORTEST, WITHOUT_TTL};
use super::conf::{Conf, Files};
use super::services::{Service, Services};
use crate::race::first_to_succeed;

/// How long the second family is waited for when the first is there (RFC 8305, section 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// What a name server takes at most before the next one is asked as well. A dead one costs this, and not a call.
const HEAD_START: Duration = Duration::from_millis(250);
/// The longest that a look-up may take. Nobody waits for as long, and others wait for its place.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads that ask the system's resolver. What it does not answer holds up other names of its kind, and no more.
const MOST_THREADS: usize = 16;

/// A look-up on its way.
pub type Asking<T> = Pin<Box<dyn Future<Output = Result<T, ResolveError>> + Send>>;

/// Who is asked.
pub trait Source: Send + Sync + 'static {
    /// The addresses of a name.
    fn addresses(&self, name: Arc<str>) -> Asking<Answer>;
    /// Who serves what a name stands for (SRV).
    fn services(&self, name: Arc<str>) -> Asking<Services>;
}

/// The machine's way to names. See the module documentation.
#[derive(Debug)]
pub struct System {
    files: Mutex<Files>,
    threads: Arc<Semaphore>,
}

impl System {
    /// With what these files say.
    #[must_use]
    pub fn new(files: Files) -> Arc<Self> {
        Arc::new(Self { files: Mutex::new(files), threads: Arc::new(Semaphore::new(MOST_THREADS)) })
    }

    fn conf(&self) -> Arc<Conf> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).conf()
    }
}

impl Source for System {
    fn addresses(&self, name: Arc<str>) -> Asking<Answer> {
        let (conf, threads) = (self.conf(), Arc::clone(&self.threads));
        Box::pin(patiently(async move { addresses(&conf, &threads, &name).await }))
    }

    fn services(&self, name: Arc<str>) -> Asking<Services> {
        let conf = self.conf();
        Box::pin(patiently(async move { services(&conf, &parse(&name)?).await }))
    }
}

async fn patiently<T>(look_up: impl Future<Output = Result<T, ResolveError>>) -> Result<T, ResolveError> {
    let late = || ResolveError::NoAnswer(format!("it has taken {} s", PATIENCE.as_secs()).into());
    tokio::time::timeout(PATIENCE, look_up).await.unwrap_or_else(|_| Err(late()))
}

async fn addresses(conf: &Conf, threads: &Arc<Semaphore>, text: &str) -> Found {
    if let Ok(literal) = text.parse::<IpAddr>() {
        return Answer::new([literal], LONGEST);
    }
    let in_hosts = conf.in_hosts(text);
    if !in_hosts.is_empty() {
        return Answer::new(in_hosts.iter().copied(), WITHOUT_TTL);
    }
    let name = parse(text)?;
    if is_localhost(&name) {
        // Never a question for others (RFC 6761, section 6.3).
        return Answer::new([Ipv6Addr::LOCALHOST.into(), IpAddr::from(Ipv4Addr::LOCALHOST)], LONGEST);
    }
    match in_dns(conf, &name).await {
        Err(error) if error.is_definite() && conf.knows_more => match elsewhere(threads, text.to_owned()).await {
            Err(_) => Err(error),
            found => found,
        },
        found => found,
    }
}

fn parse(text: &str) -> Result<Name, ResolveError> {
    // Underscores within a name are common among containers, whatever RFC 952 says.
    let name = Name::from_str_relaxed(text).map_err(|_| ResolveError::Malformed)?;
    if name.num_labels() == 0 { Err(ResolveError::Malformed) } else { Ok(name) }
}

fn is_localhost(name: &Name) -> bool {
    name.iter().next_back().is_some_and(|label| label.eq_ignore_ascii_case(b"localhost"))
}

async fn in_dns(conf: &Conf, name: &Name) -> Found {
    along_search(conf, name, |candidate| async move { both_families(conf, &candidate).await }).await
}

async fn services(conf: &Conf, name: &Name) -> Result<Services, ResolveError> {
    along_search(conf, name, |candidate| async move {
        let Records { data, ttl } = ask(conf, &candidate, RecordType::SRV).await?;
        let served = data.into_iter().filter_map(|record| match record {
            RData::SRV(srv) => Some(srv),
            _ => None,
        });
        // A target that is the root says that there is no such service (RFC 2782).
        let served = served.filter(|srv| !srv.target.is_root()).map(|srv| Service {
            priority: srv.priority,
            weight: srv.weight,
            target: srv.target.to_ascii().into(),
            port: srv.port,
        });
        Services::new(served.collect(), ttl)
    })
    .await
}

/// What the first candidate stands for that stands for anything; else what says most about all of them.
async fn along_search<T, F>(conf: &Conf, name: &Name, look_up: impl Fn(Name) -> F) -> Result<T, ResolveError>
where
    F: Future<Output = Result<T, ResolveError>>,
{
    let mut says_most = ResolveError::NoName;
    for candidate in conf.candidates(name) {
        match look_up(candidate).await {
            Ok(found) => return Ok(found),
            Err(ResolveError::NoName) => {}
            Err(error) if says_most.is_definite() => says_most = error,
            Err(_) => {}
        }
    }
    Err(says_most)
}

async fn both_families(conf: &Conf, name: &Name) -> Found {
    let mut v6 = pin!(family(conf, name, RecordType::AAAA));
    let mut v4 = pin!(family(conf, name, RecordType::A));
    let (v6, v4) = tokio::select! {
        first = &mut v6 => {
            let second = second(&first, v4).await;
            (first, second)
        }
        first = &mut v4 => {
            let second = second(&first, v6).await;
            (second, first)
        }
    };
    joined(v6, v4)
}

/// The other family, for as long as it is worth waiting for.
async fn second(first: &Found, other: Pin<&mut impl Future<Output = Found>>) -> Found {
    if first.is_err() {
        return other.await;
    }
    let late = || ResolveError::NoAnswer("the other family was not waited for".into());
    tokio::time::timeout(RESOLUTION_DELAY, other).await.unwrap_or_else(|_| Err(late()))
}

fn joined(v6: Found, v4: Found) -> Found {
    match (v6, v4) {
        (Ok(v6), Ok(v4)) => {
            Answer::with_scopes(v6.addresses.iter().chain(&*v4.addresses).copied(), v6.holds.min(v4.holds))
        }
        (Ok(one), Err(error)) | (Err(error), Ok(one)) => {
            // What nobody has answered yet may be there a moment later.
            let holds = if error.is_definite() { one.holds } else { SHORTEST };
            Ok(Answer { holds, ..one })
        }
        (Err(ResolveError::NoName), Err(ResolveError::NoName)) => Err(ResolveError::NoName),
        (Err(v6), Err(v4)) => match (v6.is_definite(), v4.is_definite()) {
            (true, true) => Err(ResolveError::NoAddress),
            (false, _) => Err(v6),
            (true, false) => Err(v4),
        },
    }
}

async fn family(conf: &Conf, name: &Name, kind: RecordType) -> Found {
    let Records { data, ttl } = ask(conf, name, kind).await?;
    Answer::new(data.iter().filter_map(RData::ip_addr), ttl)
}

/// What the name servers say about one name, all of it used for as long as its shortest-lived part.
struct Records {
    data: Vec<RData>,
    ttl: Duration,
}

/// Asks the name servers in turn; that there is no such name is an answer as well.
async fn ask(conf: &Conf, name: &Name, kind: RecordType) -> Result<Records, ResolveError> {
    let mut ways = Vec::new();
    for server in &conf.servers {
        ways.push(ask_one(server.clone(), name.clone(), kind));
    }
    match first_to_succeed(ways, HEAD_START).await {
        Ok(answered) => answered,
        Err(error) => {
            Err(ResolveError::NoAnswer(error.map_or("there is none".into(), |error| error.to_string().into())))
        }
    }
}

async fn ask_one(
    server: TokioResolver,
    name: Name,
    kind: RecordType,
) -> Result<Result<Records, ResolveError>, NetError> {
    match server.lookup(name, kind).await {
        Ok(found) => Ok(records(&found)),
        Err(NetError::Dns(DnsError::NoRecordsFound(nothing))) => Ok(Err(match nothing.response_code {
            ResponseCode::NXDomain => ResolveError::NoName,
            _ => ResolveError::NoAddress,
        })),
        Err(error) => Err(error),
    }
}

fn records(found: &Lookup) -> Result<Records, ResolveError> {
    let ttl = found.answers().iter().map(|record| record.ttl).min().ok_or(ResolveError::NoAddress)?;
    let data = found.answers().iter().map(|record| record.data.clone()).collect();
    Ok(Records { data, ttl: Duration::from_secs(ttl.into()) })
}

/// What the system's own resolver says.
async fn elsewhere(threads: &Arc<Semaphore>, name: String) -> Found {
    let failed = |error| ResolveError::System(Arc::new(error));
    // Held by the thread, which may take longer than anybody waits.
    let thread = Arc::clone(threads).acquire_owned().await.expect("never closed");
    let asked = tokio::task::spawn_blocking(move || {
        let found = (&*name, 0).to_socket_addrs().map(Vec::from_iter);
        drop(thread);
        found
    });
    let found = asked.await.unwrap_or_else(|ended| Err(io::Error::other(ended))).map_err(failed)?;
    Answer::with_scopes(found, WITHOUT_TTL)
}
