//! Several ways to one end, of which one suffices: each has a head start over the next, and the first to get there wins.
//!
//! ```text
//!   a |----------- head start ----------|------ ...
//!   b                                   |------- x        fails: the next begins at once
//!   c                                            |--- wins, a is dropped
//! ```
//!
//! This is how RFC 8305, section 5, wants connections made to the addresses of a name, and it serves as well for asking
//! name servers of which one is dead.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// What the first of `ways` to succeed gives; the others are dropped. Each begins `head_start` after the one before, or
/// as soon as one has failed.
///
/// # Errors
/// What the last to fail said; `None` without any way.
pub async fn first_to_succeed<F, T, E>(ways: impl IntoIterator<Item = F>, head_start: Duration) -> Result<T, Option<E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut race = Race { ways: ways.into_iter(), running: Vec::new(), head_start, failed: None };
    let mut next = pin!(sleep(Duration::ZERO));
    race.begin(next.as_mut());
    poll_fn(|cx| race.poll(next.as_mut(), cx)).await
}

struct Race<I, F, E> {
    ways: I,
    running: Vec<Pin<Box<F>>>,
    head_start: Duration,
    failed: Option<E>,
}

impl<I, F, T, E> Race<I, F, E>
where
    I: Iterator<Item = F>,
    F: Future<Output = Result<T, E>>,
{
    fn poll(&mut self, mut next: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<Result<T, Option<E>>> {
        loop {
            let before = self.running.len();
            if let Some(won) = self.poll_running(cx) {
                return Poll::Ready(Ok(won));
            }
            let due = self.running.len() < before || next.as_mut().poll(cx).is_ready();
            if !(due && self.begin(next.as_mut())) {
                break;
            }
        }
        if self.running.is_empty() { Poll::Ready(Err(self.failed.take())) } else { Poll::Pending }
    }

    fn poll_running(&mut self, cx: &mut Context<'_>) -> Option<T> {
        let mut won = None;
        self.running.retain_mut(|way| {
            if won.is_some() {
                return true;
            }
            match way.as_mut().poll(cx) {
                Poll::Pending => return true,
                Poll::Ready(Ok(value)) => won = Some(value),
                Poll::Ready(Err(error)) => self.failed = Some(error),
            }
            false
        });
        won
    }

    /// Whether there was another way.
    fn begin(&mut self, next: Pin<&mut Sleep>) -> bool {
        let Some(way) = self.ways.next() else { return false };
        self.running.push(Box::pin(way));
        next.reset(Instant::now() + self.head_start);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const HEAD_START: Duration = Duration::from_millis(250);

    /// A way that takes `millis`, and then wins or fails with its own name.
    struct Way {
        name: &'static str,
        millis: u64,
        wins: bool,
    }

    /// What comes of `ways`, when in milliseconds each began, and when it was over.
    async fn race(ways: &[Way]) -> (Result<&'static str, Option<&'static str>>, Vec<(&'static str, u128)>, u128) {
        let (start, begun) = (Instant::now(), RefCell::new(Vec::new()));
        let ways = ways.iter().map(|way| {
            let begun = &begun;
            async move {
                begun.borrow_mut().push((way.name, start.elapsed().as_millis()));
                sleep(Duration::from_millis(way.millis)).await;
                if way.wins { Ok(way.name) } else { Err(way.name) }
            }
        });
        let result = first_to_succeed(ways, HEAD_START).await;
        (result, begun.into_inner(), start.elapsed().as_millis())
    }

    const fn wins(name: &'static str, millis: u64) -> Way {
        Way { name, millis, wins: true }
    }

    const fn fails(name: &'static str, millis: u64) -> Way {
        Way { name, millis, wins: false }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_way_waits_for_the_head_start_of_the_one_before() {
        let prompt = race(&[wins("a", 100), wins("b", 0)]).await;
        assert_eq!(prompt, (Ok("a"), vec![("a", 0)], 100));
        let slow = race(&[wins("a", 10_000), wins("b", 10_000), wins("c", 30)]).await;
        assert_eq!(slow, (Ok("c"), vec![("a", 0), ("b", 250), ("c", 500)], 530));
        let overtaken = race(&[wins("a", 300), wins("b", 100)]).await;
        assert_eq!(overtaken, (Ok("a"), vec![("a", 0), ("b", 250)], 300));
    }

    #[tokio::test(start_paused = true)]
    async fn a_way_that_fails_lets_the_next_begin_at_once_and_with_a_head_start_of_its_own() {
        let raced = race(&[fails("a", 10), wins("b", 1_000), fails("c", 50), wins("d", 1)]).await;
        assert_eq!(raced, (Ok("d"), vec![("a", 0), ("b", 10), ("c", 260), ("d", 310)], 311));
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_fail_the_last_failure_is_told() {
        let raced = race(&[fails("a", 400), fails("b", 10)]).await;
        assert_eq!(raced, (Err(Some("a")), vec![("a", 0), ("b", 250)], 400));
        assert_eq!(race(&[]).await, (Err(None), vec![], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_that_are_there_at_once_the_one_before_wins() {
        let raced = race(&[fails("a", 0), wins("b", 250), wins("c", 0), wins("d", 0)]).await;
        assert_eq!((raced.0, raced.2), (Ok("b"), 250));
    }
}
