//! Memory and CPU time of processes, as reported by the kernel.

use std::io::ErrorKind;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, anyhow};
use nix::errno::Errno;
use nix::unistd::{Pid, SysconfVar, sysconf};

/// Returns the peak resident memory of a process in bytes.
pub fn peak_memory(pid: Pid) -> anyhow::Result<u64> {
    kib(pid, "VmHWM:")
}

/// Returns the resident memory of a process in bytes.
pub fn memory(pid: Pid) -> anyhow::Result<u64> {
    kib(pid, "VmRSS:")
}

/// Reads a file of a process, which may have ended since its id was looked up.
fn read(pid: Pid, path: &str) -> anyhow::Result<String> {
    fs::read_to_string(path).map_err(|error: io::Error| {
        let is_gone =
            error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32);
        match is_gone {
            true => has_ended(pid),
            false => anyhow::Error::from(error).context(path.to_owned()),
        }
    })
}

fn has_ended(pid: Pid) -> anyhow::Error {
    anyhow!("the cluster was lost during the measurement: the node with process {pid} has ended")
}

/// Returns one line of `/proc/PID/status` in bytes. A process that ends releases its memory, and with it
/// these lines, some time before the kernel shows it as a zombie.
fn kib(pid: Pid, name: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = read(pid, &path)?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.ok_or_else(|| has_ended(pid))?;
    let kib = line
        .trim()
        .strip_suffix("kB")
        .and_then(|kib| kib.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .with_context(|| format!("{name} in {path} cannot be parsed"))
}

/// Returns the CPU time of all threads of a process, in user and kernel mode together.
pub fn cpu_time(pid: Pid) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = read(pid, &path)?;
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK)
        .context("reading the clock tick rate")?
        .context("the system has no clock tick rate")?;
    let ticks = ticks(&stat).with_context(|| format!("{path} cannot be parsed"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64))
}

/// Returns the sum of the 14th and 15th field. The second field is a name in parentheses that may contain
/// anything (proc(5)).
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_this_process_can_be_read() {
        let me = Pid::this();
        // The kernel's counters are approximate, so the peak may be some pages below the current value.
        assert!(memory(me).unwrap() <= 2 * peak_memory(me).unwrap());
        assert!(cpu_time(me).is_ok());
        assert_eq!(
            ticks("7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14"),
            Some(11 + 12)
        );
        assert_eq!(ticks("7 (a) S 1 2"), None);
    }

    #[test]
    fn ended_process_is_reported_as_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        let ended = format!("the node with process {pid} has ended");
        let error = loop {
            match memory(pid) {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(
            error.to_string().rsplit_once(": ").unwrap().1,
            ended,
            "not reaped yet"
        );
        child.wait().unwrap();
        for result in [cpu_time(pid).map(drop), memory(pid).map(drop)] {
            assert!(result.unwrap_err().to_string().contains(&ended));
        }
    }
}
