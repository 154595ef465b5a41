//! `plimsoll status`: one proxy at a glance.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::admin::ProxyAddress;
use crate::admin::shapes::{Circuit, Dependency, Status};
use crate::figures::{count, millis, percent, plural, span};
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Table};

/// The whole page.
pub fn render(status: &Status, address: &ProxyAddress, paint: Paint) -> String {
    let mut lines = head(status, address, paint);
    lines.push(String::new());
    if status.dependencies.is_empty() {
        lines.push("No dependency has a policy: everything is forwarded and measured, nothing is refused.".into());
    } else {
        lines.extend(dependencies(status).lines(paint));
    }
    let after = notes(status);
    if !after.is_empty() {
        lines.push(String::new());
        lines.extend(after);
    }
    lines.join("\n") + "\n"
}

fn head(status: &Status, address: &ProxyAddress, paint: Paint) -> Vec<String> {
    let state = match status.state.as_str() {
        "Serving" => paint.apply(Tone::Good, "Serving"),
        other => paint.apply(Tone::Warn, other),
    };
    let beside = match (&status.namespace, &status.workload) {
        (Some(namespace), Some(workload)) => format!(" beside {namespace}/{workload}"),
        (None, Some(workload)) => format!(" beside {workload}"),
        _ => String::new(),
    };
    let mut lines = vec![
        format!(
            "plimsoll-proxy {} on {address}{beside}: {state}, {}, up {}",
            status.version,
            plural(status.workers, "worker"),
            span(seconds(status.uptime_seconds)),
        ),
        format!("policy: {}", policy(status)),
    ];
    if let Some(error) = &status.policy.last_error {
        lines.push(paint.apply(Tone::Bad, "the last change was refused, the policy above stays:"));
        lines.extend(error.lines().map(|line| format!("  {line}")));
    }
    lines.push(format!(
        "connections: {} inbound, {} outbound",
        count(status.connections.inbound),
        count(status.connections.outbound)
    ));
    lines
}

fn policy(status: &Status) -> String {
    let source = match status.policy.source.as_str() {
        "File" => format!(" from {}", status.policy.paths.join(", ")),
        "Admin" => " pushed to the admin address".into(),
        "None" | "" => return format!("none (generation {})", status.generation),
        other => format!(" from {other}"),
    };
    let applied = match &status.policy.applied_at {
        Some(at) => format!(", in force since {at}"),
        None => String::new(),
    };
    format!("generation {}{source}{applied}", status.generation)
}

fn dependencies(status: &Status) -> Table {
    let mut table = Table::new(&[
        ("DEPENDENCY", Align::Left),
        ("MODE", Align::Left),
        ("SPEAKS", Align::Left),
        ("CALLS", Align::Right),
        ("CALLS/S", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("IN FLIGHT", Align::Right),
        ("BREAKER", Align::Left),
        ("REFUSED", Align::Left),
    ]);
    for dependency in &status.dependencies {
        let latency = dependency.latency_ms.unwrap_or_default();
        let time = |ms: Option<f64>| ms.map_or_else(Cell::none, |ms| millis(ms).into());
        table.row([
            dependency.policy.as_str().into(),
            dependency.mode.as_str().into(),
            speaks(dependency).into(),
            count(dependency.requests_total).into(),
            format!("{:.1}", dependency.requests_per_second).into(),
            time(latency.p50),
            time(latency.p99),
            in_flight(dependency),
            breaker(&dependency.circuits),
            refused(&dependency.rejections),
        ]);
    }
    table
}

/// What callers speak, and what the endpoints are spoken to in where that differs: `GRPC`, `GRPC -> TLS`,
/// `HTTP1 -> HTTP2+TLS`.
fn speaks(dependency: &Dependency) -> String {
    let (from, to) = (dependency.protocol.as_str(), dependency.upstream_protocol.as_str());
    let is_same = matches!(to, "" | "Same") || to == from;
    match (&dependency.tls, is_same) {
        (Some(_), true) => format!("{from} -> TLS"),
        (Some(_), false) => format!("{from} -> {to}+TLS"),
        (None, true) => from.to_owned(),
        (None, false) => format!("{from} -> {to}"),
    }
}

/// In flight, and the limit where there is one: `12/20 +3` has three calls waiting.
pub fn in_flight(dependency: &Dependency) -> Cell {
    let whole = dependency.bulkheads.iter().find(|b| b.route.is_none());
    let Some(bulkhead) = whole.filter(|b| b.limit > 0) else {
        return count(dependency.in_flight).into();
    };
    let tone = if bulkhead.in_flight >= bulkhead.limit { Tone::Warn } else { Tone::Plain };
    let queued = match bulkhead.queued {
        0 => String::new(),
        n => format!(" +{}", count(n)),
    };
    let text = format!("{}/{}{queued}", count(bulkhead.in_flight), count(bulkhead.limit));
    Cell::new(tone, text)
}

/// The breakers of one dependency in a word, the worst of them first.
pub fn breaker(circuits: &[Circuit]) -> Cell {
    let Some(worst) = circuits.iter().max_by_key(|c| gravity(&c.state)) else {
        return Cell::none();
    };
    let mut text = worst.state.clone();
    if circuits.len() > 1 && gravity(&worst.state) > 0 {
        let alike = circuits.iter().filter(|c| c.state == worst.state).count();
        text = format!("{alike} of {} {text}", circuits.len());
    }
    let until_probe = worst.next_probe_in_ms.filter(|_| worst.state == "Open");
    if let Some(ms) = worst.forced_for_ms.or(until_probe) {
        text.push_str(&format!(", {} left", span(milliseconds(ms))));
    }
    if worst.mode == "Observe" {
        text.push_str(" (observed)");
    }
    Cell::new(state_tone(&worst.state), text)
}

/// The colour of a breaker's state.
pub fn state_tone(state: &str) -> Tone {
    match gravity(state) {
        0 => Tone::Good,
        1 => Tone::Warn,
        _ => Tone::Bad,
    }
}

fn gravity(state: &str) -> u8 {
    match state {
        "Closed" => 0,
        "ForcedClosed" | "HalfOpen" => 1,
        "Open" => 2,
        _ => 3,
    }
}

/// Refusals by reason, the most frequent first: `CircuitOpen 120, BulkheadFull 30`.
pub fn refused(by_reason: &BTreeMap<String, u64>) -> Cell {
    let mut reasons: Vec<_> = by_reason.iter().filter(|(_, n)| **n > 0).collect();
    reasons.sort_by_key(|(reason, n)| (std::cmp::Reverse(**n), *reason));
    if reasons.is_empty() {
        return Cell::none();
    }
    let text: Vec<_> = reasons.iter().map(|(reason, n)| format!("{reason} {}", count(**n))).collect();
    Cell::new(Tone::Warn, text.join(", "))
}

fn notes(status: &Status) -> Vec<String> {
    let mut notes = Vec::new();
    if status.inbound.requests_total > 0 || status.inbound.policy.is_some() {
        notes.push(inbound(status));
    }
    if status.unlisted.requests_total > 0 {
        notes.push(unlisted(status));
    }
    for dependency in &status.dependencies {
        let name = &dependency.policy;
        if let Some(early) = dependency.cancelled_early {
            notes.push(format!(
                "{name}: {} of the calls were given up by the caller at about {}: the breaker cannot see them.",
                percent(early.share * 100.0),
                millis(early.typical_ms)
            ));
        }
        if !dependency.would_reject.is_empty() {
            let would = refused(&dependency.would_reject);
            notes.push(format!("{name}: enforced, it would have refused: {}", would.text()));
        }
        let on_connections = [sockets(dependency), connection_rate(dependency), turns(dependency), dns(dependency)];
        notes.extend(on_connections.into_iter().flatten().map(|note| format!("{name}: {note}")));
        for endpoint in dependency.endpoints.iter().filter(|e| e.state != "Healthy") {
            notes.push(format!("{name}: endpoint {} is {}.", endpoint.address, endpoint.state));
        }
        notes.extend(ineffective(dependency).map(|note| format!("{name}: {note}")));
    }
    if status.contested_addresses > 0 {
        notes.push(format!(
            "{} of the addresses that names in `hosts` stand for are claimed by several policies; a connection that names nobody is counted there for the policy that was followed for longest.",
            count(status.contested_addresses)
        ));
    }
    let warnings = status.policy.warnings.iter();
    notes.extend(warnings.map(|warning| format!("policy: {}", warning.trim_end())));
    notes
}

fn sockets(dependency: &Dependency) -> Option<String> {
    let limit = dependency.connections.limit?;
    let observed = observed(dependency.connections.mode.as_deref());
    Some(format!("{} of at most {} connections open{observed}.", count(dependency.connections.open), count(limit)))
}

fn connection_rate(dependency: &Dependency) -> Option<String> {
    let rate = dependency.connection_rate.as_ref()?;
    Some(format!(
        "{} asked for in the last {}, {} allowed{}.",
        plural(rate.asked, "new connection"),
        span(milliseconds(rate.interval_ms)),
        count(rate.limit),
        observed(Some(&rate.mode))
    ))
}

fn observed(mode: Option<&str>) -> &'static str {
    if mode == Some("Observe") { " (observed)" } else { "" }
}

/// Turns on connections that are not opened: all that is known of how slow their server is.
pub fn turns(dependency: &Dependency) -> Option<String> {
    let turns = &dependency.turns;
    if turns.ended == 0 {
        return None;
    }
    let counted = match turns.counted {
        true => "the breaker counts them",
        false => "only observed, `slowTurn: Enforce` has the breaker count them",
    };
    let (slow, ended) = (count(turns.slow), plural(turns.ended, "turn"));
    Some(format!("{slow} of {ended} on its connections were slow in the last 30 s ({counted})."))
}

fn dns(dependency: &Dependency) -> Option<String> {
    let source = &dependency.endpoint_source;
    let (name, error) = (source.name.as_ref()?, source.last_error.as_ref()?);
    let meanwhile = match dependency.endpoints.is_empty() {
        true => "it has no endpoints",
        false => "the last known addresses stay in use",
    };
    Some(format!("{name} could not be resolved: {error}; {meanwhile}."))
}

fn ineffective(dependency: &Dependency) -> Option<String> {
    if dependency.ineffective.is_empty() {
        return None;
    }
    let fields = dependency.ineffective.join(", ");
    let way_out = dependency.way_out.as_ref().map_or_else(String::new, |way| format!(" Way out: {way}."));
    Some(format!(
        "it gets connections that the proxy does not look into, and there these cannot act: {fields}.{way_out}"
    ))
}

fn inbound(status: &Status) -> String {
    let inbound = &status.inbound;
    format!(
        "inbound ({}): {}, {} in progress, refused: {}",
        inbound.policy.as_deref().unwrap_or("no policy"),
        plural(inbound.requests_total, "call"),
        count(inbound.in_flight),
        refused(&inbound.rejections).text()
    )
}

fn unlisted(status: &Status) -> String {
    let unlisted = &status.unlisted;
    let top: Vec<_> =
        unlisted.top.iter().take(5).map(|to| format!("{} ({})", to.destination, count(to.requests))).collect();
    let told: u64 = unlisted.top.iter().take(5).map(|to| to.requests).sum();
    let most = match top.is_empty() {
        true => String::new(),
        false if told == unlisted.requests_total => format!(", to {}", top.join(", ")),
        false => format!(", most of them to {}", top.join(", ")),
    };
    format!("without a policy: {}{most}", plural(unlisted.requests_total, "call"))
}

/// Milliseconds from the proxy, which may be anything a JSON number can be.
pub fn milliseconds(ms: f64) -> Duration {
    seconds(ms / 1000.0)
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
