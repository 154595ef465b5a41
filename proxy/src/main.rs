//! The `plimsoll-proxy` binary. See `plimsoll-proxy --help`.

use std::process::ExitCode;

use clap::Parser as _;
use plimsoll_proxy::cli::{EXIT_DRAINED, EXIT_USAGE, Options};
use plimsoll_proxy::runtime;

fn main() -> ExitCode {
    match runtime::run(Options::parse()) {
        Ok(()) => ExitCode::from(EXIT_DRAINED),
        Err(error) => {
            eprintln!("plimsoll-proxy: {error}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}
