use super::*;

const STATUS: &str = include_str!("../../fixtures/status.json");

fn page(status: &Status) -> String {
    let address = "127.0.0.1:15000".parse().unwrap();
    render(status, &address, Paint::PLAIN)
}

#[test]
fn a_proxy_with_everything_to_tell() {
    let status: Status = serde_json::from_str(STATUS).unwrap();
    insta::assert_snapshot!(page(&status));
}

#[test]
fn a_proxy_without_policy() {
    let status: Status = serde_json::from_str(
        r#"{"version":"0.1.0","workload":null,"generation":"local-0","state":"Serving","uptime_seconds":2.5,
            "policy":{"source":"None","paths":[],"applied_at":null,"last_error":null,"warnings":[]},"workers":1,
            "connections":{"inbound":0,"outbound":1},"dependencies":[],"unlisted":{"requests_total":1,"top":[]}}"#,
    )
    .unwrap();
    insta::assert_snapshot!(page(&status));
}

#[test]
fn a_refused_change_is_told_with_its_lines() {
    let status: Status = serde_json::from_str(
        r#"{"version":"0.1.0","generation":"local-2","state":"Draining","workers":2,
            "policy":{"source":"Admin","last_error":"error: unknown field `bulkhed`\n  --> payments.yaml:9:3"}}"#,
    )
    .unwrap();
    insta::assert_snapshot!(page(&status));
}

#[test]
fn the_worst_breaker_speaks_for_the_dependency() {
    let circuit = |state: &str| Circuit { state: state.into(), ..Circuit::default() };
    let shown = |states: &[&str]| {
        let circuits: Vec<_> = states.iter().map(|s| circuit(s)).collect();
        breaker(&circuits).text().to_owned()
    };
    assert_eq!(shown(&[]), "-");
    assert_eq!(shown(&["Closed", "Closed"]), "Closed");
    assert_eq!(shown(&["Closed", "Open", "HalfOpen"]), "1 of 3 Open");
    assert_eq!(shown(&["ForcedOpen"]), "ForcedOpen");
}

#[test]
fn reasons_are_told_most_frequent_first() {
    let counts = [("BulkheadFull", 3), ("CircuitOpen", 1200), ("NoRoute", 0)];
    let counts = counts.map(|(reason, n)| (reason.to_owned(), n)).into();
    assert_eq!(refused(&counts).text(), "CircuitOpen 1,200, BulkheadFull 3");
}
