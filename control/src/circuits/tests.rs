use super::*;

const STATUS: &str = include_str!("../../fixtures/status.json");

#[test]
fn every_breaker_in_one_table() {
    let status: Status = serde_json::from_str(STATUS).unwrap();
    insta::assert_snapshot!(render(&status, Paint::PLAIN));
}

#[test]
fn none_says_how_to_get_one() {
    insta::assert_snapshot!(render(&Status::default(), Paint::PLAIN));
}

#[test]
fn json_is_what_the_proxy_said_with_the_dependency_added() {
    let circuits = json(&serde_json::from_str(STATUS).unwrap());
    let circuits = circuits.as_array().unwrap();
    assert_eq!(circuits.len(), 5);
    assert_eq!(circuits[1]["dependency"], "shop/fraud-api");
    assert_eq!(circuits[1]["next_probe_in_ms"], 7200);
}
