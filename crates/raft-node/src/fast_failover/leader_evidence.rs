//! Evidence of a follower that its leader is alive.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::silence_timeout::SilenceTimeout;
use crate::raft_config::RaftTiming;
use raft_log::sync::Mutex;

/// Time of the leader's last message, and signals that it may be lost.
pub struct LeaderEvidence {
    heard: Mutex<LastMessage>,
    suspected: Notify,
    loss_confirmed: Notify,
    loss_confirmed_at: Mutex<Option<Instant>>,
}

struct LastMessage {
    /// Latest term that this node knows. Messages of earlier leaders do not count.
    term: u64,
    /// Time of the leader's last message; before the first one, the time at which the term became known.
    at: Instant,
    timeout: SilenceTimeout,
}

impl LeaderEvidence {
    /// Creates the evidence as if the leader had sent a message just now.
    pub fn new(timing: RaftTiming) -> Self {
        let now = Instant::now();
        let heard = LastMessage {
            term: 0,
            at: now,
            timeout: SilenceTimeout::new(timing, now),
        };
        Self {
            heard: Mutex::new(heard),
            suspected: Notify::new(),
            loss_confirmed: Notify::new(),
            loss_confirmed_at: Mutex::new(None),
        }
    }

    /// Records a message of the leader of `term`. Returns false if that node no longer leads.
    pub fn record_message(&self, term: u64) -> bool {
        let now = Instant::now();
        let mut heard = self.heard.lock();
        if term < heard.term {
            return false;
        }
        // The time between two leaders is not a pause of either.
        if term == heard.term {
            let pause = now.saturating_duration_since(heard.at);
            heard.timeout.note(pause, now);
        }
        (heard.term, heard.at) = (term, now);
        true
    }

    /// Records that a term has begun: earlier silence is not that of its leader.
    pub fn term_began(&self, term: u64) {
        let mut heard = self.heard.lock();
        if term > heard.term {
            (heard.term, heard.at) = (term, Instant::now());
        }
    }

    /// Returns the time of the leader's last message.
    pub fn last(&self) -> Instant {
        self.heard.lock().at
    }

    /// Returns the time of the leader's last message, and the time until which the silence since then is no
    /// reason to agree with a suspecting voter.
    pub fn believed(&self) -> (Instant, Instant) {
        let mut heard = self.heard.lock();
        let at = heard.at;
        (at, at + heard.timeout.agreement(Instant::now()))
    }

    /// Returns the final part of a silence, which is waited for in steps, after [`LeaderEvidence::believed`].
    pub fn final_part(&self) -> Duration {
        self.heard.lock().timeout.final_part()
    }

    /// Signals a suspicion that the leader is gone. One check answers all earlier signals.
    pub fn suspect(&self) {
        self.suspected.notify_one();
    }

    /// Waits for a suspicion.
    pub async fn suspected(&self) {
        self.suspected.notified().await;
    }

    /// Signals that the leader is gone by this node's own observations.
    pub fn confirm_loss(&self) {
        *self.loss_confirmed_at.lock() = Some(Instant::now());
        self.loss_confirmed.notify_one();
    }

    /// Waits for that signal. A message of the leader since then overrides it.
    pub async fn loss_confirmed(&self) {
        loop {
            self.loss_confirmed.notified().await;
            if *self.loss_confirmed_at.lock() > Some(self.last()) {
                return;
            }
        }
    }
}
