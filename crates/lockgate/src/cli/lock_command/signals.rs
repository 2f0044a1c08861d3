//! The signals that are the command's, not this program's.

use cli_support::signals::SignalListener;
use nix::sys::signal::Signal;

use super::suspend::suspend;

/// What is passed on: all that one sends to a program to tell it something. SIGTSTP is among them so that this program never
/// stands still while its command goes on; when the command does, it follows (see `Group::suspended`).
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

/// Those of them that end a program which does nothing about them.
const TERMINATING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Signals as they come. Those that the caller ignores are not among them: they stay ignored, and the command ignores them, too.
pub struct Signals {
    arrived: tokio::sync::mpsc::UnboundedReceiver<Signal>,
    /// Ends with this.
    _listeners: tokio::task::JoinSet<()>,
}

impl Signals {
    /// From now on they do nothing but come here.
    pub fn listen() -> anyhow::Result<Self> {
        // As many as people send.
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

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        match self.arrived.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The next one that asks for an end. Until then there is no command that could be suspended, only this program.
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
