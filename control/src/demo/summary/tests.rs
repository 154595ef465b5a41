use super::*;

fn figures(calls: u64, failed: u64, p50: u64, p99: u64) -> Figures {
    Figures { calls, failed, p50: Duration::from_millis(p50), p99: Duration::from_millis(p99), ..Figures::default() }
}

fn summary() -> Summary {
    let run = |healthy, slow, in_flight, busy, waiting| Run {
        healthy,
        slow,
        slow_rail: RailNumbers { in_flight, most_in_flight: in_flight },
        payments: PaymentsNumbers { most_busy: busy, most_waiting: waiting, ..PaymentsNumbers::default() },
    };
    let stalled = Figures { retries: 1448, open: 40, ..figures(749, 470, 3723, 6207) };
    Summary {
        slow_rail: "wallet".into(),
        pool: 200,
        before: figures(600, 0, 53, 79),
        without: run(stalled, figures(375, 375, 6205, 6210), 200, 200, 1820),
        with: run(figures(750, 0, 53, 78), figures(375, 371, 1, 2004), 20, 24, 1),
    }
}

#[test]
fn as_claimed() {
    assert!(summary().held());
    insta::assert_snapshot!(summary().render(Paint::PLAIN));
}

#[test]
fn a_run_that_did_not_show_it_says_so() {
    let mut summary = summary();
    summary.with.healthy.p99 = Duration::from_millis(400);
    assert!(!summary.held());
    insta::assert_snapshot!(summary.render(Paint::PLAIN));
}

#[test]
fn each_claim_is_judged_by_its_own_figure() {
    let held = |with: u64, without: u64| {
        let mut summary = summary();
        summary.with.healthy.p99 = Duration::from_millis(with);
        summary.without.healthy.p99 = Duration::from_millis(without);
        summary.claims().iter().map(|claim| claim.held).collect::<Vec<_>>()
    };
    assert_eq!(held(118, 238), [true, true]);
    assert_eq!(held(119, 238), [false, true]);
    assert_eq!(held(118, 236), [true, false]);
}

#[test]
fn a_disturbed_baseline_does_not_make_it_easy() {
    let mut summary = summary();
    summary.before.p99 = Duration::from_millis(380);
    summary.with.healthy.p99 = Duration::from_millis(159);
    assert!(summary.held());
    let page = summary.render(Paint::PLAIN);
    assert!(page.contains("compared with twice its p50, 106 ms"), "{page}");
    summary.with.healthy.p99 = Duration::from_millis(160);
    assert!(!summary.held(), "although it is far below 380 ms");
}

#[test]
fn a_few_calls_prove_nothing() {
    let mut summary = summary();
    summary.before.calls = 199;
    assert!(!summary.held());
    assert!(summary.render(Paint::PLAIN).contains("Too few calls"));
}
