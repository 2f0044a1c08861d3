//! Metrics of the process, under the names that every dashboard knows, and of the program's build. They come from
//! Linux's `/proc`; values that another system does not provide are omitted.

use std::fmt;
use std::fs;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use lock_node::metrics::text_format::{Instruments, Sheet};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::unistd::{SysconfVar, sysconf};

/// Metric with the version of this program.
pub struct Build;

impl Instruments for Build {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let help = "Always 1, labelled with the version of the program";
        sheet.gauges(
            "build_info",
            help,
            [([("version", env!("CARGO_PKG_VERSION"))], 1_u64)],
        )
    }
}

/// Metrics of the process.
pub struct Process;

impl Instruments for Process {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        if let Some((virtual_bytes, resident_bytes)) = memory() {
            let help = "Resident memory of the process";
            sheet.gauge("process_resident_memory_bytes", help, resident_bytes)?;
            if let Some(limit) = memory_limit() {
                let help = "Memory limit of the process: its control group's limit, or the machine's memory";
                sheet.gauge("process_memory_limit_bytes", help, limit)?;
            }
            let help = "Virtual memory of the process";
            sheet.gauge("process_virtual_memory_bytes", help, virtual_bytes)?;
        }
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let (user, system) = (usage.user_time(), usage.system_time());
            let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
            let help = "CPU time of the process";
            sheet.counter_of_seconds("process_cpu_seconds", help, seconds(user) + seconds(system))?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            let help = "Open files and connections of the process";
            // Reading the directory takes one file descriptor itself.
            sheet.gauge("process_open_fds", help, open.count().saturating_sub(1))?;
        }
        if let Ok((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            sheet.gauge("process_max_fds", "How many it may have open", limit)?;
        }
        let help = "Start time of the process, in seconds since 1970";
        sheet.gauge("process_start_time_seconds", help, *STARTED)
    }
}

/// Returns the reserved and the resident bytes.
fn memory() -> Option<(u64, u64)> {
    let page = u64::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_whitespace().map(str::parse::<u64>);
    let (size, resident) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some((size * page, resident * page))
}

/// Returns the memory limit of the process's control group, or the machine's memory if that is less or there is no
/// limit.
fn memory_limit() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok()?;
    let total = machine.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total: u64 = total.trim().strip_suffix(" kB")?.parse().ok()?;
    let machine = total * 1024;
    // The path is that of control groups version 2, seen from their root; within a container it is the container's own.
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("/");
    let limits = [
        format!("/sys/fs/cgroup{own}/memory.max"),
        "/sys/fs/cgroup/memory.max".to_owned(),
    ];
    // "max" is not a number and means that there is no limit.
    let limits = limits
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    limits.chain([machine]).min()
}

/// Read once: a later change of the clock does not change the time at which the process was started.
static STARTED: LazyLock<f64> = LazyLock::new(|| {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64());
    age().map_or(now, |age| now - age)
});

/// Returns the age of the process in seconds: the uptime of the machine, less its uptime when the process began.
fn age() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses, and may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    // Field 22 of the whole line.
    let began_ticks: f64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    let ticks = sysconf(SysconfVar::CLK_TCK).ok()?? as f64;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Some((uptime - began_ticks / ticks).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_tells_what_the_process_takes() {
        let (virtual_bytes, resident_bytes) = memory().expect("Linux tells");
        assert!(resident_bytes > 1 << 20 && virtual_bytes >= resident_bytes);
        let limit = memory_limit().expect("Linux tells");
        assert!(limit > resident_bytes, "{limit}");
        let age = age().expect("Linux tells");
        assert!((0.0..3600.0).contains(&age), "{age}");
    }
}
