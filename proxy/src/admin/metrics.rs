//! `/metrics`: OpenMetrics, as contract.md section 4 names them.
//!
//! Everything is copied out of the totals first and encoded from the copy. Families are written one after the other,
//! each whole, as the format demands; a family without samples still has its help, so that it can be found.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_resilience::breaker::State;
use plimsoll_resilience::codes::GrpcCode;
use plimsoll_resilience::{Mode, Outcome, Reason};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::control::Facts;
use super::process;
use super::status::budget_remaining;
use crate::detect::Detected;
use crate::report::{
    ATTEMPT_KINDS, BOUNDS_US, Buckets, CLASSES, Dropped, MODES, OK_CLASS, RETRY_DENIED_CAUSES, Reading, SeriesName,
    Slot, TransitionCounts,
};

/// The media type that goes with [`page`].
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The whole page.
pub(super) fn page(facts: Facts, reading: &Reading<'_>) -> String {
    let mut registry = Registry::with_prefix("plimsoll");
    registry.register_collector(Box::new(Copied::new(facts, reading)));
    // The process basics have names of their own, without our prefix, and every dashboard knows them.
    let mut basics = Registry::default();
    basics.register_collector(Box::new(process::Basics::read()));
    let mut page = String::new();
    text::encode_registry(&mut page, &registry).expect("a String takes everything");
    text::encode(&mut page, &basics).expect("a String takes everything");
    page
}

#[derive(Debug)]
struct Copied {
    facts: Facts,
    series: Vec<(SeriesName, Slot)>,
    transitions: TransitionCounts,
    connections: (u64, u64),
    detections: [u64; Detected::ALL.len()],
    floods: [u64; 2],
    policies: (u64, u64),
    bugs: u64,
    dropped: Dropped,
}

impl Copied {
    fn new(facts: Facts, reading: &Reading<'_>) -> Self {
        Copied {
            facts,
            series: reading.series().map(|(name, slot)| (name.clone(), slot.clone())).collect(),
            transitions: reading.transitions(),
            connections: reading.connections(),
            detections: reading.detections(),
            floods: reading.floods(),
            policies: reading.policies(),
            bugs: reading.bugs(),
            dropped: reading.dropped(),
        }
    }
}

impl Collector for Copied {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        self.calls(encoder)?;
        self.attempts(encoder)?;
        self.refusals(encoder)?;
        self.bulkheads(encoder)?;
        self.circuits(encoder)?;
        self.circuit_rates(encoder)?;
        self.dependencies(encoder)?;
        self.process(encoder)
    }
}

impl Copied {
    fn calls(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Calls that ended, by the class of the status that the caller was sent";
        let mut family = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
        for (name, slot) in &self.series {
            // gRPC's own status is what counts there; HTTP's is 200 whatever happens.
            let grpc = slot.grpc.as_deref().map_or(&[][..], |grpc| grpc);
            let told_apart: u64 = grpc.iter().sum();
            for (class, &count) in CLASSES.iter().zip(&slot.ended) {
                let count = if *class == OK_CLASS { count.saturating_sub(told_apart) } else { count };
                if count > 0 {
                    counter(&mut family, &(series(name), [("code_class", *class)]), count)?;
                }
            }
            for (code, &count) in GrpcCode::ALL.iter().zip(grpc).filter(|(_, count)| **count > 0) {
                let labels = [("code_class", OK_CLASS), ("grpc_code", code.as_str())];
                counter(&mut family, &(series(name), labels), count)?;
            }
        }
        let help =
            ["Bytes of opaque connections that came from callers", "Bytes of opaque connections that went to callers"];
        for (side, (name, help)) in ["tcp_received_bytes", "tcp_sent_bytes"].into_iter().zip(help).enumerate() {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (name, slot) in self.series.iter().filter(|(_, slot)| slot.opaque_bytes[side] > 0) {
                counter(&mut family, &series(name), slot.opaque_bytes[side])?;
            }
        }
        let help = "From the arrival of a call's head to its end";
        self.durations(encoder, "request_duration", help, |slot| &slot.duration)?;
        let help = "What was left of the caller's deadline when its call arrived";
        self.durations(encoder, "deadline_remaining", help, |slot| &slot.deadline_remaining)
    }

    fn attempts(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family =
            encoder.encode_descriptor("attempts", "Attempts, by what they came to", None, MetricType::Counter)?;
        for (name, slot) in &self.series {
            for (kind, outcomes) in ATTEMPT_KINDS.iter().zip(&slot.attempts) {
                for (outcome, &count) in Outcome::ALL.iter().zip(outcomes).filter(|(_, count)| **count > 0) {
                    let labels = [("attempt", *kind), ("outcome", outcome.as_str())];
                    counter(&mut family, &(series(name), labels), count)?;
                }
            }
        }
        let help = "Retries that were worth a thought and not made";
        let mut family = encoder.encode_descriptor("retries_denied", help, None, MetricType::Counter)?;
        for (name, slot) in &self.series {
            let denied = RETRY_DENIED_CAUSES.iter().map(|cause| cause.as_str()).zip(slot.retries_denied);
            let observed = std::iter::once((Mode::Observe.as_str(), slot.retries_observed));
            for (cause, count) in denied.chain(observed).filter(|(_, count)| *count > 0) {
                counter(&mut family, &(series(name), [("cause", cause)]), count)?;
            }
        }
        Ok(())
    }

    fn refusals(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Calls refused or cut (mode Enforce), or that would have been (mode Observe)";
        let mut family = encoder.encode_descriptor("rejections", help, None, MetricType::Counter)?;
        for (name, slot) in &self.series {
            // The built-in series have no policy; their names have no slash.
            let policy = if name.dependency.contains('/') { name.dependency.as_str() } else { "" };
            for (mode, reasons) in MODES.iter().zip(&slot.refused) {
                for (reason, &count) in Reason::ALL.iter().zip(reasons).filter(|(_, count)| **count > 0) {
                    let labels = [("reason", reason.as_str()), ("policy", policy), ("mode", *mode)];
                    counter(&mut family, &(series(name), labels), count)?;
                }
            }
        }
        Ok(())
    }

    fn bulkheads(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Field = fn(&plimsoll_resilience::protection::BulkheadView) -> u32;
        let families: [(&str, &str, Field); 3] = [
            ("bulkhead_limit", "Calls that may be in flight", |view| view.limit),
            ("bulkhead_in_flight", "Permits that are out", |view| view.in_flight),
            ("bulkhead_queued", "Calls that wait for a permit", |view| view.queued),
        ];
        for (name, help, field) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for dependency in &self.facts.dependencies {
                for view in &dependency.protection.bulkheads {
                    let labels = [
                        ("dependency", dependency.name.as_str()),
                        ("route", view.route.as_deref().unwrap_or_default()),
                        ("mode", view.mode.as_str()),
                    ];
                    family.encode_family(&labels)?.encode_gauge(&field(view))?;
                }
            }
        }
        self.durations(encoder, "bulkhead_wait", "Time that queued calls waited for a permit", |slot| &slot.queue_wait)
    }

    fn circuits(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Breakers in each state: 1 and 0, or counts where every endpoint has one";
        let mut family = encoder.encode_descriptor("circuit_state", help, None, MetricType::Gauge)?;
        for (key, circuit) in &self.merged_circuits() {
            for (state, &breakers) in State::ALL.iter().zip(&circuit.states) {
                let labels = (key.labels(), [("state", state.as_str())]);
                family.encode_family(&labels)?.encode_gauge(&breakers)?;
            }
        }
        let help = "Changes of state of breakers";
        let mut family = encoder.encode_descriptor("circuit_transitions", help, None, MetricType::Counter)?;
        for ((dependency, from, to, cause), count) in &self.transitions {
            let labels = [
                ("dependency", dependency.as_str()),
                ("from", from.as_str()),
                ("to", to.as_str()),
                ("cause", cause.as_str()),
            ];
            counter(&mut family, &labels, *count)?;
        }
        Ok(())
    }

    fn circuit_rates(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let merged = self.merged_circuits();
        let ratio = |part: u64, calls: u64| {
            if calls == 0 { 0.0 } else { part as f64 / calls as f64 }
        };
        let help = "Calls in the breaker's window that failed, as a share of 1";
        let mut family = encoder.encode_descriptor("circuit_failure_rate_ratio", help, None, MetricType::Gauge)?;
        for (key, circuit) in &merged {
            family.encode_family(&key.labels())?.encode_gauge(&ratio(circuit.failed, circuit.calls))?;
        }
        let help = "Calls in the breaker's window that were slow, those still running included, as a share of 1";
        let mut family = encoder.encode_descriptor("circuit_slow_call_rate_ratio", help, None, MetricType::Gauge)?;
        for (key, circuit) in &merged {
            family.encode_family(&key.labels())?.encode_gauge(&ratio(circuit.slow, circuit.calls))?;
        }
        let help = "Calls in the breaker's window";
        let mut family = encoder.encode_descriptor("circuit_window_calls", help, None, MetricType::Gauge)?;
        for (key, circuit) in &merged {
            family.encode_family(&key.labels())?.encode_gauge(&circuit.calls)?;
        }
        Ok(())
    }

    /// Breakers of endpoints are added up: addresses come and go, and do not belong in labels.
    fn merged_circuits(&self) -> BTreeMap<CircuitKey<'_>, MergedCircuit> {
        let mut merged = BTreeMap::<_, MergedCircuit>::new();
        for dependency in &self.facts.dependencies {
            for view in &dependency.protection.breakers {
                let key = CircuitKey {
                    dependency: &dependency.name,
                    route: view.route.as_deref().unwrap_or_default(),
                    mode: view.mode.as_str(),
                };
                let circuit = merged.entry(key).or_default();
                for (state, breakers) in State::ALL.iter().zip(&mut circuit.states) {
                    *breakers += u64::from(*state == view.state);
                }
                circuit.calls += u64::from(view.counts.calls);
                circuit.failed += u64::from(view.counts.failed);
                circuit.slow += u64::from(view.counts.slow);
            }
        }
        merged
    }

    fn dependencies(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "What is left of the retry budget, as a share of 1";
        let mut family = encoder.encode_descriptor("retry_budget_remaining_ratio", help, None, MetricType::Gauge)?;
        for dependency in &self.facts.dependencies {
            let left = budget_remaining(&dependency.protection.budget);
            family.encode_family(&[("dependency", dependency.name.as_str())])?.encode_gauge(&left)?;
        }
        let help = "Fields of the policy that act on calls, while the traffic is opaque";
        let mut family = encoder.encode_descriptor("policy_fields_ineffective", help, None, MetricType::Gauge)?;
        for dependency in &self.facts.dependencies {
            let labels = [("dependency", dependency.name.as_str())];
            let fields = dependency.ineffective.as_ref().map_or(0, |ineffective| ineffective.fields.len() as u64);
            family.encode_family(&labels)?.encode_gauge(&fields)?;
        }
        let mut family =
            encoder.encode_descriptor("endpoints", "Endpoints that are known, by state", None, MetricType::Gauge)?;
        for dependency in &self.facts.dependencies {
            let mut states = BTreeMap::<_, u64>::new();
            for endpoint in &dependency.endpoints {
                *states.entry(endpoint.state).or_default() += 1;
            }
            for (state, count) in states {
                let labels = [("dependency", dependency.name.as_str()), ("state", state)];
                family.encode_family(&labels)?.encode_gauge(&count)?;
            }
        }
        Ok(())
    }

    fn process(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Number of the policy in force";
        let mut family = encoder.encode_descriptor("policy_generation", help, None, MetricType::Gauge)?;
        family.encode_gauge(&self.facts.generation_number)?;

        let help = "Addresses that hosts of several policies stand for; the one followed for longest has them";
        let mut family = encoder.encode_descriptor("contested_addresses", help, None, MetricType::Gauge)?;
        family.encode_gauge(&u64::try_from(self.facts.contested_addresses).unwrap_or(u64::MAX))?;

        let help = "Policies that were handed over, by result";
        let mut family = encoder.encode_descriptor("policy_apply", help, None, MetricType::Counter)?;
        counter(&mut family, &[("result", "applied")], self.policies.0)?;
        counter(&mut family, &[("result", "refused")], self.policies.1)?;

        let mut family =
            encoder.encode_descriptor("connections", "Open connections of callers", None, MetricType::Gauge)?;
        family.encode_family(&[("direction", "inbound")])?.encode_gauge(&self.connections.0)?;
        family.encode_family(&[("direction", "outbound")])?.encode_gauge(&self.connections.1)?;

        let help = "What connections were found to carry that no policy declares";
        let mut family = encoder.encode_descriptor("protocol_detections", help, None, MetricType::Counter)?;
        for (what, count) in Detected::ALL.iter().zip(self.detections).filter(|(_, count)| *count > 0) {
            counter(&mut family, &[("result", what.as_str())], count)?;
        }
        let help = "Connections of HTTP/2 that were ended, since their callers sent what is only sent to do harm";
        let mut family = encoder.encode_descriptor("http2_floods", help, None, MetricType::Counter)?;
        for (direction, count) in ["inbound", "outbound"].into_iter().zip(self.floods) {
            counter(&mut family, &[("direction", direction)], count)?;
        }

        let singles = [
            ("bugs", "Faults of the proxy itself that it survived", self.bugs),
            ("metric_series_dropped", "Series beyond the cap, counted under other", self.dropped.series),
            ("access_log_dropped", "Lines of the access log that found its buffer full", self.dropped.access_log_lines),
            ("decisions_dropped", "Refusals that were counted and not kept for explain", self.dropped.decisions),
        ];
        for (name, help, count) in singles {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            family.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }

    fn durations(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        field: impl Fn(&Slot) -> &Buckets,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (name, slot) in &self.series {
            let histogram = field(slot);
            let count = histogram.count();
            if count == 0 {
                continue;
            }
            let bounds = BOUNDS_US.iter().map(|&us| us as f64 / 1e6).chain(std::iter::once(f64::INFINITY));
            let buckets: Vec<(f64, u64)> = bounds.zip(histogram.counts).collect();
            let sum = histogram.sum_us as f64 / 1e6;
            family.encode_family(&series(name))?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CircuitKey<'a> {
    dependency: &'a str,
    route: &'a str,
    mode: &'static str,
}

impl<'a> CircuitKey<'a> {
    fn labels(&self) -> [(&'static str, &'a str); 3] {
        [("dependency", self.dependency), ("route", self.route), ("mode", self.mode)]
    }
}

#[derive(Default)]
struct MergedCircuit {
    states: [u64; State::ALL.len()],
    calls: u64,
    failed: u64,
    slow: u64,
}

fn series(name: &SeriesName) -> [(&'static str, &str); 3] {
    [("direction", name.direction.as_str()), ("dependency", &name.dependency), ("route", &name.route)]
}

fn counter(family: &mut MetricEncoder<'_>, labels: &impl EncodeLabelSet, count: u64) -> fmt::Result {
    family.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
}
