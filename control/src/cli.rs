//! The command line: verbs, flags and their help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::admin::ProxyAddress;
use crate::demo::DemoArgs;
use crate::demo::services::{PaymentsArgs, RailArgs};

/// Keeps a service up when something it calls is slow or broken.
#[derive(Debug, Parser)]
#[command(
    name = "plimsoll",
    version,
    arg_required_else_help = true,
    after_help = "Begin here:
  plimsoll demo                              one slow dependency, without and with policy
  plimsoll lint examples/payments.yaml       check a policy
  plimsoll-proxy --policy payments.yaml      run the proxy
  plimsoll status                            what it does now
  plimsoll explain                           why it refused the last call

Exit codes: 0 done, 1 the answer is no (policy refused, lint errors, a claim of the demo not met),
2 it could not be asked (bad usage, no proxy, no token)."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Every verb.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show, with real processes, what one slow dependency does to a service
    #[command(after_help = "Examples:
  plimsoll demo
  plimsoll demo | tee demo.txt               plain lines, one a second
  plimsoll demo --proxy-binary ./plimsoll-proxy

Starts a payment service, three rails it calls and one sidecar, all on 127.0.0.1, and ends them again.
Takes less than a minute. Exit code 1 when the run did not show what is claimed.")]
    Demo(DemoArgs),

    /// Check policy files; exit code 1 when one has an error
    #[command(after_help = "Examples:
  plimsoll lint payments.yaml
  plimsoll lint policies/                    every file of the folder, as one policy
  plimsoll lint --defaults                   what an omitted field means
  plimsoll lint --schema > plimsoll.schema.json")]
    Lint(LintArgs),

    /// Hand policy to a running proxy; exit code 1 when it refuses
    #[command(after_help = "Examples:
  plimsoll push payments.yaml
  plimsoll push policies/ --proxy 15100

The files together become the whole policy: what they do not name is no longer in force. It is taken
or refused as a whole; refused, the old one stays. No connection is closed and no call is touched.")]
    Push(PushArgs),

    /// What a proxy does now: policy, dependencies, what is refused and why
    #[command(after_help = "Examples:
  plimsoll status
  plimsoll status --proxy 15100
  plimsoll status -o json | jq .generation")]
    Status(ReadArgs),

    /// Every circuit breaker: state, rates, thresholds, next probe
    #[command(after_help = "Examples:
  plimsoll circuits
  plimsoll circuits -o json | jq '.[] | select(.state != \"Closed\")'")]
    Circuits(ReadArgs),

    /// Every endpoint: state, what is in flight to it, where it comes from
    #[command(after_help = "Examples:
  plimsoll endpoints
  plimsoll endpoints -o json | jq '.[] | select(.state != \"Healthy\")'

IN FLIGHT and BAD (failed, timed out or pushed back, of those that ended in the last 10 s) are what
LeastRequest chooses by. SHARE is of the turns, where SRV records give weights.")]
    Endpoints(ReadArgs),

    /// Why a call was refused, with numbers and what to change
    #[command(after_help = "Examples:
  plimsoll explain                           the newest refusal
  plimsoll explain 7f3a9c4102                the one with this id, or the call with this trace id
  plimsoll explain -o json")]
    Explain(ExplainArgs),

    /// Print a completion script for your shell
    #[command(after_help = "Examples:
  plimsoll completions bash > ~/.local/share/bash-completion/completions/plimsoll
  plimsoll completions zsh > ~/.zfunc/_plimsoll
  plimsoll completions fish > ~/.config/fish/completions/plimsoll.fish")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },

    /// One rail of the demo
    #[command(hide = true)]
    DemoRail(RailArgs),

    /// The payment service of the demo
    #[command(hide = true)]
    DemoPayments(PaymentsArgs),
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Which proxy.
#[derive(Clone, Debug, Args)]
pub struct ProxyArgs {
    /// The proxy's admin address: ADDRESS:PORT or PORT
    #[arg(
        long,
        value_name = "ADDR",
        env = "PLIMSOLL_PROXY",
        hide_env_values = true,
        default_value = "127.0.0.1:15000"
    )]
    pub proxy: ProxyAddress,

    /// The file with its admin token [default: where that proxy writes it]
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_ADMIN_TOKEN_FILE", hide_env_values = true)]
    pub admin_token_file: Option<PathBuf>,
}

/// `-o`.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// A verb that only reads.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// Which proxy.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Which refusal: its id, or the trace id of its call [default: the newest]
    pub id: Option<String>,
    /// Which proxy.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `push`.
#[derive(Debug, Args)]
pub struct PushArgs {
    /// Policy files, or folders of them
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Which proxy.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `lint`.
#[derive(Debug, Args)]
pub struct LintArgs {
    /// Policy files, or folders of them; together they are one policy
    #[arg(required_unless_present_any = ["defaults", "schema"], value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print every field with its default and meaning
    #[arg(long, conflicts_with_all = ["files", "schema"])]
    pub defaults: bool,
    /// Print the JSON Schema, for editors
    #[arg(long, conflicts_with = "files")]
    pub schema: bool,
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests;
