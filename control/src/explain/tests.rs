use super::*;

const STATUS: &str = include_str!("../../fixtures/status.json");
const BULKHEAD_FULL: &str = include_str!("../../fixtures/bulkhead_full.json");

fn status() -> Status {
    serde_json::from_str(STATUS).unwrap()
}

fn decision() -> Decision {
    serde_json::from_str(BULKHEAD_FULL).unwrap()
}

#[test]
fn a_full_bulkhead() {
    insta::assert_snapshot!(page(&decision(), &status(), Paint::PLAIN));
}

#[test]
fn an_observed_refusal_says_that_nothing_was_done() {
    let observed = Decision {
        mode: "Observe".into(),
        reason: "CircuitOpen".into(),
        observed: Some(71),
        limit: Some(60),
        block: Some("circuitBreaker".into()),
        detail: Some("71 % of the calls were slow, and it opens at 60 %".into()),
        retry_after_ms: Some(7200.0),
        ..decision()
    };
    insta::assert_snapshot!(page(&observed, &Status::default(), Paint::PLAIN));
}

#[test]
fn the_end_of_retrying_says_what_the_last_attempt_came_to() {
    let exhausted = Decision {
        reason: "RetriesExhausted".into(),
        observed: Some(3),
        limit: Some(3),
        block: Some("retry".into()),
        attempts: 3,
        detail: Some("the last attempt: ConnectFailure, no connection could be made".into()),
        ..decision()
    };
    insta::assert_snapshot!(page(&exhausted, &Status::default(), Paint::PLAIN));
}

/// A connection of a database: `limit` on connections, and none of the words of HTTP.
fn refused_connection(reason: &str, cause: &str) -> Decision {
    Decision {
        policy: Some("shop/ledger".into()),
        route: None,
        reason: reason.into(),
        cause: Some(cause.into()),
        status: Some(429),
        observed: Some(120),
        limit: Some(100),
        method: Some("TCP".into()),
        host: Some("ledger.internal:5432".into()),
        detail: Some("connections are counted, not calls".into()),
        retry_after_ms: Some(12.0),
        trace_id: None,
        ..decision()
    }
}

#[test]
fn a_connection_that_came_too_fast() {
    insta::assert_snapshot!(page(&refused_connection("RateLimited", "ConnectionRate"), &status(), Paint::PLAIN));
}

#[test]
fn a_connection_too_many() {
    insta::assert_snapshot!(page(&refused_connection("BulkheadFull", "Connections"), &status(), Paint::PLAIN));
}

#[test]
fn a_grpc_call_is_told_with_its_own_status() {
    let decision = Decision { status: Some(200), grpc_code: Some("Unavailable".into()), ..decision() };
    assert!(title(&decision, Paint::PLAIN).ends_with("POST fraud.internal -> gRPC Unavailable BulkheadFull"));
}

#[test]
fn a_handshake_that_failed() {
    let failed = Decision {
        reason: "TlsFailure".into(),
        block: Some("target".into()),
        observed: None,
        limit: None,
        attempts: 1,
        detail: Some("10.0.0.7:443: the endpoint's certificate expired on 2026-01-01T00:00:00Z".into()),
        ..decision()
    };
    insta::assert_snapshot!(page(&failed, &Status::default(), Paint::PLAIN));
}

#[test]
fn a_refusal_without_a_policy() {
    let refused = Decision {
        id: "01".into(),
        time: "2026-11-30T14:03:07Z".into(),
        direction: "outbound".into(),
        dependency: Some("unlisted".into()),
        reason: "Loop".into(),
        status: Some(502),
        mode: "Enforce".into(),
        method: Some(String::new()),
        detail: Some("the Host names 127.0.0.1:15001".into()),
        ..Decision::default()
    };
    insta::assert_snapshot!(page(&refused, &status(), Paint::PLAIN));
}

#[test]
fn littles_law_tells_a_burst_from_a_limit_that_is_too_low() {
    let mut dependency = status().dependencies.remove(0);
    let advice = |dependency: &Dependency| littles_law(&decision(), Some(dependency)).unwrap();
    assert!(advice(&dependency).contains("about 3 permits: within the limit"));
    dependency.requests_per_second = 500.0;
    assert!(advice(&dependency).contains("about 45 permits: more than the limit"));
}

#[test]
fn every_reason_is_explained_with_something_to_do() {
    for reason in plimsoll_resilience::Reason::ALL {
        let advice = advice::advice(reason.as_str(), None);
        assert!(!advice.change.is_empty(), "{} has no advice", reason.as_str());
    }
    assert!(advice::advice("Novel", None).why.contains("does not know"));
    assert_eq!(advice::advice("CircuitOpen", Some("SlowCallRate")).why, advice::advice("CircuitOpen", None).why);
}

#[test]
fn long_lines_are_folded_under_their_beginning() {
    let folded = folded(&"word ".repeat(30), 6);
    assert!(folded.lines().all(|line| line.len() <= 96), "{folded}");
    assert!(folded.lines().nth(1).unwrap().starts_with("      word"));
}
