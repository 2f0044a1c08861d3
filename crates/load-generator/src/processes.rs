//! What the kernel knows of a process: its memory and its time on the processor.

use std::io::ErrorKind;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, anyhow};
use nix::errno::Errno;
use nix::unistd::{Pid, SysconfVar, sysconf};

/// The most memory that a process has had, in bytes.
pub fn peak_memory(pid: Pid) -> anyhow::Result<u64> {
    kib(pid, "VmHWM:")
}

/// The memory that a process has now, in bytes.
pub fn memory(pid: Pid) -> anyhow::Result<u64> {
    kib(pid, "VmRSS:")
}

/// What the kernel shows there of a process, which may have ended since its id was looked up.
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
    anyhow!("the cluster went away during the measurement: the node with process {pid} has ended")
}

/// One line of `/proc/PID/status`, in bytes. A process that ends loses its memory, and with it these lines, some time
/// before the kernel shows it as a zombie.
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
        .with_context(|| format!("{name} in {path} is not understood"))
}

/// How long all threads of a process have run, in user and kernel mode together.
pub fn cpu_time(pid: Pid) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = read(pid, &path)?;
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK)
        .context("the length of a tick")?
        .context("ticks have no length here")?;
    let ticks = ticks(&stat).with_context(|| format!("{path} is not understood"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64))
}

/// The 14th and 15th field; the second one is a name in brackets that may have anything in it (proc(5)).
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
    fn the_kernel_tells_of_this_process() {
        let me = Pid::this();
        // The kernel's counters are approximate, so the peak may be some pages below what is used now.
        assert!(memory(me).unwrap() <= 2 * peak_memory(me).unwrap());
        assert!(cpu_time(me).is_ok());
        assert_eq!(
            ticks("7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14"),
            Some(11 + 12)
        );
        assert_eq!(ticks("7 (a) S 1 2"), None);
    }

    #[test]
    fn a_process_that_has_ended_is_called_so() {
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
            "not collected yet"
        );
        child.wait().unwrap();
        for result in [cpu_time(pid).map(drop), memory(pid).map(drop)] {
            assert!(result.unwrap_err().to_string().contains(&ended));
        }
    }
}
