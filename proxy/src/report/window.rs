//! The last 30 s of one dependency, in slices of a second.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::Percentiles;
use super::stats::{Slot, new_histogram};

/// Seconds that percentiles and rates look back.
const SLICES: usize = 30;

/// Below this many samples a percentile is chance; nothing is decided on it and nothing is shown.
pub const MIN_SAMPLES: u64 = 50;

/// One dependency's recent past. [`Window::add`] at any time, [`Window::roll`] once a second.
#[derive(Debug, Default)]
pub(super) struct Window {
    current: Slice,
    past: VecDeque<Slice>,
}

/// Histograms of one second, as the few values that occurred: thirty dense ones would be half a megabyte each.
#[derive(Debug, Default)]
struct Slice {
    calls: u64,
    latency: Vec<(u64, u32)>,
}

impl Window {
    pub fn add(&mut self, slot: &Slot) {
        let slice = &mut self.current;
        slice.calls += slot.ended.iter().sum::<u64>();
        copy_values(&mut slice.latency, slot.latency.as_deref());
    }

    pub fn roll(&mut self) {
        if self.past.len() == SLICES {
            self.past.pop_front();
        }
        self.past.push_back(std::mem::take(&mut self.current));
    }

    /// Nothing happened in the last 30 s.
    pub fn is_quiet(&self) -> bool {
        self.slices().all(|slice| slice.calls == 0)
    }

    /// Calls per second over the whole seconds that are here; 0 before the first.
    pub fn calls_per_second(&self) -> f64 {
        let calls: u64 = self.past.iter().map(|slice| slice.calls).sum();
        if self.past.is_empty() { 0.0 } else { calls as f64 / self.past.len() as f64 }
    }

    pub fn percentiles(&self, scratch: &mut Scratch) -> Option<Percentiles> {
        let latency = scratch.fill(self.slices().map(|slice| &slice.latency));
        if latency.len() < MIN_SAMPLES {
            return None;
        }
        let at = |quantile| Duration::from_micros(latency.value_at_quantile(quantile));
        Some(Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), samples: latency.len() })
    }

    fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.past.iter().chain(std::iter::once(&self.current))
    }
}

fn copy_values(into: &mut Vec<(u64, u32)>, histogram: Option<&Histogram<u32>>) {
    let Some(histogram) = histogram else { return };
    into.extend(histogram.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())));
}

/// A histogram to add slices up in, kept so that once a second does not mean an allocation for each dependency.
#[derive(Debug)]
pub(super) struct Scratch(Box<Histogram<u32>>);

impl Default for Scratch {
    fn default() -> Self {
        Scratch(new_histogram())
    }
}

impl Scratch {
    fn fill<'a>(&mut self, slices: impl Iterator<Item = &'a Vec<(u64, u32)>>) -> &Histogram<u32> {
        self.0.reset();
        for &(value, count) in slices.flatten() {
            self.0.saturating_record_n(value, count);
        }
        &self.0
    }
}
