//! The breaker, and what "slow" means.

use std::time::Duration;

use plimsoll_resilience::breaker::{Config, Settings, WindowKind};
use plimsoll_resilience::codes::{CodeSet, GrpcCodes};
use plimsoll_resilience::{Mode, Moded};

use super::{checked, mode_of};
use crate::field::{At, Optional};
use crate::report::{Problem, Reader};
use crate::spec::{CircuitBreaker, Timeouts};
use crate::tree::NodeId;
use crate::value::{CodePattern, GrpcCode, Positive, WindowSize, WindowType, duration_text};

/// Slow, where neither a threshold nor a timeout is written.
const BUILT_IN_SLOW: Duration = Duration::from_secs(2);

/// Of the shorter written timeout, in percent: what is slow where no threshold is written.
const SLOW_SHARE: u32 = 60;

pub(super) fn breaker(
    reader: &mut Reader<'_>,
    written: &Optional<CircuitBreaker>,
    policy: Mode,
) -> Option<Moded<Config>> {
    let At { node, value: spec } = written.written()?;
    let window = window(reader, *node, spec);
    let (wait, max_wait) = (spec.wait.value().0, spec.max_wait.value().0);
    if wait > max_wait {
        // Whichever of the two was written: the other one is a default then.
        let at = spec.max_wait.written().or(spec.wait.written()).map_or(*node, |written| written.node);
        let message =
            format!("the circuit waits {} at first and at most {}", duration_text(wait), duration_text(max_wait));
        let expected = "`maxWaitDurationInOpenState` at least `waitDurationInOpenState`";
        reader.consequence(*node, at, Problem::new(message).expected(expected));
        return None;
    }
    let settings = Settings {
        scope: spec.scope.value(),
        window: window?,
        minimum_calls: spec.minimum_calls.value().0,
        failure_rate: spec.failure_rate.value().0,
        slow_call_rate: spec.slow_call_rate.value().0,
        consecutive_failures: spec.consecutive_failures.value().0,
        wait,
        max_wait,
        probes: spec.probes.value().0,
        probe_limit: spec.probe_limit.value().0,
        slow_turn: spec.slow_turn.value(),
    };
    let config = checked(reader, *node, Config::new(settings))?;
    Some(Moded { mode: mode_of(&spec.mode, policy), config })
}

fn window(reader: &mut Reader<'_>, block: NodeId, spec: &CircuitBreaker) -> Option<WindowKind> {
    let size = spec.window_size.written();
    match (spec.window_type.value(), size.map(|size| size.value)) {
        (WindowType::Time, None) => Some(WindowKind::Time(Duration::from_secs(30))),
        (WindowType::Time, Some(WindowSize::Time(length))) => Some(WindowKind::Time(length)),
        (WindowType::Count, Some(WindowSize::Calls(calls))) => {
            let minimum = spec.minimum_calls.value().0;
            if minimum > calls {
                let message = format!("a window of {calls} calls never holds the minimum of {minimum}");
                let at = spec.minimum_calls.written().map(|written| written.node).or(size.map(|size| size.node))?;
                let expected = format!("`minimumNumberOfCalls` at most {calls}, or a larger `slidingWindowSize`");
                reader.consequence(block, at, Problem::new(message).expected(expected));
                return None;
            }
            Some(WindowKind::Count(calls))
        }
        (WindowType::Time, Some(WindowSize::Calls(_))) => {
            let problem = Problem::new("a window of type Time is not measured in calls");
            reader.consequence(
                block,
                size?.node,
                problem.expected("a duration such as 30s, or `slidingWindowType: Count`"),
            );
            None
        }
        (WindowType::Count, Some(WindowSize::Time(_))) => {
            let problem = Problem::new("a window of type Count is not measured in time");
            reader.consequence(block, size?.node, problem.expected("a number of calls, or `slidingWindowType: Time`"));
            None
        }
        (WindowType::Count, None) => {
            let problem = Problem::new("a window of type Count needs its size");
            let at = spec.window_type.written().map_or(block, |written| written.node);
            reader.consequence(block, at, problem.expected("`slidingWindowSize` with a number of calls"));
            None
        }
    }
}

/// From which age on an attempt is slow, under these timeouts.
pub(crate) fn slow_threshold(spec: &CircuitBreaker, timeouts: &Timeouts) -> Duration {
    if let Some(Positive(threshold)) = spec.slow_call_duration.value() {
        return threshold;
    }
    let written = [timeouts.attempt.value(), timeouts.request.value()];
    let shortest = written.into_iter().flatten().map(|Positive(timeout)| timeout).min();
    shortest.map_or(BUILT_IN_SLOW, |timeout| timeout * SLOW_SHARE / 100)
}

pub(super) fn code_set(patterns: &[At<CodePattern>]) -> CodeSet {
    let mut set = CodeSet::EMPTY;
    for pattern in patterns {
        set.union(&pattern.value.codes());
    }
    set
}

pub(super) fn grpc_code_set(codes: &[At<GrpcCode>]) -> GrpcCodes {
    let mut set = GrpcCodes::EMPTY;
    for code in codes {
        set.insert(code.value.0);
    }
    set
}
