//! Many callers at once, each on a connection of its own, and what became of their calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::client::{Client, Failure, Response};

/// What became of the calls.
#[derive(Debug, Default)]
pub struct Tally {
    /// Answers by status.
    pub statuses: BTreeMap<u16, usize>,
    /// The proxy's own answers by reason.
    pub reasons: BTreeMap<String, usize>,
    /// Calls without a whole answer.
    pub failures: Vec<String>,
    /// Connections that the proxy closed although it had not announced it.
    pub closed: usize,
    /// Connections that were refused: nobody listened.
    pub refused: usize,
    /// Connections made.
    pub connections: usize,
}

impl Tally {
    /// Answers with status 200.
    pub fn ok(&self) -> usize {
        self.statuses.get(&200).copied().unwrap_or(0)
    }

    /// Answers in all.
    pub fn answers(&self) -> usize {
        self.statuses.values().sum()
    }

    /// Adds what other callers came to.
    pub fn add(&mut self, other: Tally) {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        self.failures.extend(other.failures);
        self.closed += other.closed;
        self.refused += other.refused;
        self.connections += other.connections;
    }

    fn count(&mut self, response: &Response) {
        *self.statuses.entry(response.status).or_default() += 1;
        if let Some(reason) = response.reason() {
            *self.reasons.entry(reason.to_owned()).or_default() += 1;
        }
    }
}

/// What callers ask for.
#[derive(Clone)]
pub struct Ask {
    /// Method.
    pub method: &'static str,
    /// Target.
    pub target: String,
    /// Fields.
    pub fields: Vec<(&'static str, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Ask {
    /// `GET /`.
    pub fn get() -> Ask {
        Ask { method: "GET", target: "/".to_owned(), fields: Vec::new(), body: Vec::new() }
    }

    /// `POST /` with a small body.
    pub fn post() -> Ask {
        Ask { method: "POST", body: b"{}".to_vec(), ..Ask::get() }
    }

    /// With one more field.
    pub fn field(mut self, name: &'static str, value: impl Into<String>) -> Ask {
        self.fields.push((name, value.into()));
        self
    }

    fn make(&self, client: &mut Client) -> Result<Response, Failure> {
        let fields: Vec<(&str, &str)> = self.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        client.try_call(self.method, &self.target, &fields, &self.body)
    }
}

/// Callers that go on until they are told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    tally: Arc<Mutex<Tally>>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts `callers` callers of `address`, one call after the other on keep-alive connections.
    pub fn start(address: SocketAddr, callers: usize, ask: &Ask) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(AtomicUsize::new(0));
        let tally = Arc::new(Mutex::new(Tally::default()));
        let spawn = |_| {
            let (stop, answers, tally, ask) = (stop.clone(), answers.clone(), tally.clone(), ask.clone());
            std::thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn(move || {
                    let own = call_until(address, &ask, &stop, &answers);
                    tally.lock().unwrap_or_else(PoisonError::into_inner).add(own);
                })
                .expect("a thread can be started")
        };
        let callers = (0..callers).map(spawn).collect();
        Load { stop, answers, tally, callers }
    }

    /// Answers so far.
    pub fn answers(&self) -> usize {
        self.answers.load(Ordering::SeqCst)
    }

    /// Waits until `more` further answers have come.
    #[track_caller]
    pub fn wait_for_more(&self, more: usize) {
        let wanted = self.answers() + more;
        crate::eventually("more calls are answered", || self.answers() >= wanted || self.ended());
    }

    /// Whether every caller has stopped by itself, as they do when nobody listens any more.
    pub fn ended(&self) -> bool {
        self.callers.iter().all(JoinHandle::is_finished)
    }

    /// Lets the calls in progress end, and adds up.
    pub fn finish(self) -> Tally {
        self.stop.store(true, Ordering::SeqCst);
        for caller in self.callers {
            caller.join().expect("callers do not panic");
        }
        std::mem::take(&mut *self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn call_until(address: SocketAddr, ask: &Ask, stop: &AtomicBool, answers: &AtomicUsize) -> Tally {
    let mut tally = Tally::default();
    let mut client = None;
    while !stop.load(Ordering::SeqCst) {
        let open = match client.take() {
            Some(open) => open,
            None => match Client::try_connect(address) {
                Ok(open) => {
                    tally.connections += 1;
                    open
                }
                Err(_) => {
                    tally.refused += 1;
                    return tally;
                }
            },
        };
        let mut open: Client = open;
        match ask.make(&mut open) {
            Ok(response) => {
                tally.count(&response);
                answers.fetch_add(1, Ordering::SeqCst);
                if response.keeps_alive() {
                    client = Some(open);
                }
            }
            Err(failure) => {
                tally.failures.push(format!("{failure:?}"));
                tally.closed += 1;
            }
        }
    }
    tally
}

/// Makes one call by each of `callers` callers at once, and returns every answer.
pub fn at_once(address: SocketAddr, callers: usize, ask: &Ask) -> Vec<Result<Response, Failure>> {
    let call = |_| {
        let ask = ask.clone();
        std::thread::Builder::new()
            .stack_size(256 * 1024)
            .spawn(move || ask.make(&mut Client::try_connect(address).map_err(Failure::NoAnswer)?))
            .expect("a thread can be started")
    };
    let callers: Vec<_> = (0..callers).map(call).collect();
    callers.into_iter().map(|caller| caller.join().expect("callers do not panic")).collect()
}
