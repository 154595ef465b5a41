//! `make bench`: what a request costs in each proxy, measured side by side on this machine.
//!
//! Every proxy gets one core to itself; load and origin share another. Rounds are interleaved, so that whatever else
//! the machine does meets all of them alike; the figures are medians over rounds, and the ratios are what counts.
//! CPU is user + system of the proxy's processes, which a wall clock on a shared machine cannot disturb much.
//!
//!   plimsoll-bench [--rounds N] [--seconds S] [--idle N] [--only a,b] [--gate]
//!   plimsoll-bench relay LISTEN UPSTREAM

mod load;
mod measure;
mod peers;
mod relay;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use load::{Pace, Rig};
use peers::Peer;
use report::{Cost, Row};

const CONNECTIONS: usize = 64;
const FIXED_RATE: u32 = 2_000;

struct Options {
    rounds: usize,
    round_length: Duration,
    idle: usize,
    only: Option<Vec<String>>,
    gate: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, listen, upstream] = args.as_slice()
        && verb == "relay"
    {
        let (listen, upstream) = (listen.parse().expect("an address"), upstream.parse().expect("an address"));
        relay::run(listen, upstream).expect("the relay runs until it is killed");
        return ExitCode::SUCCESS;
    }
    match options(&args) {
        Ok(options) => bench(&options),
        Err(problem) => {
            eprintln!("{problem}\nusage: plimsoll-bench [--rounds N] [--seconds S] [--idle N] [--only a,b] [--gate]");
            ExitCode::from(2)
        }
    }
}

fn options(args: &[String]) -> Result<Options, String> {
    let mut options = Options { rounds: 5, round_length: Duration::from_secs(2), idle: 5_000, only: None, gate: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().ok_or(format!("{arg} needs a number"))?;
            value.parse::<usize>().map_err(|error| format!("{arg} {value}: {error}"))
        };
        match arg.as_str() {
            "--rounds" => options.rounds = number()?.max(1),
            "--seconds" => options.round_length = Duration::from_secs(number()?.max(1) as u64),
            "--idle" => options.idle = number()?,
            "--gate" => options.gate = true,
            "--only" => {
                let names = args.next().ok_or("--only needs names, separated by commas")?;
                options.only = Some(names.split(',').map(str::to_lowercase).collect());
            }
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(options)
}

fn bench(options: &Options) -> ExitCode {
    // Idle connections need one descriptor here and one in the proxy, which inherits the limit.
    let wanted = options.idle as u64 + 1_000;
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).expect("a limit");
    let limit = most.max(wanted);
    if nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, limit, limit).is_err() {
        eprintln!("the limit of {most} open files cannot be raised to {wanted}: fewer idle connections (--idle)");
        return ExitCode::from(2);
    }
    let core = usize::from(measure::pin(0) && std::thread::available_parallelism().is_ok());
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut rig = Rig::new().expect("the origin can be bound");
    let peers = start(options, &rig, core, folder.path());
    let mut rows: Vec<Row> = peers.iter().map(|peer| Row::new(peer.name)).collect();

    eprintln!("memory: {} idle connections each", options.idle);
    for (peer, row) in peers.iter().zip(&mut rows) {
        row.at_rest = measure::pss_bytes(peer.pid);
        row.rss_at_rest = measure::rss_bytes(peer.pid);
    }
    let mut made = vec![0; peers.len()];
    for round in 0..=options.rounds {
        // The first round warms pools, caches and branch predictors; it is not counted.
        let length = if round == 0 { Duration::from_millis(300) } else { options.round_length };
        eprintln!("round {round} of {}", options.rounds);
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
    // A figure without the policy would be a figure of another proxy.
    for (peer, made) in peers.iter().zip(made) {
        let counted = peer.counted().unwrap_or(made);
        assert!(counted >= made, "{} counted {counted} of {made} calls under its policy", peer.name);
    }
    let passed = report::print(&rows, options.idle);
    if options.gate && !passed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn start(options: &Options, rig: &Rig, core: usize, folder: &std::path::Path) -> Vec<Peer> {
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| only.iter().any(|one| one == name));
    let origin = rig.origin();
    let mut peers = Vec::new();
    // The relay is always there: ratios need their floor.
    peers.push(peers::relay(origin, core));
    if wanted("nginx") {
        peers.push(peers::nginx(origin, core, folder));
    }
    if wanted("haproxy") {
        peers.push(peers::haproxy(origin, core, folder));
    }
    if let Some(binary) = std::env::var_os("ENVOY_BINARY").filter(|path| !path.is_empty()) {
        peers.push(peers::envoy(binary.as_ref(), origin, core, folder));
    }
    if wanted("plimsoll") {
        peers.push(peers::plimsoll(origin, core));
    }
    peers
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
