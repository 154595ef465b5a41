use super::*;

fn board() -> Board {
    let dependency = |json: &str| serde_json::from_str(json).unwrap();
    let recent = |tries: f64, paid: f64, p50: u64, p99: u64| Recent {
        tries_per_second: tries,
        paid_per_second: paid,
        p50: Duration::from_millis(p50),
        p99: Duration::from_millis(p99),
    };
    Board {
        title: "2 of 2, with policy: wallet answers in 8 s".into(),
        elapsed: Duration::from_secs(37),
        total: Duration::from_secs(48),
        rows: vec![
            Row {
                rail: "cards".into(),
                slow: false,
                recent: recent(25.0, 25.0, 51, 83),
                sidecar: dependency(
                    r#"{"in_flight":2,"circuits":[{"state":"Closed"}],"bulkheads":[{"limit":20,"in_flight":2}]}"#,
                ),
            },
            Row { rail: "bank".into(), slow: false, recent: Recent::default(), sidecar: None },
            Row {
                rail: "wallet".into(),
                slow: true,
                recent: recent(25.3, 0.0, 1, 2004),
                sidecar: dependency(
                    r#"{"in_flight":3,"circuits":[{"state":"Open","next_probe_in_ms":8200}],
                        "bulkheads":[{"limit":20,"in_flight":20,"queued":1}],
                        "rejections":{"BulkheadFull":44,"CircuitOpen":120}}"#,
                ),
            },
        ],
        payments: PaymentsNumbers { busy: 200, waiting: 143, most_busy: 200, most_waiting: 150 },
        pool: 200,
        customers: CustomerCounts { calls: 2312, retries: 310, failed: 145 },
    }
}

#[test]
fn on_a_terminal_it_is_a_table() {
    insta::assert_snapshot!(table_lines(&board(), Paint::PLAIN).join("\n"));
}

#[test]
fn elsewhere_it_is_a_line() {
    insta::assert_snapshot!(plain_line(&board()));
}

#[test]
fn the_line_is_not_wrapped() {
    let mut board = board();
    let full = Dependency { circuits: Vec::new(), ..board.rows[2].sidecar.clone().unwrap() };
    let open = board.rows[2].sidecar.take();
    // As bad as it gets: many repeat without a policy, nobody waits for long with one.
    for (sidecar, tries, waiting) in [(None, 125.0, 1_820), (Some(full), 25.0, 43), (open, 25.0, 43)] {
        for row in &mut board.rows {
            row.recent = Recent { tries_per_second: tries, p99: Duration::from_millis(9_999), ..row.recent };
        }
        board.rows[2].sidecar = sidecar;
        board.payments.waiting = waiting;
        let line = plain_line(&board);
        assert!(line.chars().count() <= 120, "{} columns: {line}", line.chars().count());
    }
}
