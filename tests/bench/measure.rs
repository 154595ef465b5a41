//! What a process and its children have used, from /proc.

use std::fs;

/// `root` and every process below it.
fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let children = format!("/proc/{0}/task/{0}/children", found[next]);
        let children = fs::read_to_string(children).unwrap_or_default();
        found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        next += 1;
    }
    found
}

/// Nanoseconds on a CPU, user and system, of every thread of the tree (field 1 of schedstat: exact, where the clock
/// ticks of `stat` are 10 ms). Interrupt work done while it ran is in it, as it is in user + system.
pub fn cpu_nanos(root: u32) -> u64 {
    let mut sum = 0;
    for pid in tree(root) {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for task in tasks.flatten() {
            let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            sum += schedstat.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    sum
}

/// Clock ticks of the tree in user space and in the kernel, so far. Coarse (10 ms), so only good for their ratio.
pub fn user_and_system_ticks(root: u32) -> (u64, u64) {
    let (mut user, mut system) = (0, 0);
    for pid in tree(root) {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in parentheses may hold anything; the numbers come after it.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
        let mut next = || fields.next().and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0);
        user += next();
        system += next();
    }
    (user, system)
}

/// Bytes of memory of the tree in proportional share (PSS): what all its processes hold together, shared pages once.
pub fn pss_bytes(root: u32) -> u64 {
    tree(root).into_iter().map(|pid| kib(&format!("/proc/{pid}/smaps_rollup"), "Pss:") * 1024).sum()
}

/// Bytes of memory of the tree, resident (RSS): shared pages counted in each process.
pub fn rss_bytes(root: u32) -> u64 {
    tree(root).into_iter().map(|pid| kib(&format!("/proc/{pid}/status"), "VmRSS:") * 1024).sum()
}

fn kib(file: &str, field: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Binds the calling thread, and what it starts, to `core`; false where the machine does not let it.
pub fn pin(core: usize) -> bool {
    let mut set = nix::sched::CpuSet::new();
    set.set(core).is_ok() && nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_used_something() {
        let me = std::process::id();
        assert!(cpu_nanos(me) > 0);
        assert!(pss_bytes(me) > 0 && rss_bytes(me) >= pss_bytes(me));
    }
}
