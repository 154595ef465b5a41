//! A call to report in tests.

use std::time::{Duration, SystemTime};

use plimsoll_resilience::{Outcome, Summary};

use super::{CallFacts, CallReport, Direction, StatsId};

pub(crate) fn facts() -> CallFacts<'static> {
    CallFacts {
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_120),
        direction: Direction::Outbound,
        method: b"POST",
        host: b"fraud.internal:8080",
        path: b"/v1/score?card=4111",
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736",
        policy: Some("shop/fraud-api"),
        route: None,
    }
}

pub(crate) fn report() -> CallReport<'static> {
    CallReport {
        stats: StatsId::UNLISTED,
        facts: facts(),
        status: 200,
        grpc: None,
        refusal: None,
        summary: Summary {
            attempts: 1,
            first: Some(Outcome::Success),
            latency: Some(Duration::from_millis(12)),
            ..Summary::default()
        },
        endpoint: Some(([127, 0, 0, 1], 9001).into()),
        duration: Duration::from_micros(12_345),
        deadline_remaining: None,
        bytes_received: 120,
        bytes_sent: 345,
    }
}
