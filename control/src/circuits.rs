//! `plimsoll circuits`: every breaker with what it saw and what it would take to open.

use serde_json::{Value, json};

use crate::admin::shapes::{Circuit, Status};
use crate::figures::{count, millis, percent, span};
use crate::paint::{Paint, Tone};
use crate::status::{milliseconds, state_tone, turns as turns_of};
use crate::table::{Align, Cell, Table};

/// All breakers of all dependencies.
pub fn render(status: &Status, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("DEPENDENCY", Align::Left),
        ("OF", Align::Left),
        ("MODE", Align::Left),
        ("STATE", Align::Left),
        ("FAILED/MAX", Align::Right),
        ("SLOW/MAX", Align::Right),
        ("SLOW FROM", Align::Right),
        ("CALLS", Align::Left),
        ("NEXT", Align::Left),
    ]);
    let mut any = false;
    for dependency in &status.dependencies {
        for circuit in &dependency.circuits {
            any = true;
            table.row(row(&dependency.policy, circuit));
        }
    }
    if !any {
        return "No circuit breaker is in force. A `circuitBreaker: {}` block in a DependencyPolicy makes one with the built-in defaults;\n\
                `plimsoll lint --defaults` shows them.\n"
            .into();
    }
    let turns = status.dependencies.iter().filter(|dependency| !dependency.circuits.is_empty());
    let mut turns = turns.filter_map(|dependency| Some(format!("{}: {}", dependency.policy, turns_of(dependency)?)));
    let mut lines = table.lines(paint);
    if let Some(first) = turns.next() {
        lines.extend([String::new(), first]);
        lines.extend(turns);
    }
    lines.join("\n") + "\n"
}

fn row(dependency: &str, circuit: &Circuit) -> [Cell; 9] {
    let of = match (&circuit.route, &circuit.endpoint) {
        (Some(route), _) => format!("route {route}"),
        (None, Some(endpoint)) => endpoint.clone(),
        (None, None) if circuit.scope == "Route" => "all other routes".into(),
        (None, None) => "dependency".into(),
    };
    [
        dependency.into(),
        of.into(),
        circuit.mode.as_str().into(),
        Cell::new(state_tone(&circuit.state), circuit.state.as_str()),
        rate(circuit.failure_rate, circuit.failure_threshold),
        rate(circuit.slow_call_rate, circuit.slow_threshold),
        circuit.slow_duration_ms.map_or_else(Cell::none, |ms| millis(ms).into()),
        calls(circuit).into(),
        next(circuit),
    ]
}

/// `71/60 %`: seen, and where the breaker opens. Seen is `?` while there are too few calls to judge.
fn rate(seen: Option<f64>, allowed: Option<f64>) -> Cell {
    let Some(allowed) = allowed else {
        return Cell::none();
    };
    let tone = if seen.is_some_and(|seen| seen >= allowed) { Tone::Bad } else { Tone::Plain };
    let seen = seen.map_or_else(|| "?".to_owned(), |seen| format!("{seen:.0}"));
    Cell::new(tone, format!("{seen}/{}", percent(allowed)))
}

fn calls(circuit: &Circuit) -> String {
    if circuit.calls < circuit.minimum {
        format!("{} of {} needed", count(circuit.calls), count(circuit.minimum))
    } else {
        count(circuit.calls)
    }
}

fn next(circuit: &Circuit) -> Cell {
    match (circuit.forced_for_ms, circuit.next_probe_in_ms) {
        (Some(ms), _) => format!("back to automatic in {}", span(milliseconds(ms))).into(),
        (None, Some(ms)) if circuit.state == "Open" => format!("probe in {}", span(milliseconds(ms))).into(),
        _ if circuit.state == "HalfOpen" => "probing".into(),
        _ => Cell::none(),
    }
}

/// The breakers as the proxy tells them, each with the name of its dependency.
pub fn json(status: &Value) -> Value {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let with_name = |dependency: &Value, mut circuit: Value| {
        if let Some(fields) = circuit.as_object_mut() {
            fields.insert("dependency".into(), dependency["policy"].clone());
        }
        circuit
    };
    let circuits = list(&status["dependencies"]).into_iter().flat_map(|dependency| {
        let circuits = list(&dependency["circuits"]);
        circuits.into_iter().map(move |c| with_name(&dependency, c))
    });
    json!(circuits.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
