//! The command line of `plimsoll-proxy`: contract.md section 3.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};

use crate::report::{LogFormat, Target};

/// Exit code after a drain: everything that was accepted has been answered.
pub const EXIT_DRAINED: u8 = 0;
/// Exit code for a bad command line, a bad policy at start, or an address that cannot be bound.
pub const EXIT_USAGE: u8 = 2;
/// Exit code for a fault of our own.
pub const EXIT_INTERNAL: u8 = 70;

/// Where the inbound listener is unless told otherwise.
pub const DEFAULT_INBOUND: &str = "0.0.0.0:15006";
/// Where the outbound listener is unless told otherwise.
pub const DEFAULT_OUTBOUND: &str = "127.0.0.1:15001";
/// Where the admin listener is unless told otherwise.
pub const DEFAULT_ADMIN: &str = "127.0.0.1:15000";

const EXAMPLES: &str = "\
Examples:
  Hold the calls of the service on this machine to a policy; call its `listen` address or use it as a forward proxy:
    plimsoll-proxy --policy payments.yaml
    curl http://127.0.0.1:9101/score          # a `listen` address of the policy
    curl -x http://127.0.0.1:15001 http://fraud.internal/score

  Stand in front of the service too, and write a line for each call:
    plimsoll-proxy --policy policies/ --app 127.0.0.1:8080 --access-log -

  Any free ports (they are printed as JSON once it is ready), policy pushed later:
    plimsoll-proxy --inbound 127.0.0.1:0 --outbound 127.0.0.1:0 --admin 127.0.0.1:0 --health 127.0.0.1:0
    plimsoll push payments.yaml --proxy 127.0.0.1:PORT

Signals: SIGTERM and SIGINT drain, a second one ends at once; SIGHUP reads the policy files and opens the access log again.
Exit codes: 0 drained, 2 bad usage or policy at start, 70 internal.";

/// Plimsoll's data plane: a sidecar proxy that keeps one slow dependency from sinking the rest.
#[derive(Clone, Debug, Parser)]
#[command(name = "plimsoll-proxy", version, after_help = EXAMPLES)]
pub struct Options {
    /// Policy file, or folder whose *.yaml files are read in name order; may be given several times
    #[arg(long, env = "PLIMSOLL_POLICY", value_name = "FILE|DIR", value_delimiter = ',')]
    pub policy: Vec<PathBuf>,

    /// Name of the workload this proxy stands beside; policies may be for some workloads only
    #[arg(long, env = "PLIMSOLL_WORKLOAD", value_name = "NAME")]
    pub workload: Option<String>,

    /// Namespace of the workload; without it policies of every namespace are taken
    #[arg(long, env = "PLIMSOLL_NAMESPACE", value_name = "NS")]
    pub namespace: Option<String>,

    /// Where calls to the workload arrive
    #[arg(
        long,
        env = "PLIMSOLL_INBOUND",
        value_name = "ADDR",
        default_value = DEFAULT_INBOUND
    )]
    pub inbound: SocketAddr,

    /// Where calls of the workload arrive: redirected, or as to a forward proxy
    #[arg(
        long,
        env = "PLIMSOLL_OUTBOUND",
        value_name = "ADDR",
        default_value = DEFAULT_OUTBOUND
    )]
    pub outbound: SocketAddr,

    /// Where status, metrics and operator commands are served
    #[arg(long, env = "PLIMSOLL_ADMIN", value_name = "ADDR", default_value = DEFAULT_ADMIN)]
    pub admin: SocketAddr,

    /// File that holds the admin token; without it one is made in the state directory
    #[arg(long, env = "PLIMSOLL_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,

    /// Where /ready and /live are served, and nothing else
    #[arg(long, env = "PLIMSOLL_HEALTH", value_name = "ADDR", default_value = "0.0.0.0:15021")]
    pub health: SocketAddr,

    /// Where the workload listens, for connections made to the inbound address itself
    #[arg(long, env = "PLIMSOLL_APP", value_name = "ADDR")]
    pub app: Option<SocketAddr>,

    /// Name server to ask instead of those in /etc/resolv.conf; may be given several times, the first is asked first
    #[arg(
        long,
        env = "PLIMSOLL_DNS_SERVER",
        value_name = "IP[:PORT]",
        value_delimiter = ',',
        value_parser = parse_name_server
    )]
    pub dns_server: Vec<SocketAddr>,

    /// Worker threads; by default as many as the CPU quota has cores, at most 2
    #[arg(long, env = "PLIMSOLL_WORKERS", value_name = "N")]
    pub workers: Option<NonZeroUsize>,

    /// Folder for the admin token; by default $XDG_STATE_HOME/plimsoll or ~/.local/state/plimsoll, for root /var/lib/plimsoll
    #[arg(long, env = "PLIMSOLL_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    /// Folder below which policy may name certificates and keys; nothing outside of it is read
    #[arg(long, env = "PLIMSOLL_SECRETS_DIR", value_name = "DIR")]
    pub secrets_dir: Option<PathBuf>,

    /// Write a line for each call to this file, or `-` for standard output
    #[arg(long, env = "PLIMSOLL_ACCESS_LOG", value_name = "FILE|-", value_parser = parse_target)]
    pub access_log: Option<Target>,

    /// What is logged to standard error: error, warn, info, debug, trace, or filters such as info,plimsoll_proxy::pool=debug
    #[arg(long, env = "PLIMSOLL_LOG", value_name = "LEVEL", default_value = "info")]
    pub log: String,

    /// How log and access log are written
    #[arg(long, env = "PLIMSOLL_LOG_FORMAT", value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub log_format: Format,
}

/// The names of [`LogFormat`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

impl From<Format> for LogFormat {
    fn from(format: Format) -> LogFormat {
        match format {
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        }
    }
}

impl Options {
    /// The state directory in force. `None` if nothing says where: no flag, no environment, not root.
    #[must_use]
    pub fn state_dir(&self) -> Option<PathBuf> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        self.state_dir.clone().or_else(|| default_state_dir(nix::unistd::geteuid().is_root(), variable))
    }
}

fn default_state_dir(root: bool, variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    // The XDG specification says to ignore a relative path.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if root {
        return Some(PathBuf::from("/var/lib/plimsoll"));
    }
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return Some(state.join("plimsoll"));
    }
    absolute("HOME").map(|home| home.join(".local/state/plimsoll"))
}

fn parse_target(text: &str) -> Result<Target, String> {
    match text {
        "" => Err("expected a file name, or `-` for standard output".to_owned()),
        "-" => Ok(Target::Stdout),
        path => Ok(Target::File(Path::new(path).to_owned())),
    }
}

fn parse_name_server(text: &str) -> Result<SocketAddr, String> {
    const DNS: u16 = 53;
    let address = text.parse().or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DNS)));
    address.map_err(|_| "expected an IP address, or one with a port as in 127.0.0.1:8600 or [::1]:8600".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_holds_together() {
        Options::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let options = Options::try_parse_from(["plimsoll-proxy"]).unwrap();
        assert_eq!(options.inbound.to_string(), "0.0.0.0:15006");
        assert_eq!(options.outbound.to_string(), "127.0.0.1:15001");
        assert_eq!(options.admin.to_string(), DEFAULT_ADMIN);
        assert_eq!(options.health.to_string(), "0.0.0.0:15021");
        assert_eq!((options.access_log, options.log_format), (None, Format::Text));
    }

    #[test]
    fn every_flag_has_its_variable() {
        for argument in Options::command().get_arguments().filter(|argument| argument.get_long() != Some("help")) {
            let Some(long) = argument.get_long().filter(|long| *long != "version") else {
                continue;
            };
            let want = format!("PLIMSOLL_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(argument.get_env().and_then(std::ffi::OsStr::to_str), Some(want.as_str()));
        }
    }

    #[test]
    fn a_bad_flag_is_exit_code_2() {
        let error = Options::try_parse_from(["plimsoll-proxy", "--admin", "nowhere"]).unwrap_err();
        assert_eq!(error.exit_code(), i32::from(EXIT_USAGE));
    }

    #[test]
    fn the_access_log_goes_to_a_file_or_to_standard_output() {
        let parsed = |value| Options::try_parse_from(["plimsoll-proxy", "--access-log", value]).map(|o| o.access_log);
        assert_eq!(parsed("-").unwrap(), Some(Target::Stdout));
        assert_eq!(parsed("calls.log").unwrap(), Some(Target::File("calls.log".into())));
        assert!(parsed("").is_err());
    }

    #[test]
    fn a_name_server_is_at_port_53_unless_it_says_otherwise() {
        let parsed = |value| Options::try_parse_from(["plimsoll-proxy", "--dns-server", value]).map(|o| o.dns_server);
        let servers = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        assert_eq!(parsed("10.0.0.10,127.0.0.1:8600").unwrap(), servers(&["10.0.0.10:53", "127.0.0.1:8600"]));
        assert_eq!(parsed("fd00::1").unwrap(), servers(&["[fd00::1]:53"]));
        assert!(parsed("ns.example").is_err());
    }

    #[test]
    fn where_state_is_kept() {
        let dir = |root, set: &[(&str, &str)]| {
            default_state_dir(root, |name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
                .map(|path| path.to_str().unwrap().to_owned())
        };
        assert_eq!(dir(false, &[("HOME", "/home/a")]).as_deref(), Some("/home/a/.local/state/plimsoll"));
        assert_eq!(dir(false, &[("HOME", "/home/a"), ("XDG_STATE_HOME", "/s")]).as_deref(), Some("/s/plimsoll"));
        assert_eq!(dir(true, &[("HOME", "/root"), ("XDG_STATE_HOME", "/s")]).as_deref(), Some("/var/lib/plimsoll"));
        assert_eq!(dir(false, &[("HOME", "relative")]), None);
    }
}
