//! `plimsoll explain`: why a call was refused, with the numbers of that moment, those of now, and what to change.

mod advice;

use serde_json::{Value, json};

use crate::admin::shapes::{Decision, Dependency, Status};
use crate::cli::ExplainArgs;
use crate::figures::{count, millis, span};
use crate::paint::{Paint, Tone};
use crate::status::{breaker, milliseconds};
use crate::{Failure, Verdict};

/// The verb.
///
/// # Errors
/// When the proxy cannot be asked.
pub async fn run(args: &ExplainArgs) -> Result<Verdict, Failure> {
    let admin = crate::admin_of(&args.proxy);
    let answer = admin.decisions(1, args.id.as_deref()).await?;
    let Some(json) = answer["decisions"].get(0) else {
        return Ok(nothing(args.id.as_deref()));
    };
    let decision: Decision = admin.read(json)?;
    // The refusal can be explained without it, only with fewer numbers.
    let status: Status = match admin.status().await {
        Ok(json) => admin.read(&json)?,
        Err(_) => Status::default(),
    };
    let now = live(&decision, &status);
    let mut whole = json.clone();
    whole["explanation"] = explanation(&decision, now);
    crate::print(args.output.output, &whole, |paint| Ok(render(&decision, now, paint)))
}

fn nothing(id: Option<&str>) -> Verdict {
    match id {
        None => {
            println!("The proxy keeps no refusal: it has refused nothing since it started.");
            Verdict::Yes
        }
        Some(id) => {
            eprintln!(
                "The proxy keeps no refusal with the id `{id}`; only the newest are kept.\n\
                 `plimsoll explain` explains the newest; the access log has the older ones."
            );
            Verdict::No
        }
    }
}

/// The dependency of the refused call, as it is now.
fn live<'a>(decision: &Decision, status: &'a Status) -> Option<&'a Dependency> {
    let name = decision.policy.as_ref().or(decision.dependency.as_ref())?;
    status.dependencies.iter().find(|d| d.policy == *name)
}

fn explanation(decision: &Decision, now: Option<&Dependency>) -> Value {
    let advice = advice::advice(&decision.reason, decision.cause.as_deref());
    let change: Vec<String> = changes(decision, now);
    json!({"why": advice.why, "change": change})
}

/// The page for people, for a caller that has both at hand.
pub fn page(decision: &Decision, status: &Status, paint: Paint) -> String {
    render(decision, live(decision, status), paint)
}

/// The page for people.
fn render(decision: &Decision, now: Option<&Dependency>, paint: Paint) -> String {
    let advice = advice::advice(&decision.reason, decision.cause.as_deref());
    let mut lines = vec![title(decision, paint), String::new()];
    let mut fact = |name: &str, text: String| {
        let name = paint.apply(Tone::Dim, &format!("{name:<6}"));
        lines.push(format!("{name}{}", folded(&text, 6)));
    };
    fact("why", advice.why.into());
    if decision.mode == "Observe" {
        fact("", "Only observed: nothing was done to the call; enforced, it would have been refused.".into());
    }
    // What the numbers of a breaker are is in the detail, and differs; limits on connections are named by what is seen.
    let (seen, more) = match (decision.reason.as_str(), decision.cause.as_deref()) {
        ("CircuitOpen", _) if decision.detail.is_some() => (decision.detail.clone(), None),
        (_, Some("Connections" | "ConnectionRate")) => (seen(decision), None),
        _ => (seen(decision), decision.detail.clone()),
    };
    for (name, text) in [("seen", seen), ("more", more)] {
        if let Some(text) = text {
            fact(name, text);
        }
    }
    fact("rule", rule(decision));
    fact("call", call(decision));
    if let Some(now) = now {
        fact("now", present(now));
    }
    let changes = changes(decision, now);
    if !changes.is_empty() {
        lines.push(String::new());
        lines.push(paint.apply(Tone::Strong, "What to change"));
        lines.extend((1..).zip(changes).map(|(i, change)| format!("  {i}. {}", folded(&change, 5))));
    }
    lines.join("\n") + "\n"
}

fn title(decision: &Decision, paint: Paint) -> String {
    let reason = paint.apply(Tone::Bad, &decision.reason);
    // A connection that is not HTTP gets no answer.
    let status = match &decision.grpc_code {
        _ if is_opaque(decision) => Some("reset".to_owned()),
        Some(code) => Some(format!("gRPC {code}")),
        None => decision.status.map(|status| status.to_string()),
    };
    let call = [decision.method.as_deref(), decision.host.as_deref()];
    let answer = [Some("->"), status.as_deref(), Some(&reason)];
    let words = call.into_iter().chain(answer).flatten();
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    format!("{}  {}  {}", decision.id, decision.time, words.join(" "))
}

fn is_opaque(decision: &Decision) -> bool {
    decision.method.as_deref() == Some("TCP")
}

/// What was measured and what is allowed, in the unit of the reason.
fn seen(decision: &Decision) -> Option<String> {
    let (observed, limit) = (count(decision.observed?), count(decision.limit?));
    Some(match (decision.reason.as_str(), decision.cause.as_deref()) {
        (_, Some("Connections")) => format!("{observed} connections open, {limit} allowed"),
        (_, Some("ConnectionRate")) => format!("{observed} new connections in the interval, {limit} allowed"),
        ("BulkheadFull" | "BulkheadWaitTimeout" | "ConcurrencyLimited", _) => {
            format!("{observed} in flight, {limit} allowed")
        }
        ("RequestTimeout" | "AttemptTimeout" | "DeadlineExpired" | "IdleTimeout", _) => {
            format!("{observed} ms, limit {limit} ms")
        }
        ("RetriesExhausted", _) => format!("{observed} of {limit} attempts failed"),
        ("RetryBudgetExhausted", _) => format!("{observed} retries in the window, {limit} allowed"),
        _ => format!("{observed}, limit {limit}"),
    })
}

fn rule(decision: &Decision) -> String {
    let policy = match &decision.policy {
        Some(policy) => format!("policy {policy}"),
        None => "no policy: the proxy's own rule".into(),
    };
    let block = decision.block.as_ref().map_or_else(String::new, |b| format!(", block {b}"));
    let route = decision.route.as_ref().map_or_else(String::new, |r| format!(", route {r}"));
    let generation = match decision.generation.as_str() {
        "" => String::new(),
        generation => format!(", generation {generation}"),
    };
    format!("{policy}{block}{route}{generation}")
}

fn call(decision: &Decision) -> String {
    let mut facts = vec![decision.direction.clone()];
    if let Some(endpoint) = &decision.endpoint {
        facts.push(format!("endpoint {endpoint}"));
    }
    facts.push(match decision.attempts {
        0 => "nothing was sent".into(),
        1 => "1 attempt".into(),
        n => format!("{n} attempts"),
    });
    let opaque = is_opaque(decision);
    if let Some(ms) = decision.elapsed_ms {
        let end = if opaque { "ended" } else { "answered" };
        facts.push(format!("{end} after {}", millis(ms)));
    }
    if let Some(ms) = decision.retry_after_ms.filter(|_| !opaque) {
        facts.push(format!("Retry-After {}", span(milliseconds(ms))));
    }
    if let Some(trace) = &decision.trace_id {
        facts.push(format!("trace {trace}"));
    }
    facts.retain(|fact| !fact.is_empty());
    facts.join(", ")
}

fn present(now: &Dependency) -> String {
    let mut facts = vec![format!("{:.1} calls/s", now.requests_per_second)];
    if let Some(latency) = now.latency_ms {
        let times = [("p50", latency.p50), ("p99", latency.p99)];
        let known = times.iter().filter_map(|(name, ms)| Some(format!("{name} {}", millis((*ms)?))));
        facts.extend(known);
    }
    for bulkhead in &now.bulkheads {
        let of = bulkhead.route.as_ref().map_or_else(String::new, |r| format!(" (route {r})"));
        facts.push(format!("{} of {} permits out{of}", count(bulkhead.in_flight), count(bulkhead.limit)));
    }
    if let Some(limit) = now.connections.limit {
        facts.push(format!("{} of at most {} connections open", count(now.connections.open), count(limit)));
    }
    if let Some(rate) = &now.connection_rate {
        let interval = span(milliseconds(rate.interval_ms));
        facts.push(format!("{} of {} new connections in {interval}", count(rate.asked), count(rate.limit)));
    }
    if !now.circuits.is_empty() {
        facts.push(format!("breaker {}", breaker(&now.circuits).text()));
    }
    facts.join(", ")
}

/// The general advice, led by what the numbers of now say.
fn changes(decision: &Decision, now: Option<&Dependency>) -> Vec<String> {
    let general = advice::advice(&decision.reason, decision.cause.as_deref()).change.iter().map(|&c| c.to_owned());
    littles_law(decision, now).into_iter().chain(general).collect()
}

/// In flight = arrivals x time: what the bulkhead would have to be for the present load and latency.
fn littles_law(decision: &Decision, now: Option<&Dependency>) -> Option<String> {
    let is_about_calls = decision.reason.starts_with("Bulkhead") && decision.cause.is_none();
    let now = now.filter(|_| is_about_calls)?;
    let p99 = now.latency_ms?.p99?;
    let limit = decision.limit? as f64;
    let rate = now.requests_per_second;
    let needed = (rate * p99 / 1000.0).ceil();
    let judgement =
        if needed > limit { "more than the limit" } else { "within the limit, so this was a burst or a slow moment" };
    Some(format!(
        "At {rate:.1} calls/s and a p99 of {} the calls need about {} permits: {judgement}.",
        millis(p99),
        count(needed as u64)
    ))
}

/// `text` in lines of readable length, all but the first indented.
fn folded(text: &str, indent: usize) -> String {
    const WIDTH: usize = 96;
    let mut out = String::new();
    let mut column = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

#[cfg(test)]
mod tests;
