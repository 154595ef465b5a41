//! Retries and their budget.

use plimsoll_resilience::rules::{RetryAfterRules, RetryRules};
use plimsoll_resilience::{Mode, Moded, backoff, budget};

use super::breaker::{code_set, grpc_code_set};
use super::{checked, mode_of};
use crate::field::{At, Optional};
use crate::report::{Problem, Reader};
use crate::spec::{Backoff, Budget, Retry};
use crate::tree::NodeId;
use crate::value::{ConnectionError, Size, duration_text};

/// The most that is kept of request bodies in the whole process, so more for one call is no use.
const LARGEST_BODY_BUFFER: u64 = 16 * 1024 * 1024;

pub(super) fn retry(reader: &mut Reader<'_>, written: Option<&At<Retry>>, policy: Mode) -> Option<Moded<RetryRules>> {
    let At { node, value: spec } = written?;
    let backoff = backoff(reader, *node, &spec.backoff);
    let body_buffer = body_buffer(reader, *node, spec);
    let errors: Vec<_> = spec.connection_errors.value().into_iter().map(|error| error.value).collect();
    let retry_after = spec.retry_after.value().unwrap_or_default();
    let built_in = RetryRules::default();
    let config = RetryRules {
        max_attempts: spec.max_attempts.value().0,
        methods: spec.methods.value(),
        codes: spec.codes.value().map_or(built_in.codes, |codes| code_set(&codes)),
        retry_429_only_with_retry_after: spec.codes.written().is_none(),
        grpc_codes: grpc_code_set(&spec.grpc_codes.value()),
        on_connect_failure: errors.contains(&ConnectionError::ConnectFailure),
        on_refused_stream: errors.contains(&ConnectionError::RefusedStream),
        on_reset_before_request: errors.contains(&ConnectionError::ResetBeforeRequest),
        on_reset: errors.contains(&ConnectionError::Reset),
        timeouts: spec.timeouts.value(),
        backoff: backoff?,
        retry_after: RetryAfterRules { honor: retry_after.honor.value(), max: retry_after.max.value() },
        body_buffer: body_buffer?,
        different_endpoint: spec.different_endpoint.value(),
        on_retried_inbound: spec.on_retried_inbound.value(),
    };
    Some(Moded { mode: mode_of(&spec.mode, policy), config })
}

fn backoff(reader: &mut Reader<'_>, retry: NodeId, written: &Optional<Backoff>) -> Option<backoff::Config> {
    let spec = written.value().unwrap_or_default();
    let block = written.written().map_or(retry, |written| written.node);
    let (base, max) = (spec.base.value().0, spec.max.value().0);
    if base > max {
        let at = spec.max.written().or(spec.base.written()).map_or(retry, |written| written.node);
        let message = format!("the back-off starts at {} and is at most {}", duration_text(base), duration_text(max));
        reader.consequence(block, at, Problem::new(message).expected("`max` at least `base`"));
        return None;
    }
    checked(reader, block, backoff::Config::new(base, max, spec.jitter.value()))
}

fn body_buffer(reader: &mut Reader<'_>, retry: NodeId, spec: &Retry) -> Option<usize> {
    let Size(bytes) = spec.body_buffer.value();
    if bytes > LARGEST_BODY_BUFFER {
        let at = spec.body_buffer.written().map_or(retry, |written| written.node);
        let problem = Problem::new("this is more than the whole process keeps of request bodies");
        reader.error(at, problem.expected("at most 16Mi"));
        return None;
    }
    usize::try_from(bytes).ok()
}

/// The budget that all retries of a dependency draw from, also those of its routes.
pub(super) fn budget(reader: &mut Reader<'_>, retry: &Optional<Retry>) -> Option<budget::Config> {
    let Some(written) = retry.written().and_then(|retry| retry.value.budget.written()) else {
        return Some(budget::Config::default());
    };
    let Budget { percent, interval, min_per_second } = &written.value;
    let config = budget::Config::new(percent.value().0, interval.value().0, min_per_second.value().0);
    checked(reader, written.node, config)
}
