//! The end of the demo: the numbers side by side, what they prove, and whether they do.

use std::time::Duration;

use super::customers::Habits;
use super::measure::Figures;
use super::services::{PaymentsNumbers, RailNumbers};
use crate::figures::{count, latency, percent, plural};
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Table};

/// With policy, the healthy rails' p99 is at most this many times what it was before.
const KEPT_WITHIN: f64 = 1.5;
/// Without, it is at least this many times: "several".
const SUFFERS_FROM: f64 = 3.0;
/// A p99 of fewer calls is one slow call.
const ENOUGH_CALLS: u64 = 200;

/// What was measured from the moment the rail turned slow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// Calls by the rails that are well.
    pub healthy: Figures,
    /// Calls by the rail that turned slow.
    pub slow: Figures,
    /// That rail's own count.
    pub slow_rail: RailNumbers,
    /// The payment service's own count.
    pub payments: PaymentsNumbers,
}

/// The whole demo.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The rail that turned slow.
    pub slow_rail: String,
    /// Slots of the payment service.
    pub pool: u64,
    /// The healthy rails in both runs, while every rail was well.
    pub before: Figures,
    /// Without policy.
    pub without: Run,
    /// With it.
    pub with: Run,
}

/// Something that this run was to show.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Whether it did.
    pub held: bool,
    /// In words, with the measured figure.
    pub text: String,
}

impl Summary {
    /// What the run was to show, each with whether it did.
    pub fn claims(&self) -> Vec<Claim> {
        let with = times(self.with.healthy.p99, self.reference());
        let without = times(self.without.healthy.p99, self.reference());
        vec![
            Claim {
                held: with <= KEPT_WITHIN && self.enough(),
                text: format!(
                    "with policy the healthy rails' p99 is {with:.2}x what it was before the slow rail (claimed: at most {KEPT_WITHIN}x)"
                ),
            },
            Claim {
                held: without >= SUFFERS_FROM && self.enough(),
                text: format!(
                    "without policy it is {without:.1}x (claimed: several times, {SUFFERS_FROM:.0}x or more)"
                ),
            },
        ]
    }

    /// What the healthy rails' p99 is compared with: what it was before, unless other work on the machine disturbed
    /// that. An undisturbed p99 is about 1.5 medians here; a disturbed one must not make the claims easy.
    fn reference(&self) -> Duration {
        self.before.p99.min(2 * self.before.p50)
    }

    fn enough(&self) -> bool {
        let runs = [self.before.calls, self.without.healthy.calls, self.with.healthy.calls];
        runs.iter().all(|calls| *calls >= ENOUGH_CALLS)
    }

    /// Whether the run showed all of it.
    pub fn held(&self) -> bool {
        self.claims().iter().all(|claim| claim.held)
    }

    /// The page.
    pub fn render(&self, paint: Paint) -> String {
        let mut lines = vec![paint.apply(Tone::Strong, "Measured in this run, as the customers saw it"), String::new()];
        lines.extend(self.table().lines(paint));
        lines.push(String::new());
        lines.push(self.headline());
        lines.push(String::new());
        for claim in self.claims() {
            let mark =
                if claim.held { paint.apply(Tone::Good, "holds") } else { paint.apply(Tone::Bad, "DOES NOT HOLD") };
            lines.push(format!("{mark}: {}", claim.text));
        }
        if self.reference() < self.before.p99 {
            lines.push(format!(
                "Other work on this machine disturbed BEFORE: compared with twice its p50, {}, instead of its p99.",
                latency(self.reference())
            ));
        }
        if !self.enough() {
            lines.push(format!("Too few calls to judge by: a p99 needs {ENOUGH_CALLS} in each column."));
        }
        if !self.held() {
            lines.push("Something in this run was not as claimed. On a machine that is busy with other work, try again when it is not;".into());
            lines.push("if it stays so, please report it with the lines above.".into());
        }
        lines.join("\n") + "\n"
    }

    fn headline(&self) -> String {
        let lost = |run: &Run| {
            let unpaid = run.healthy.failed + run.healthy.open;
            percent(unpaid as f64 * 100.0 / run.healthy.calls.max(1) as f64)
        };
        format!(
            "One slow rail cost {} of the payments by the healthy ones without policy, {} with it.",
            lost(&self.without),
            lost(&self.with)
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("", Align::Left),
            ("BEFORE", Align::Right),
            ("WITHOUT POLICY", Align::Right),
            ("WITH POLICY", Align::Right),
        ]);
        let (without, with) = (&self.without, &self.with);
        let slow = &self.slow_rail;
        let mut row = |name: String, before: Option<String>, a: String, b: String| {
            let before = before.map_or_else(Cell::none, Cell::from);
            table.row([name.into(), before, a.into(), b.into()]);
        };
        let figures = |of: fn(&Figures) -> String| (of(&self.before), of(&without.healthy), of(&with.healthy));
        let (b, x, y) = figures(|f| latency(f.p50));
        row("healthy rails: p50".into(), Some(b), x, y);
        let (b, x, y) = figures(|f| latency(f.p99));
        row("healthy rails: p99".into(), Some(b), x, y);
        let (b, x, y) = figures(unpaid);
        row("healthy rails: calls not paid".into(), Some(b), x, y);
        row(format!("{slow} (slow): calls not paid"), None, unpaid(&without.slow), unpaid(&with.slow));
        row(
            format!("{slow} (slow): customer knows after, p50"),
            None,
            latency(without.slow.p50),
            latency(with.slow.p50),
        );
        let repeated = |f: &Figures, run: &Run| count(f.retries + run.slow.retries);
        row(
            "calls repeated by customers".into(),
            Some(count(self.before.retries)),
            repeated(&without.healthy, without),
            repeated(&with.healthy, with),
        );
        let in_flight = |run: &Run| count(run.slow_rail.most_in_flight);
        row(format!("in flight at {slow}, most at once"), None, in_flight(without), in_flight(with));
        let slots = |run: &Run| count(run.payments.most_busy);
        row(format!("payment service: slots in use, of {}", self.pool), None, slots(without), slots(with));
        let waiting = |run: &Run| count(run.payments.most_waiting);
        row("payment service: calls waiting for a slot".into(), None, waiting(without), waiting(with));
        table
    }
}

/// Refused, given up, or still without an answer.
fn unpaid(figures: &Figures) -> String {
    format!("{} of {}", count(figures.failed + figures.open), count(figures.calls))
}

fn times(later: Duration, before: Duration) -> f64 {
    later.as_secs_f64() / before.as_secs_f64().max(1e-9)
}

/// What customers do, in a sentence.
pub fn habits(habits: &Habits) -> String {
    format!(
        "Customers make {} a second by each rail, wait {} for an answer\n\
         and, hearing nothing, try up to {} times.",
        plural(u64::from(habits.rate), "call"),
        crate::figures::span(habits.patience),
        habits.attempts
    )
}

#[cfg(test)]
mod tests;
