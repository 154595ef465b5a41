//! Warnings: what is valid, and probably not what was meant.

use crate::compile::slow_threshold;
use crate::document::Documents;
use crate::report::{Problem, Reader};
use crate::spec::DependencySpec;
use crate::value::duration_text;

pub(crate) fn check(reader: &mut Reader<'_>, documents: &Documents) {
    for document in &documents.dependencies {
        if let Some(spec) = document.spec.written() {
            nobody_chose_slow(reader, &spec.value);
        }
    }
}

fn nobody_chose_slow(reader: &mut Reader<'_>, spec: &DependencySpec) {
    let Some(breaker) = spec.circuit_breaker.written() else {
        return;
    };
    if breaker.value.slow_call_duration.written().is_some() {
        return;
    }
    let threshold = slow_threshold(&breaker.value, &spec.timeouts.value().unwrap_or_default());
    let message = format!(
        "nobody chose what is slow: an attempt older than {} is",
        duration_text(threshold)
    );
    reader.warn(
        breaker.node,
        Problem::new(message).expected("`slowCallDurationThreshold`"),
    );
}
