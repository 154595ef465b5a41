//! The process basics that every Prometheus client library shows, read from `/proc`.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// One reading. What the system does not tell is left out.
#[derive(Debug, Default)]
pub(super) struct Basics {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<u64>,
    virtual_bytes: Option<u64>,
    start_time_seconds: Option<f64>,
    threads: Option<u64>,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
}

impl Basics {
    pub fn read() -> Self {
        let mut basics =
            fs::read_to_string("/proc/self/stat").ok().and_then(|stat| parse_stat(&stat)).unwrap_or_default();
        basics.open_fds = fs::read_dir("/proc/self/fd").ok().and_then(|fds| u64::try_from(fds.count()).ok());
        basics.max_fds =
            nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft);
        let boot = fs::read_to_string("/proc/stat").ok().and_then(|stat| boot_time(&stat));
        basics.start_time_seconds = basics.start_time_seconds.zip(boot).map(|(since_boot, boot)| boot + since_boot);
        basics
    }
}

/// The fields of proc(5) `/proc/pid/stat`. The second, the command, is in parentheses and may hold anything.
fn parse_stat(stat: &str) -> Option<Basics> {
    let after_command = &stat[stat.rfind(')')? + 1..];
    // Field 3 of the manual is the first here.
    let field = |number: usize| after_command.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
    let ticks = tick_rate()?;
    let page = u64::try_from(nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??).ok()?;
    Some(Basics {
        cpu_seconds: Some((field(14)? + field(15)?) as f64 / ticks),
        threads: field(20),
        start_time_seconds: Some(field(22)? as f64 / ticks),
        virtual_bytes: field(23),
        resident_bytes: Some(field(24)? * page),
        ..Basics::default()
    })
}

fn tick_rate() -> Option<f64> {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    Some(ticks as f64).filter(|&ticks| ticks > 0.0)
}

fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

impl Collector for Basics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(seconds) = self.cpu_seconds {
            let help = "CPU time, user and system";
            let mut family =
                encoder.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), MetricType::Counter)?;
            family.encode_counter::<NoLabelSet, _, f64>(&seconds, None)?;
        }
        if let Some(seconds) = self.start_time_seconds {
            let help = "Start of the process, in Unix time";
            let mut family =
                encoder.encode_descriptor("process_start_time", help, Some(&Unit::Seconds), MetricType::Gauge)?;
            family.encode_gauge(&seconds)?;
        }
        let gauges = [
            ("process_resident_memory", "Resident memory", Some(&Unit::Bytes), self.resident_bytes),
            ("process_virtual_memory", "Virtual memory", Some(&Unit::Bytes), self.virtual_bytes),
            ("process_open_fds", "Open file descriptors", None, self.open_fds),
            ("process_max_fds", "File descriptors that may be open", None, self.max_fds),
            ("process_threads", "Threads", None, self.threads),
        ];
        for (name, help, unit, value) in gauges {
            let Some(value) = value else { continue };
            encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat =
            "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 5 0 1000 8192000 256 18446744073709551615";
        let basics = parse_stat(stat).unwrap();
        let ticks = tick_rate().unwrap();
        assert_eq!(basics.cpu_seconds, Some(300.0 / ticks));
        assert_eq!((basics.threads, basics.virtual_bytes), (Some(5), Some(8_192_000)));
        assert!(parse_stat("garbage").is_none());
        assert!(parse_stat("7 (x) S 1").is_none());
    }

    #[test]
    fn this_process_is_read() {
        let basics = Basics::read();
        assert!(basics.resident_bytes.unwrap() > 100_000);
        assert!(basics.open_fds.unwrap() >= 3 && basics.open_fds <= basics.max_fds);
        assert!(basics.start_time_seconds.unwrap() > 1e9);
        assert!(basics.cpu_seconds.is_some() && basics.threads.unwrap() >= 1);
    }
}
