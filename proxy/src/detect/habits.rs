//! What destinations were found to speak, so that the next connection costs no wait.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_resilience::time::Timestamp;

/// Destinations that are remembered. Callers choose where they connect to, so they are bounded; one that is not
/// remembered costs its next connection a moment and nothing else.
const CAPACITY: usize = 4096;
/// How long a destination is remembered after its last connection.
const REMEMBERED: Duration = Duration::from_secs(600);

/// How connections to a destination have gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// HTTP or TLS: the caller speaks first, and where to may depend on what it says.
    CallerFirst,
    /// Something else: the connection to the destination is needed in any case, and the server may speak first.
    Opaque,
}

/// The habits of destinations, shared by all workers. A hint and no more: the bytes of a connection decide.
#[derive(Debug, Default)]
pub struct Habits {
    known: Mutex<HashMap<SocketAddr, (Habit, Timestamp)>>,
}

impl Habits {
    /// The habit of `destination`, if it is known.
    #[must_use]
    pub fn of(&self, destination: SocketAddr, now: Timestamp) -> Option<Habit> {
        let (habit, seen) = self.lock().get(&destination).copied()?;
        (now.saturating_since(seen) < REMEMBERED).then_some(habit)
    }

    /// A connection to `destination` has turned out like this.
    pub fn learn(&self, destination: SocketAddr, habit: Habit, now: Timestamp) {
        let mut known = self.lock();
        if known.len() >= CAPACITY && !known.contains_key(&destination) {
            known.retain(|_, (_, seen)| now.saturating_since(*seen) < REMEMBERED);
            if known.len() >= CAPACITY {
                return;
            }
        }
        known.insert(destination, (habit, now));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, (Habit, Timestamp)>> {
        // Whole at any moment.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn destination(number: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 5432))
    }

    #[test]
    fn a_habit_is_corrected_and_forgotten() {
        let habits = Habits::default();
        assert_eq!(habits.of(destination(0), at(1)), None);
        habits.learn(destination(0), Habit::Opaque, at(1));
        assert_eq!(habits.of(destination(0), at(2)), Some(Habit::Opaque));
        habits.learn(destination(0), Habit::CallerFirst, at(2));
        assert_eq!(habits.of(destination(0), at(601)), Some(Habit::CallerFirst));
        assert_eq!(habits.of(destination(0), at(602)), None);
    }

    #[test]
    fn a_flood_of_destinations_is_bounded_and_displaces_nobody() {
        let habits = Habits::default();
        (0..2 * CAPACITY).for_each(|number| habits.learn(destination(number), Habit::Opaque, at(1)));
        assert_eq!(habits.lock().len(), CAPACITY);
        assert_eq!(habits.of(destination(0), at(2)), Some(Habit::Opaque));
        assert_eq!(habits.of(destination(CAPACITY), at(2)), None);
        habits.learn(destination(CAPACITY), Habit::CallerFirst, at(700));
        assert_eq!(habits.of(destination(CAPACITY), at(700)), Some(Habit::CallerFirst));
        assert_eq!(habits.lock().len(), 1, "what has expired made room");
    }
}
