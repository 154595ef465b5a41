//! `plimsoll endpoints`: every endpoint, where it comes from and what it is given.

use serde_json::{Value, json};

use crate::admin::shapes::{Dependency, Endpoint, EndpointSource, Status};
use crate::figures::{count, span};
use crate::paint::{Paint, Tone};
use crate::status::milliseconds;
use crate::table::{Align, Cell, Table};

/// All endpoints of all dependencies.
pub fn render(status: &Status, paint: Paint) -> String {
    if status.dependencies.is_empty() {
        return "No dependency has a policy, so calls go where their callers send them.\n".into();
    }
    let mut table = Table::new(&[
        ("DEPENDENCY", Align::Left),
        ("ENDPOINT", Align::Left),
        ("STATE", Align::Left),
        ("SHARE", Align::Right),
        ("IN FLIGHT", Align::Right),
        ("BAD", Align::Left),
        ("CHOSEN BY", Align::Left),
        ("FROM", Align::Left),
    ]);
    for dependency in &status.dependencies {
        if dependency.endpoints.is_empty() {
            table.row(none(dependency));
        }
        for endpoint in &dependency.endpoints {
            table.row(row(dependency, endpoint));
        }
    }
    table.lines(paint).join("\n") + "\n"
}

fn row(dependency: &Dependency, endpoint: &Endpoint) -> [Cell; 8] {
    let tone = if endpoint.state == "Healthy" { Tone::Good } else { Tone::Bad };
    let load = endpoint.load.as_ref();
    [
        dependency.policy.as_str().into(),
        endpoint.address.as_str().into(),
        Cell::new(tone, endpoint.state.as_str()),
        share(dependency, endpoint),
        load.map_or_else(Cell::none, |load| count(load.in_flight).into()),
        load.map_or_else(Cell::none, |load| format!("{} of {}", count(load.bad), count(load.ended)).into()),
        dependency.load_balancing.as_str().into(),
        source(&dependency.endpoint_source).into(),
    ]
}

fn none(dependency: &Dependency) -> [Cell; 8] {
    let from = &dependency.endpoint_source;
    let (what, tone) = match from.kind.as_str() {
        "Dns" => ("none", Tone::Bad),
        _ => ("any", Tone::Plain),
    };
    let none = Cell::none;
    [
        dependency.policy.as_str().into(),
        Cell::new(tone, what),
        none(),
        none(),
        none(),
        none(),
        none(),
        source(from).into(),
    ]
}

/// Of the turns, where the weights of SRV records make them unlike.
fn share(dependency: &Dependency, endpoint: &Endpoint) -> Cell {
    let places: u64 = dependency.endpoints.iter().map(|one| one.places).sum();
    if dependency.endpoints.iter().all(|one| one.places == endpoint.places) {
        return Cell::none();
    }
    format!("{}/{}", count(endpoint.places), count(places)).into()
}

/// `fraud.internal (A/AAAA, every 30 s)`.
fn source(source: &EndpointSource) -> String {
    let Some(name) = &source.name else {
        return match source.kind.as_str() {
            "Caller" => "where the caller was going".into(),
            "Static" => "the policy".into(),
            other => other.into(),
        };
    };
    let records = source.records.as_deref().unwrap_or("DNS");
    let asked = match (source.refresh_ms, source.ttl_ms, &source.last_error) {
        (_, _, Some(_)) => ", last look-up failed".to_owned(),
        (Some(ms), ..) => format!(", every {}", span(milliseconds(ms))),
        (None, Some(ms), None) => format!(", TTL {}", span(milliseconds(ms))),
        (None, None, None) => ", not resolved yet".to_owned(),
    };
    format!("{name} ({records}{asked})")
}

/// The endpoints as the proxy tells them, each with the name of its dependency.
pub fn json(status: &Value) -> Value {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let endpoints = list(&status["dependencies"]).into_iter().flat_map(|dependency| {
        let endpoints = list(&dependency["endpoints"]);
        endpoints.into_iter().map(move |mut endpoint| {
            if let Some(fields) = endpoint.as_object_mut() {
                fields.insert("dependency".into(), dependency["policy"].clone());
                fields.insert("source".into(), dependency["endpoint_source"].clone());
            }
            endpoint
        })
    });
    json!(endpoints.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
