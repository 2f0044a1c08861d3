//! Signal handling of commands. A signal that is ignored at the start (`nohup`, `trap '' INT`) stays ignored:
//! a handler would undo that, for this program and for the programs that it starts.

use std::fs;

use anyhow::Context;
pub use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Signals that this process ignores.
#[derive(Debug, Clone, Copy)]
pub struct Ignored {
    /// Bit n - 1 is set for signal n.
    mask: u64,
}

impl Ignored {
    /// Reads the set of signals that are ignored now; empty without /proc.
    pub fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            mask: mask_of(&status).unwrap_or(0),
        }
    }

    /// Returns whether a signal is ignored.
    pub fn contains(self, signal: Signal) -> bool {
        self.mask & (1 << (signal as u32 - 1)) != 0
    }
}

/// Parses the field `SigIgn` of proc(5).
fn mask_of(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Listener for one signal.
#[derive(Debug)]
pub struct SignalListener {
    /// `None` if the parent process ignores the signal.
    arrivals: Option<tokio::signal::unix::Signal>,
}

impl SignalListener {
    /// Installs a handler for the signal, unless the process ignores it. The signal's default action is off from then on.
    pub fn new(which: Signal) -> anyhow::Result<Self> {
        let arrivals = match Ignored::now().contains(which) {
            true => None,
            false => {
                let listening = signal(SignalKind::from_raw(which as i32));
                Some(listening.with_context(|| format!("installing the handler of {which}"))?)
            }
        };
        Ok(Self { arrivals })
    }

    /// Waits for the next arrival; never completes if the signal is ignored.
    pub async fn next(&mut self) {
        if let Some(arrivals) = &mut self.arrivals
            && arrivals.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Waits until the user interrupts the command (SIGINT).
pub async fn interrupted() -> anyhow::Result<()> {
    SignalListener::new(Signal::SIGINT)?.next().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status =
            "Name:\tx\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001003\nSigCgt:\t0000000000000000\n";
        let ignored = Ignored {
            mask: mask_of(status).unwrap(),
        };
        for (signal, expected) in [
            (Signal::SIGHUP, true),
            (Signal::SIGINT, true),
            (Signal::SIGPIPE, true),
            (Signal::SIGQUIT, false),
            (Signal::SIGTERM, false),
        ] {
            assert_eq!(ignored.contains(signal), expected, "{signal}");
        }
        assert_eq!(mask_of("Name:\tx\n"), None);
        // Rust's runtime ignores this one.
        assert!(Ignored::now().contains(Signal::SIGPIPE));
    }
}
