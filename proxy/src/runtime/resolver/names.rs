//! Which name is looked up next, and whom its answer is for. Is told the time, and asks nobody itself.
//!
//! ```text
//!           ask                poll_next                on_answer
//!   nobody -----> queued (lane) -----> running (a place) ------> held, everyone told
//!                   |  nobody waits any more                      |  its time is over
//!                   +------------> forgotten                      +---> nobody
//! ```
//!
//! It keeps a name whose look-up hangs from sinking the others:
//! - A name is looked up once at a time, whoever asks meanwhile waits for the same answer. The port plays no part.
//! - A failure is an answer too and is held, for a shorter time: a dead name that is asked for all the time costs one
//!   look-up a second.
//! - What took long last time takes a place for long: slow names share few places, names never heard of share more,
//!   and names that were quick may use all. Within a lane first come, first served.
//! - A look-up that nobody waits for any more is not begun. Past [`MOST`] names the next is refused at once.
//! - What was true an hour ago serves who would otherwise be told that no name server has answered (RFC 8767). Who asks
//!   when the time of an answer is over is told it along with the place in the queue, for when the wait gets long.
//!
//! There is one of these for the names of dependencies and one for all others, so that names which no policy lists keep
//! no dependency from its own.
//!
//! Not done: an answer is not renewed before it is asked for again.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::answer::{Answer, Found, ResolveError};

/// How long a failure is repeated without asking: as short as a caller may wait who has just created the name.
const FAILURE_HOLDS: Duration = Duration::from_secs(1);
/// How long an answer is of use beyond its time, when there is no other.
const OUTLIVES: Duration = Duration::from_secs(3600);
/// A look-up that takes longer is slow: a server that is silent costs 5 s by default, a local answer some milliseconds.
const PROMPT: Duration = Duration::from_secs(1);
/// Answers kept: callers choose the names.
const MOST_HELD: usize = 1024;
/// Names queued or running.
pub const MOST: usize = 256;
/// Bytes of the longest DNS name, with the dot at its end. What is longer is not worth keeping.
pub const LONGEST: usize = 254;

/// What there is for whoever asks.
#[derive(Debug)]
pub enum Asked {
    /// All there is to say.
    Answered(Found),
    /// The answer will be told here. Dropping it is no longer waiting.
    Waits {
        /// Holds nothing until then.
        told: watch::Receiver<Option<Found>>,
        /// What was known before, if it may still be of use.
        before: Option<Answer>,
    },
}

/// See the module documentation. After each [`Self::ask`] and each [`Self::on_answer`], [`Self::poll_next`] gives the one
/// name that may have got its turn by that.
#[derive(Debug, Default)]
pub struct Names {
    held: HashMap<Arc<str>, Held>,
    flights: HashMap<Arc<str>, Flight>,
    /// Per lane.
    queued: [VecDeque<Arc<str>>; LANES],
    /// Per lane.
    running: [usize; LANES],
}

#[derive(Debug)]
struct Held {
    found: Found,
    until: Instant,
    /// Until when it is better than none, if it is an answer.
    outlives: Instant,
    prompt: bool,
}

/// A look-up, queued or running.
#[derive(Debug)]
struct Flight {
    lane: Lane,
    begun: Option<Instant>,
    told: watch::Sender<Option<Found>>,
}

/// Names by how long they are likely to take a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Prompt,
    New,
    Slow,
}

const LANES: usize = 3;

impl Lane {
    const ALL: [Self; LANES] = [Self::Prompt, Self::New, Self::Slow];

    /// Places that this lane and those behind it take together.
    const fn room(self) -> usize {
        match self {
            Self::Prompt => 32,
            Self::New => 24,
            Self::Slow => 8,
        }
    }
}

/// An answer of before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recalled {
    /// The answer.
    pub answer: Answer,
    /// Whether it holds still.
    pub fresh: bool,
}

impl Names {
    /// The last answer, while it is of use.
    #[must_use]
    pub fn recall(&self, name: &str, now: Instant) -> Option<Recalled> {
        let held = self.held.get(&*folded(name))?;
        let answer = held.found.as_ref().ok().filter(|_| now < held.outlives)?.clone();
        Some(Recalled { answer, fresh: now < held.until })
    }

    /// What there is for someone who asks for `name` at `now`.
    pub fn ask(&mut self, name: &str, now: Instant) -> Asked {
        if name.len() > LONGEST {
            return Asked::Answered(Err(ResolveError::TooLong));
        }
        let name = folded(name);
        let before = match self.held.get(&*name) {
            Some(held) if now < held.until => return Asked::Answered(held.found.clone()),
            _ => self.recall(&name, now).map(|recalled| recalled.answer),
        };
        if let Some(flight) = self.flights.get(&*name) {
            return Asked::Waits { told: flight.told.subscribe(), before };
        }
        if self.flights.len() >= MOST {
            self.forget_abandoned();
        }
        if self.flights.len() >= MOST {
            return Asked::Answered(before.ok_or(ResolveError::Busy));
        }
        Asked::Waits { told: self.queue(name.into()), before }
    }

    /// The next name to look up, from `now` on.
    #[must_use = "its place is taken until `on_answer`"]
    pub fn poll_next(&mut self, now: Instant) -> Option<Arc<str>> {
        for lane in Lane::ALL {
            while self.has_room(lane)
                && let Some(name) = self.queued[lane as usize].pop_front()
            {
                let flight = self.flights.get_mut(&name).expect("what is queued has a flight");
                if flight.told.is_closed() {
                    self.flights.remove(&name);
                    continue;
                }
                flight.begun = Some(now);
                self.running[lane as usize] += 1;
                return Some(name);
            }
        }
        None
    }

    /// The look-up of a name that [`Self::poll_next`] gave has ended.
    pub fn on_answer(&mut self, name: &str, found: Found, now: Instant) {
        let ended = self.flights.remove_entry(name);
        let Some((name, Flight { lane, begun: Some(begun), told })) = ended else {
            debug_assert!(false, "{name} is not being looked up");
            return;
        };
        self.running[lane as usize] -= 1;
        let held = self.held_from(&name, found, now.saturating_duration_since(begun) <= PROMPT, now);
        told.send_replace(Some(held.found.clone()));
        self.hold(name, held);
    }

    fn held_from(&self, name: &str, found: Found, prompt: bool, now: Instant) -> Held {
        let until = now + found.as_ref().map_or(FAILURE_HOLDS, |answer| answer.holds);
        match found {
            Err(error) if !error.is_definite() => match self.held.get(name) {
                Some(Held { found: Ok(before), outlives, .. }) if now < *outlives => {
                    Held { found: Ok(before.clone()), until, outlives: *outlives, prompt }
                }
                _ => Held { found: Err(error), until, outlives: until, prompt },
            },
            found => Held { outlives: until + OUTLIVES, found, until, prompt },
        }
    }

    /// One more of `lane` takes a place from it and from the lanes before it.
    fn has_room(&self, lane: Lane) -> bool {
        let taken = |from: Lane| self.running[from as usize..].iter().sum::<usize>();
        Lane::ALL[..=lane as usize].iter().all(|lane| taken(*lane) < lane.room())
    }

    fn queue(&mut self, name: Arc<str>) -> watch::Receiver<Option<Found>> {
        let lane = match self.held.get(&name) {
            Some(held) if held.prompt => Lane::Prompt,
            Some(_) => Lane::Slow,
            None => Lane::New,
        };
        let (told, answer) = watch::channel(None);
        self.queued[lane as usize].push_back(Arc::clone(&name));
        self.flights.insert(name, Flight { lane, begun: None, told });
        answer
    }

    fn forget_abandoned(&mut self) {
        let flights = &mut self.flights;
        for queue in &mut self.queued {
            queue.retain(|name| {
                let waited_for = !flights[name].told.is_closed();
                if !waited_for {
                    flights.remove(name);
                }
                waited_for
            });
        }
    }

    /// Answers are kept beyond their time, for what they say about the next look-up, until there is need of room.
    fn hold(&mut self, name: Arc<str>, held: Held) {
        if self.held.len() >= MOST_HELD && !self.held.contains_key(&name) {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.until).map(|(name, _)| Arc::clone(name));
            oldest.and_then(|oldest| self.held.remove(&oldest));
        }
        self.held.insert(name, held);
    }
}

/// Names are the same in any case of letters; of names in different ones each would take a place.
fn folded(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}
