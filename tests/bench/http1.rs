//! HTTP/1.1: saturated, at a constant rate, and idle.

use std::path::Path;
use std::time::Duration;

use crate::load::{Pace, Rig};
use crate::peers::{self, Peer, Place, Speaks};
use crate::report::{self, Cost, Row};
use crate::{Options, measure};

const CONNECTIONS: usize = 64;
const FIXED_RATE: u32 = 2_000;

/// Runs it; true when plimsoll is within its gates.
pub fn run(options: &Options, core: usize, folder: &Path) -> bool {
    let mut rig = Rig::new().expect("the origin can be bound");
    let place = Place { speaks: Speaks::Http1, origin: rig.origin(), core, folder };
    let peers = peers::start(place, |name| options.wants(name));
    let mut rows: Vec<Row> = peers.iter().map(|peer| Row::new(peer.name)).collect();

    eprintln!("memory: {} idle connections each", options.idle);
    for (peer, row) in peers.iter().zip(&mut rows) {
        row.at_rest = measure::pss_bytes(peer.pid);
        row.rss_at_rest = measure::rss_bytes(peer.pid);
    }
    let mut made = vec![0; peers.len()];
    for (round, length) in options.rounds() {
        for ((peer, row), made) in peers.iter().zip(&mut rows).zip(&mut made) {
            let saturated = cost(&mut rig, peer, Pace::Saturated, length);
            let fixed = cost(&mut rig, peer, Pace::PerSecond(FIXED_RATE), length);
            *made += saturated.calls + fixed.calls;
            if round > 0 {
                row.saturated.push(saturated);
                row.fixed.push(fixed);
            }
        }
    }
    for (peer, row) in peers.iter().zip(&mut rows).filter(|(peer, _)| peer.name != "relay") {
        let before = measure::pss_bytes(peer.pid);
        match rig.open_idle(peer.address, options.idle) {
            Ok(kept) => {
                let grown = measure::pss_bytes(peer.pid).saturating_sub(before);
                row.idle = Some(grown as f64 / kept.len().max(1) as f64);
            }
            Err(error) => eprintln!("{}: {error}", peer.name),
        }
    }
    for (peer, made) in peers.iter().zip(made) {
        peer.assert_counted(made);
    }
    report::print(&rows, options.idle)
}

fn cost(rig: &mut Rig, peer: &Peer, pace: Pace, length: Duration) -> Cost {
    let ticks = measure::user_and_system_ticks(peer.pid);
    let before = measure::cpu_nanos(peer.pid);
    let mut tally = rig.run(peer.address, CONNECTIONS, pace, length).expect("the load can run");
    let nanos = measure::cpu_nanos(peer.pid) - before;
    let after = measure::user_and_system_ticks(peer.pid);
    let calls = tally.answers.max(1) as f64;
    Cost {
        cpu_micros: nanos as f64 / 1_000.0 / calls,
        per_second: calls / length.as_secs_f64(),
        p50_micros: tally.quantile(0.5),
        p99_micros: tally.quantile(0.99),
        ticks: (after.0 - ticks.0, after.1 - ticks.1),
        calls: tally.answers,
        errors: tally.errors,
        late: tally.late,
    }
}
