//! `plimsoll demo`: one slow dependency, with and without policy, with real processes on this machine.
//!
//! ```text
//!                        +--------- one machine, 127.0.0.1 ----------+
//!  customers ----------> | payment service --> sidecar --> three rails |
//!  (this process:        | 200 slots           plimsoll-   50 ms, then |
//!  25 calls/s a rail,    | for everything      proxy       one: 8 s    |
//!  patience, retries)    +---------------------------------------------+
//! ```
//!
//! Two runs of one play, which differ in the sidecar's policy only: first it knows where the rails are and nothing
//! else, then it is pushed `examples/payments.yaml`. Between them the payment service is restarted, because after the
//! first run it is full of calls that nobody waits for any more.

mod child;
mod customers;
mod measure;
mod plan;
mod screen;
pub mod services;
mod stage;
mod summary;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::{Failure, Verdict};
use measure::Ledger;
use stage::{POOL, Stage};
use summary::Summary;

/// `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Which story
    #[arg(value_enum, default_value_t)]
    scenario: Scenario,
    /// The proxy to run [default: plimsoll-proxy beside this program, else on the PATH]
    #[arg(long, value_name = "FILE")]
    proxy_binary: Option<PathBuf>,
}

/// The stories that can be told.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Scenario {
    /// One of three payment rails turns from 50 ms to 8 s, without an error
    #[default]
    SlowRail,
}

/// The verb.
///
/// # Errors
/// When a process cannot be started or ends early.
pub async fn run(args: DemoArgs) -> Result<Verdict, Failure> {
    let Scenario::SlowRail = args.scenario;
    let proxy = proxy_binary(args.proxy_binary)?;
    tokio::select! {
        verdict = tell(&proxy) => verdict,
        // Leaving here drops the stage: the terminal is restored and every child killed.
        () = interrupted() => Ok(Verdict::Interrupted),
    }
}

async fn interrupted() {
    let next = async |kind| match signal(kind) {
        Ok(mut signals) => signals.recv().await,
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        _ = next(SignalKind::interrupt()) => {}
        _ = next(SignalKind::terminate()) => {}
        _ = next(SignalKind::hangup()) => {}
    }
}

fn proxy_binary(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given);
    }
    let beside = std::env::current_exe()?.with_file_name("plimsoll-proxy");
    if beside.exists() {
        return Ok(beside);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("plimsoll-proxy"));
    on_path.into_iter().find(|file| file.exists()).ok_or_else(|| {
        format!(
            "there is no plimsoll-proxy beside this program ({}) or on the PATH\n  Build it with `cargo build -p plimsoll-proxy`, or say where it is with --proxy-binary FILE.",
            beside.display()
        )
        .into()
    })
}

async fn tell(proxy: &Path) -> Result<Verdict, Failure> {
    let mut stage = Stage::set(proxy).await?;
    stage.introduce()?;
    let ledger = Ledger::new();
    let (before_first, without) = stage.play("1 of 2, without policy", &ledger).await?;
    stage.push_policy().await?;
    let (before_second, with) = stage.play("2 of 2, with policy", &ledger).await?;
    let slow = stage.slow_rail();
    let summary = Summary {
        slow_rail: stage.plan.rails[slow].name.clone(),
        pool: POOL,
        before: ledger.figures(&[before_first, before_second], |rail| rail != slow),
        without,
        with,
    };
    let last_words = stage.last_refusal().await;
    let paint = stage.screen.paint();
    stage.end().await?;
    println!("\n{}", summary.render(paint));
    if let Some(words) = last_words {
        println!("One of the refusals, as `plimsoll explain` tells it:\n{words}");
    }
    println!("{}", next_steps());
    Ok(if summary.held() { Verdict::Yes } else { Verdict::No })
}

/// Two commands to go on with, as this program was called.
fn next_steps() -> String {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let dir = called.parent().filter(|dir| !dir.as_os_str().is_empty());
    let program = |name: &str| dir.map_or_else(|| name.into(), |dir| dir.join(name).display().to_string());
    format!(
        "Next:\n  {} lint examples/payments.yaml\n  {} --policy examples/payments.yaml",
        program("plimsoll"),
        program("plimsoll-proxy"),
    )
}
