//! Evidence that a follower has of its leader's life.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::silence_timeout::SilenceTimeout;
use crate::raft_config::RaftTiming;
use raft_log::sync::Mutex;

/// The time of the leader's last message, and whether something speaks against its life.
pub struct LeaderEvidence {
    heard: Mutex<LastMessage>,
    suspected: Notify,
    loss_confirmed: Notify,
    loss_confirmed_at: Mutex<Option<Instant>>,
}

struct LastMessage {
    /// The latest term that this node knows of. An earlier leader's messages are no sign of life.
    term: u64,
    /// Time of the leader's last sign of life; before the first, the time at which the term was learnt.
    at: Instant,
    timeout: SilenceTimeout,
}

impl LeaderEvidence {
    /// As if the leader had been heard of just now.
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

    /// Notes a message of the leader of `term`. Returns false if that one leads no more.
    pub fn record_message(&self, term: u64) -> bool {
        let now = Instant::now();
        let mut heard = self.heard.lock();
        if term < heard.term {
            return false;
        }
        // The time between two leaders is no pause of either.
        if term == heard.term {
            let pause = now.saturating_duration_since(heard.at);
            heard.timeout.note(pause, now);
        }
        (heard.term, heard.at) = (term, now);
        true
    }

    /// Notes that there is such a term: silence before it is not its leader's.
    pub fn term_began(&self, term: u64) {
        let mut heard = self.heard.lock();
        if term > heard.term {
            (heard.term, heard.at) = (term, Instant::now());
        }
    }

    /// Returns the time of the leader's last sign of life.
    pub fn last(&self) -> Instant {
        self.heard.lock().at
    }

    /// Returns the time of the leader's last sign of life, and the time until which a silence since then is no reason to agree with another voter.
    pub fn believed(&self) -> (Instant, Instant) {
        let mut heard = self.heard.lock();
        let at = heard.at;
        (at, at + heard.timeout.agreement(Instant::now()))
    }

    /// The part of a silence that is waited for in slices, after [`LeaderEvidence::believed`].
    pub fn final_part(&self) -> Duration {
        self.heard.lock().timeout.final_part()
    }

    /// It may have ended: somebody should look. One look answers all that came before it.
    pub fn suspect(&self) {
        self.suspected.notify_one();
    }

    /// Returns when somebody should look.
    pub async fn suspected(&self) {
        self.suspected.notified().await;
    }

    /// It has ended, as far as can be seen from here: somebody should act.
    pub fn confirm_loss(&self) {
        *self.loss_confirmed_at.lock() = Some(Instant::now());
        self.loss_confirmed.notify_one();
    }

    /// Returns when somebody should act. Who was heard of since lives, whatever was seen before.
    pub async fn loss_confirmed(&self) {
        loop {
            self.loss_confirmed.notified().await;
            if *self.loss_confirmed_at.lock() > Some(self.last()) {
                return;
            }
        }
    }
}
