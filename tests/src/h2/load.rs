//! Many callers at once: connections with several calls on each, one after the other on every stream.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Answer, Session, frame, request};
use crate::load::Tally;

/// Callers that go on until they are told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    tally: Arc<Mutex<Tally>>,
    connections: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts `connections` connections to `address` with `streams` calls each at any time: `POST /` with a small body.
    pub fn start(address: SocketAddr, connections: usize, streams: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(AtomicUsize::new(0));
        let tally = Arc::new(Mutex::new(Tally::default()));
        let spawn = |_| {
            let (stop, answers, tally) = (stop.clone(), answers.clone(), tally.clone());
            std::thread::spawn(move || {
                let own = call_until(address, streams, &stop, &answers);
                tally.lock().unwrap_or_else(PoisonError::into_inner).add(own);
            })
        };
        let connections = (0..connections).map(spawn).collect();
        Load { stop, answers, tally, connections }
    }

    /// Waits until `more` further answers have come.
    #[track_caller]
    pub fn wait_for_more(&self, more: usize) {
        let wanted = self.answers.load(Ordering::SeqCst) + more;
        let enough = || self.answers.load(Ordering::SeqCst) >= wanted || self.ended();
        crate::eventually("more calls are answered", enough);
    }

    /// Whether every caller has stopped by itself, as they do when nobody listens any more.
    pub fn ended(&self) -> bool {
        self.connections.iter().all(JoinHandle::is_finished)
    }

    /// Lets the calls in progress end, and adds up.
    pub fn finish(self) -> Tally {
        self.stop.store(true, Ordering::SeqCst);
        for connection in self.connections {
            connection.join().expect("callers do not panic");
        }
        std::mem::take(&mut *self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One connection after the other, each until its GOAWAY. A call above its last id, or reset with REFUSED_STREAM, was
/// never begun: it is made again, as every client does.
fn call_until(address: SocketAddr, streams: usize, stop: &AtomicBool, answers: &AtomicUsize) -> Tally {
    let mut tally = Tally::default();
    while !stop.load(Ordering::SeqCst) {
        let Ok(mut session) = Session::open(address, &[]) else {
            tally.refused += 1;
            break;
        };
        tally.connections += 1;
        call_on(&mut session, streams, stop, answers, &mut tally);
    }
    tally
}

fn call_on(session: &mut Session, streams: usize, stop: &AtomicBool, answers: &AtomicUsize, tally: &mut Tally) {
    let mut open: Vec<u32> = Vec::new();
    loop {
        let leaves = stop.load(Ordering::SeqCst) || !session.goaways.is_empty();
        while !leaves && open.len() < streams {
            let stream = session.begin(&request("POST", "/"), false);
            session.send(frame::data(stream, true, b"{}"));
            open.push(stream);
        }
        if open.is_empty() {
            return;
        }
        let over = |session: &Session, stream: &u32| session.streams.get(stream).is_some_and(super::Stream::is_over);
        let last = |session: &Session| session.goaways.iter().map(|(last, _)| *last).min().unwrap_or(u32::MAX);
        let refused = |session: &Session, stream: &u32| *stream > last(session);
        let known = session.goaways.len();
        let alive = session.wait_for(Duration::from_secs(30), |session| {
            session.goaways.len() > known || open.iter().any(|stream| over(session, stream))
        });
        let lost = !alive;
        open.retain(|stream| {
            if refused(session, stream) {
                return false;
            }
            if !over(session, stream) && !lost {
                return true;
            }
            let found = session.streams.remove(stream).unwrap_or_default();
            if found.reset != Some(frame::code::REFUSED_STREAM) {
                count(tally, found.answer(), &found, answers);
            }
            false
        });
        if lost {
            tally.closed += 1;
            return;
        }
    }
}

fn count(tally: &mut Tally, answer: Option<Answer>, stream: &super::Stream, answers: &AtomicUsize) {
    match answer {
        Some(answer) if answer.ended => {
            *tally.statuses.entry(answer.status).or_default() += 1;
            if let Some(reason) = answer.reason() {
                *tally.reasons.entry(reason.to_owned()).or_default() += 1;
            }
            answers.fetch_add(1, Ordering::SeqCst);
        }
        _ => tally.failures.push(format!("{stream:?}")),
    }
}
