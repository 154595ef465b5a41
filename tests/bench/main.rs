//! `make bench`: what a request, or a gigabyte, costs in each proxy, measured side by side on this machine.
//!
//! Every proxy gets one core to itself; load and origin share another. Rounds are interleaved, so that whatever else
//! the machine does meets all of them alike; the figures are medians over rounds, and the ratios are what counts.
//! CPU is user + system of the proxy's processes, which a wall clock on a shared machine cannot disturb much.
//!
//!   plimsoll-bench [--parts http1,http2,tcp] [--rounds N] [--seconds S] [--idle N] [--only a,b] [--gate]
//!   plimsoll-bench relay LISTEN UPSTREAM

mod http1;
mod http2;
mod load;
mod measure;
mod peers;
mod relay;
mod report;
mod tcp;

use std::process::ExitCode;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

const USAGE: &str =
    "usage: plimsoll-bench [--parts http1,http2,tcp] [--rounds N] [--seconds S] [--idle N] [--only a,b] [--gate]";

/// What the command line asked for.
struct Options {
    parts: Vec<String>,
    rounds: usize,
    round_length: Duration,
    idle: usize,
    only: Option<Vec<String>>,
    gate: bool,
}

impl Options {
    /// Whether the proxy of this name, in lower case, is to be measured.
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|one| one == name))
    }

    /// Each round, the warm-up first: its number, and how long it is. The warm-up fills pools, caches and branch
    /// predictors, and is not counted.
    fn rounds(&self) -> impl Iterator<Item = (usize, Duration)> + '_ {
        let length = |round| if round == 0 { Duration::from_millis(300) } else { self.round_length };
        (0..=self.rounds)
            .map(move |round| (round, length(round)))
            .inspect(|(round, _)| eprintln!("round {round} of {}", self.rounds))
    }
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
    let run = options(&args).and_then(|options| {
        raise_open_files(options.idle)?;
        Ok(bench(&options) || !options.gate)
    });
    match run {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn options(args: &[String]) -> Result<Options, String> {
    let mut options = Options {
        parts: ["http1", "http2", "tcp"].map(str::to_owned).to_vec(),
        rounds: 5,
        round_length: Duration::from_secs(2),
        idle: 5_000,
        only: None,
        gate: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        let names = |value: &String| value.split(',').map(str::to_lowercase).collect::<Vec<_>>();
        let number = |value: &String| value.parse::<usize>().map_err(|error| format!("{arg} {value}: {error}"));
        match arg.as_str() {
            "--parts" => options.parts = names(value()?),
            "--rounds" => options.rounds = number(value()?)?.max(1),
            "--seconds" => options.round_length = Duration::from_secs(number(value()?)?.max(1) as u64),
            "--idle" => options.idle = number(value()?)?,
            "--gate" => options.gate = true,
            "--only" => options.only = Some(names(value()?)),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    match options.parts.iter().find(|part| !["http1", "http2", "tcp"].contains(&part.as_str())) {
        Some(part) => Err(format!("unknown part {part}")),
        None => Ok(options),
    }
}

/// Idle connections need one descriptor here and one in the proxy, which inherits the limit.
fn raise_open_files(idle: usize) -> Result<(), String> {
    let wanted = idle as u64 + 1_000;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| error.to_string())?;
    let limit = most.max(wanted);
    setrlimit(Resource::RLIMIT_NOFILE, limit, limit).map_err(|_| {
        format!("the limit of {most} open files cannot be raised to {wanted}: fewer idle connections (--idle)")
    })
}

/// Runs the parts one after the other; true when plimsoll is within its gates in all of them.
fn bench(options: &Options) -> bool {
    let core = usize::from(measure::pin(0) && std::thread::available_parallelism().is_ok());
    let mut passed = true;
    for part in &options.parts {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        passed &= match part.as_str() {
            "http1" => http1::run(options, core, folder.path()),
            "http2" => http2::run(options, core, folder.path()),
            _ => tcp::run(options, core, folder.path()),
        };
    }
    passed
}
