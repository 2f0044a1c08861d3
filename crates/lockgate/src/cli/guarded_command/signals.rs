//! Signals that are forwarded to the command.

use cli_support::signals::SignalListener;
use nix::sys::signal::Signal;

use super::suspend::suspend;

/// Forwarded signals: all that people send to a program. SIGTSTP is among them so that this program never
/// stops while its command runs; when the command is suspended, this program follows (see
/// `ProcessGroup::suspended`).
const FORWARDED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Forwarded signals that end a program by default.
const TERMINATING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Stream of signals. Signals that the caller ignores are not in it: they stay ignored, by the command too.
pub struct Signals {
    arrived: tokio::sync::mpsc::UnboundedReceiver<Signal>,
    /// Tasks that end when this is dropped.
    _listeners: tokio::task::JoinSet<()>,
}

impl Signals {
    /// Starts to receive the signals, which then have no other effect.
    pub fn listen() -> anyhow::Result<Self> {
        // Unbounded: people send few of them.
        let (sender, arrived) = tokio::sync::mpsc::unbounded_channel();
        let mut listeners = tokio::task::JoinSet::new();
        for which in FORWARDED {
            let mut listener = SignalListener::new(which)?;
            let sender = sender.clone();
            listeners.spawn(async move {
                loop {
                    listener.next().await;
                    if sender.send(which).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self {
            arrived,
            _listeners: listeners,
        })
    }

    /// Returns the next signal.
    pub async fn next(&mut self) -> Signal {
        match self.arrived.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// Returns the next terminating signal. Until then there is no command to suspend, only this program.
    pub async fn next_terminating(&mut self) -> anyhow::Result<Signal> {
        loop {
            match self.next().await {
                Signal::SIGTSTP => suspend()?,
                signal if TERMINATING.contains(&signal) => return Ok(signal),
                _ => {}
            }
        }
    }
}
