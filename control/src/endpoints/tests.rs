use super::*;

const STATUS: &str = include_str!("../../fixtures/status.json");

#[test]
fn every_endpoint_in_one_table() {
    let status: Status = serde_json::from_str(STATUS).unwrap();
    insta::assert_snapshot!(render(&status, Paint::PLAIN));
}

#[test]
fn none_says_where_calls_go() {
    insta::assert_snapshot!(render(&Status::default(), Paint::PLAIN));
}

#[test]
fn a_name_says_how_it_is_followed() {
    let named = EndpointSource { kind: "Dns".into(), name: Some("db.internal".into()), ..EndpointSource::default() };
    let records = Some("A/AAAA".to_owned());
    let of = |refresh_ms, ttl_ms, last_error: Option<&str>| {
        let last_error = last_error.map(str::to_owned);
        source(&EndpointSource { records: records.clone(), refresh_ms, ttl_ms, last_error, ..named.clone() })
    };
    assert_eq!(of(None, None, None), "db.internal (A/AAAA, not resolved yet)");
    assert_eq!(of(None, Some(30_000.0), None), "db.internal (A/AAAA, TTL 30 s)");
    assert_eq!(of(Some(5_000.0), Some(30_000.0), None), "db.internal (A/AAAA, every 5 s)");
    assert_eq!(of(Some(5_000.0), None, Some("no answer")), "db.internal (A/AAAA, last look-up failed)");
}

#[test]
fn json_is_what_the_proxy_said_with_the_dependency_added() {
    let endpoints = json(&serde_json::from_str(STATUS).unwrap());
    let endpoints = endpoints.as_array().unwrap();
    assert_eq!(endpoints.len(), 5);
    assert_eq!(endpoints[1]["dependency"], "shop/fraud-api");
    assert_eq!(endpoints[1]["load"]["in_flight"], 12);
    assert_eq!(endpoints[3]["source"]["records"], "SRV");
}
