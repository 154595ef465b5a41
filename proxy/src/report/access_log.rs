//! The access log: a line for each call, as text or JSON.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Write as _;
use std::time::Duration;

use plimsoll_resilience::Reason;
use serde::Serialize;

use super::decisions::millis;
use super::spool::Lane;
use super::text::{Stamp, timestamp, without_query};
use super::{CallReport, LogFormat};
use crate::reject::row_of;

/// Bytes of a path that are logged; a target may have 16 KiB.
const LONGEST_PATH: usize = 1_024;

/// One worker's way into the access log.
#[derive(Debug)]
pub(super) struct AccessLane {
    lane: Lane,
    format: LogFormat,
    state: RefCell<(Stamp, Vec<u8>)>,
}

impl AccessLane {
    pub fn new(lane: Lane, format: LogFormat) -> Self {
        AccessLane { lane, format, state: RefCell::default() }
    }

    pub fn write(&self, report: &CallReport<'_>) {
        let (stamp, line) = &mut *self.state.borrow_mut();
        line.clear();
        match self.format {
            LogFormat::Text => push_text(line, stamp, report),
            LogFormat::Json => push_json(line, report),
        }
        line.push(b'\n');
        self.lane.append(line);
    }
}

fn reason(report: &CallReport<'_>) -> Option<&'static str> {
    report.reason().map(Reason::as_str)
}

/// Envoy's response flag, for dashboards that were made for it.
fn flag(report: &CallReport<'_>) -> Option<&'static str> {
    report.reason().map(|reason| row_of(reason).flag).filter(|flag| !flag.is_empty())
}

fn path<'a>(report: &CallReport<'a>) -> &'a [u8] {
    let path = without_query(report.facts.path);
    &path[..path.len().min(LONGEST_PATH)]
}

/// `time direction method host path status reason flag policy route attempts endpoint duration upstream received sent trace`,
/// with `-` for what is not there, so that a line always has the same fields in the same places.
fn push_text(out: &mut Vec<u8>, stamp: &mut Stamp, report: &CallReport<'_>) {
    let facts = &report.facts;
    stamp.push(out, facts.time);
    push_word(out, "", facts.direction.as_str().as_bytes());
    push_word(out, "", facts.method);
    push_word(out, "", facts.host);
    push_word(out, "", path(report));
    // Writing to a Vec cannot fail, here and below.
    let _ = match report.status {
        0 => out.write_all(b" -"),
        status => write!(out, " {status}"),
    };
    push_word(out, "reason=", reason(report).unwrap_or_default().as_bytes());
    push_word(out, "flag=", flag(report).unwrap_or_default().as_bytes());
    push_word(out, "policy=", facts.policy.unwrap_or_default().as_bytes());
    push_word(out, "route=", facts.route.unwrap_or_default().as_bytes());
    let _ = write!(out, " attempts={}", report.summary.attempts);
    let _ = match report.endpoint {
        Some(endpoint) => write!(out, " endpoint={endpoint}"),
        None => out.write_all(b" endpoint=-"),
    };
    out.extend_from_slice(b" duration_ms=");
    push_millis(out, report.duration);
    out.extend_from_slice(b" upstream_ms=");
    match report.summary.latency {
        Some(upstream) => push_millis(out, upstream),
        None => out.push(b'-'),
    }
    let _ = write!(out, " received={} sent={}", report.bytes_received, report.bytes_sent);
    push_word(out, "trace=", facts.trace_id.as_bytes());
}

/// Milliseconds with three digits behind the point; floating point would cost as much as the rest of the line.
fn push_millis(out: &mut Vec<u8>, duration: Duration) {
    let micros = duration.as_micros();
    let _ = write!(out, "{}.{:03}", micros / 1_000, micros % 1_000);
}

/// A field of a text line. Bytes that would end it, or reach the terminal of who reads it, become `\xNN`.
fn push_word(out: &mut Vec<u8>, key: &str, word: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(key.as_bytes());
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\' && byte != b'"';
    if word.is_empty() {
        out.push(b'-');
        return;
    }
    if word.iter().copied().all(is_plain) {
        return out.extend_from_slice(word);
    }
    for &byte in word {
        if is_plain(byte) {
            out.push(byte);
        } else {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    direction: &'static str,
    method: Cow<'a, str>,
    host: Cow<'a, str>,
    path: Cow<'a, str>,
    status: Option<u16>,
    reason: Option<&'static str>,
    flag: Option<&'static str>,
    policy: Option<&'a str>,
    route: Option<&'a str>,
    attempts: u32,
    endpoint: Option<std::net::SocketAddr>,
    duration_ms: f64,
    upstream_ms: Option<f64>,
    bytes_received: u64,
    bytes_sent: u64,
    trace_id: Option<&'a str>,
}

fn push_json(out: &mut Vec<u8>, report: &CallReport<'_>) {
    let facts = &report.facts;
    let line = Line {
        time: timestamp(facts.time),
        direction: facts.direction.as_str(),
        method: String::from_utf8_lossy(facts.method),
        host: String::from_utf8_lossy(facts.host),
        path: String::from_utf8_lossy(path(report)),
        status: Some(report.status).filter(|&status| status != 0),
        reason: reason(report),
        flag: flag(report),
        policy: facts.policy,
        route: facts.route,
        attempts: report.summary.attempts,
        endpoint: report.endpoint,
        duration_ms: millis(report.duration),
        upstream_ms: report.summary.latency.map(millis),
        bytes_received: report.bytes_received,
        bytes_sent: report.bytes_sent,
        trace_id: Some(facts.trace_id).filter(|id| !id.is_empty()),
    };
    serde_json::to_writer(out, &line).expect("text and numbers always serialize, and a Vec takes them");
}

#[cfg(test)]
mod tests {
    use plimsoll_resilience::Summary;

    use super::super::testing::report;
    use super::*;
    use crate::reject::Refusal;

    fn text(report: &CallReport<'_>) -> String {
        let mut out = Vec::new();
        push_text(&mut out, &mut Stamp::default(), report);
        String::from_utf8(out).unwrap()
    }

    fn json(report: &CallReport<'_>) -> serde_json::Value {
        let mut out = Vec::new();
        push_json(&mut out, report);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn a_call_that_went_well() {
        insta::assert_snapshot!(text(&report()));
        insta::assert_snapshot!(serde_json::to_string_pretty(&json(&report())).unwrap());
    }

    #[test]
    fn the_refusal_gives_the_reason() {
        let refusal = Refusal::new(Reason::CircuitOpen);
        let summary = Summary { reason: Some(Reason::ClientGone), ..Summary::default() };
        let report = CallReport { refusal: Some(&refusal), summary, ..report() };
        assert!(text(&report).contains(" reason=CircuitOpen flag=UO "));
        assert_eq!(json(&report)["reason"], "CircuitOpen");
    }

    #[test]
    fn a_caller_cannot_forge_a_line_or_a_field() {
        let mut report = report();
        report.facts.host = b"a b\n2026 inbound\x1b[2J\"";
        report.facts.path = b"/x y?secret=1";
        report.facts.method = b"";
        report.status = 0;
        let line = text(&report);
        assert!(!line.contains('\n') && !line.contains('\x1b') && !line.contains("secret"));
        assert_eq!(line.split(' ').count(), text(&super::super::testing::report()).split(' ').count());
        assert!(line.contains(" - a\\x20b\\x0a2026\\x20inbound\\x1b[2J\\x22 /x\\x20y - "), "{line}");
        assert_eq!(json(&report)["status"], serde_json::Value::Null);
        assert_eq!(json(&report)["path"], "/x y");
    }
}
