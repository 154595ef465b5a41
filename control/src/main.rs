//! `plimsoll`: the command line. Each verb is a module; see ARCHITECTURE.md.

mod admin;
mod circuits;
mod cli;
mod demo;
mod endpoints;
mod explain;
mod figures;
mod http;
mod lint;
mod paint;
mod push;
mod status;
mod table;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use admin::{Admin, AdminError};
use cli::{Cli, Output, ProxyArgs, Verb};
use paint::{Paint, Tone};

/// The answer is no: a refused policy, a lint error, a claim that was not met.
const NO: u8 = 1;
/// It could not be asked.
const UNASKED: u8 = 2;
/// What shells expect of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// What a verb came to.
#[derive(Debug)]
pub enum Verdict {
    /// Done.
    Yes,
    /// Understood, and the answer is no; said already.
    No,
    /// A signal ended it.
    Interrupted,
}

/// Why a verb could not do its work; its text ends up on standard error.
pub type Failure = Box<dyn std::error::Error>;

/// One thread is enough for everything here, and keeps children tied to the main thread (see `demo::child`).
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Cli::parse().verb).await {
        Ok(Verdict::Yes) => ExitCode::SUCCESS,
        Ok(Verdict::No) => ExitCode::from(NO),
        Ok(Verdict::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(failure) if is_broken_pipe(failure.as_ref()) => ExitCode::SUCCESS,
        Err(failure) => {
            let paint = Paint::for_stream(&std::io::stderr());
            eprintln!("{} {failure}", paint.apply(Tone::Bad, "error:"));
            ExitCode::from(UNASKED)
        }
    }
}

async fn run(verb: Verb) -> Result<Verdict, Failure> {
    match verb {
        // Boxed: the demo's future is many times the size of any other here.
        Verb::Demo(args) => Box::pin(demo::run(args)).await,
        Verb::Lint(args) => lint::run(&args),
        Verb::Push(args) => push::run(&args).await,
        Verb::Status(args) => {
            let admin = admin_of(&args.proxy);
            let json = admin.status().await?;
            let text = |paint| Ok(status::render(&admin.read(&json)?, admin.address(), paint));
            print(args.output.output, &json, text)
        }
        Verb::Circuits(args) => {
            let admin = admin_of(&args.proxy);
            let json = admin.status().await?;
            let text = |paint| Ok(circuits::render(&admin.read(&json)?, paint));
            print(args.output.output, &circuits::json(&json), text)
        }
        Verb::Endpoints(args) => {
            let admin = admin_of(&args.proxy);
            let json = admin.status().await?;
            let text = |paint| Ok(endpoints::render(&admin.read(&json)?, paint));
            print(args.output.output, &endpoints::json(&json), text)
        }
        Verb::Explain(args) => explain::run(&args).await,
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
            std::io::stdout().write_all(&script)?;
            Ok(Verdict::Yes)
        }
        Verb::DemoRail(args) => demo::services::run_rail(args).await,
        Verb::DemoPayments(args) => demo::services::run_payments(args).await,
    }
}

/// A client of the proxy that the flags name.
fn admin_of(args: &ProxyArgs) -> Admin {
    Admin::new(args.proxy.clone(), args.admin_token_file.as_deref())
}

/// Prints `json` or the text for people, as asked.
fn print(
    output: Output,
    json: &serde_json::Value,
    text: impl FnOnce(Paint) -> Result<String, AdminError>,
) -> Result<Verdict, Failure> {
    let mut stdout = std::io::stdout().lock();
    match output {
        Output::Json => writeln!(stdout, "{}", serde_json::to_string_pretty(json)?)?,
        Output::Text => stdout.write_all(text(Paint::for_stream(&stdout))?.as_bytes())?,
    }
    Ok(Verdict::Yes)
}

/// `plimsoll status | head -1` is no failure.
fn is_broken_pipe(failure: &(dyn std::error::Error + 'static)) -> bool {
    failure.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
