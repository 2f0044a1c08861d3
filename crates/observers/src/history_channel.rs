//! Channel from the apply loop to the lock history, in apply order.
//!
//! Sending never waits. The number of events in the channel is bounded. Beyond the bound events are dropped, and the next one that fits
//! says how many messages were missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use znode_store::{ContenderEnd, Event, Hold, Store};

/// Maximum number of beginnings and ends in the channel: some seconds of a node's largest load, some 30 MB.
const MAX_WAITING: usize = 65_536;

/// Message to the lock history.
pub enum HoldMessage {
    /// Entries were applied.
    Applied(AppliedHolds),
    /// A snapshot replaced the state.
    Replaced {
        /// State before the snapshot. It takes a while to compare, and to drop.
        before: Box<Store>,
        /// Position of the new state.
        zxid: u64,
        /// Time of the new state.
        time_ms: u64,
        /// Number of messages that were missed before.
        missed: u64,
    },
    /// The last message.
    Stop,
}

/// Hold events of one entry.
pub struct AppliedHolds {
    /// Beginnings and ends, with the zxids of their commands.
    pub holds: Vec<(u64, HoldChange)>,
    /// Last zxid before the entry.
    pub after: u64,
    /// Last zxid of the entry.
    pub zxid: u64,
    /// Time of the state after the entry.
    pub time_ms: u64,
    /// Number of messages that were missed just before this one.
    pub missed: u64,
}

/// Beginning or end of a hold.
pub enum HoldChange {
    /// A hold began.
    Began(Arc<Hold>),
    /// A hold ended.
    Ended {
        /// Hold.
        hold: Arc<Hold>,
        /// Reason.
        how: ContenderEnd,
        /// Principal that broke it.
        by: Option<Arc<str>>,
        /// Time of the state.
        time_ms: u64,
    },
}

/// Sender of the apply loop. Without a receiver it does nothing.
#[derive(Default)]
pub struct HoldEventSender {
    channel: Option<Channel>,
}

struct Channel {
    queue: mpsc::Sender<HoldMessage>,
    waiting: Arc<AtomicUsize>,
    progress: HoldEventProgress,
    missed: AtomicU64,
}

/// Receiver of the lock history.
pub struct HoldEventReceiver {
    queue: mpsc::Receiver<HoldMessage>,
    waiting: Arc<AtomicUsize>,
}

/// Progress of the sender.
#[derive(Clone, Default)]
pub struct HoldEventProgress(Arc<Progress>);

#[derive(Default)]
struct Progress {
    sent: AtomicU64,
    zxid: AtomicU64,
    time_ms: AtomicU64,
}

impl HoldEventProgress {
    /// Returns the number of messages that were sent so far.
    pub fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Acquire)
    }

    /// Returns a zxid up to which all events were sent by now, and a time that is not later than that of the zxid.
    pub fn sent_until(&self) -> (u64, u64) {
        let time_ms = self.0.time_ms.load(Ordering::Acquire);
        (self.0.zxid.load(Ordering::Acquire), time_ms)
    }
}

impl HoldEventSender {
    /// Returns a sender, its receiver and its progress.
    pub fn new() -> (Self, HoldEventReceiver, HoldEventProgress) {
        let (queue, end) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let progress = HoldEventProgress::default();
        let channel = Channel {
            queue,
            waiting: waiting.clone(),
            progress: progress.clone(),
            missed: AtomicU64::new(0),
        };
        let sender = Self {
            channel: Some(channel),
        };
        (sender, HoldEventReceiver { queue: end, waiting }, progress)
    }

    /// Begins to collect the hold events of an entry; `None` without a receiver.
    pub fn collect(&self, store: &Store) -> Option<AppliedHolds> {
        self.channel.as_ref().map(|_| AppliedHolds {
            holds: Vec::new(),
            after: store.zxid().0,
            zxid: 0,
            time_ms: 0,
            missed: 0,
        })
    }

    /// Sends the hold events of an entry. Call it while the state is still locked, so that no reader of the state is ahead of the events.
    pub fn applied(&self, applied: Option<AppliedHolds>, store: &Store) {
        let (Some(channel), Some(mut applied)) = (&self.channel, applied) else {
            return;
        };
        let (zxid, time_ms) = (store.zxid().0, store.time_ms());
        if !applied.holds.is_empty() {
            (applied.zxid, applied.time_ms) = (zxid, time_ms);
            applied.missed = channel.missed.load(Ordering::Relaxed);
            // What does not fit is counted as missed.
            drop(channel.send(applied.holds.len(), HoldMessage::Applied(applied)));
        }
        channel.reached(zxid, time_ms);
    }

    /// Sends that a snapshot replaced the state `before`. Returns that state if it was not sent.
    #[must_use = "a large state should be dropped where it holds nobody up"]
    pub fn replaced(&self, before: Store, zxid: u64, time_ms: u64) -> Option<Store> {
        let Some(channel) = &self.channel else {
            return Some(before);
        };
        let missed = channel.missed.load(Ordering::Relaxed);
        let before = Box::new(before);
        let refused = channel.send(
            1,
            HoldMessage::Replaced {
                before,
                zxid,
                time_ms,
                missed,
            },
        );
        channel.reached(zxid, time_ms);
        match refused {
            Some(HoldMessage::Replaced { before, .. }) => Some(*before),
            _ => None,
        }
    }

    /// Sends the last message.
    pub fn stop(&self) {
        if let Some(channel) = &self.channel {
            // A receiver that is gone has stopped already.
            let _ = channel.queue.send(HoldMessage::Stop);
        }
    }
}

impl Channel {
    /// Returns a message that could not be sent.
    fn send(&self, weight: usize, message: HoldMessage) -> Option<HoldMessage> {
        let has_room = self.waiting.load(Ordering::Relaxed) < MAX_WAITING;
        self.waiting.fetch_add(weight, Ordering::Relaxed);
        let refused = match has_room {
            true => self.queue.send(message).err().map(|error| error.0),
            false => Some(message),
        };
        if refused.is_none() {
            self.missed.store(0, Ordering::Relaxed);
            self.progress.0.sent.fetch_add(1, Ordering::Release);
        } else {
            self.waiting.fetch_sub(weight, Ordering::Relaxed);
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
        refused
    }
}

impl Channel {
    /// Records that all events up to here were sent, unless some are missed.
    fn reached(&self, zxid: u64, time_ms: u64) {
        if self.missed.load(Ordering::Relaxed) == 0 {
            // In this order a reader never gets a time that is later than the position.
            self.progress.0.zxid.store(zxid, Ordering::Release);
            self.progress.0.time_ms.store(time_ms, Ordering::Release);
        }
    }
}

impl AppliedHolds {
    /// Collects the hold events of one command.
    pub fn follow(&mut self, zxid: u64, time_ms: u64, events: &[Event]) {
        for event in events {
            let change = match event {
                Event::HoldBegan(hold) => HoldChange::Began(hold.clone()),
                Event::HoldEnded { hold, how, by } => HoldChange::Ended {
                    hold: hold.clone(),
                    how: how.clone(),
                    by: by.clone(),
                    time_ms,
                },
                _ => continue,
            };
            self.holds.push((zxid, change));
        }
    }
}

impl HoldMessage {
    fn weight(&self) -> usize {
        match self {
            Self::Applied(applied) => applied.holds.len(),
            Self::Replaced { .. } => 1,
            Self::Stop => 0,
        }
    }
}

impl HoldEventReceiver {
    /// Waits for the next message, in the given time at most.
    pub fn wait(&self, patience: std::time::Duration) -> Result<HoldMessage, mpsc::RecvTimeoutError> {
        let message = self.queue.recv_timeout(patience)?;
        self.waiting.fetch_sub(message.weight(), Ordering::Relaxed);
        Ok(message)
    }

    /// Returns the next message, if there is one.
    pub fn next(&self) -> Option<HoldMessage> {
        let message = self.queue.try_recv().ok()?;
        self.waiting.fetch_sub(message.weight(), Ordering::Relaxed);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use znode_store::{LockMode, LockName, SessionId, Zxid};

    use super::*;

    fn hold() -> Arc<Hold> {
        Arc::new(Hold {
            lock: LockName::parse("a").unwrap(),
            holder: "x-0000000000".into(),
            session: SessionId(1),
            session_name: "".into(),
            mode: LockMode::Exclusive,
            permits: 1,
            fencing_token: Zxid(1),
            owner: "".into(),
            note: "".into(),
            address: "".into(),
            since_ms: Some(1),
        })
    }

    fn send(sender: &HoldEventSender, count: usize) {
        let store = Store::new();
        let mut applied = sender.collect(&store).expect("there is a receiver");
        let events = vec![Event::HoldBegan(hold()); count];
        applied.follow(1, 1, &events);
        sender.applied(Some(applied), &store);
    }

    fn missed(message: Option<HoldMessage>) -> Option<u64> {
        match message? {
            HoldMessage::Applied(applied) => Some(applied.missed),
            _ => None,
        }
    }

    #[test]
    fn receiver_that_falls_behind_learns_how_much_it_missed() {
        let (sender, end, progress) = HoldEventSender::new();
        send(&sender, MAX_WAITING);
        send(&sender, 1);
        send(&sender, 1);
        assert_eq!(progress.sent(), 1);
        assert_eq!(missed(end.next()), Some(0));
        assert_eq!(missed(end.next()), None);
        send(&sender, 1);
        send(&sender, 1);
        assert_eq!(progress.sent(), 3);
        assert_eq!(missed(end.next()), Some(2));
        assert_eq!(missed(end.next()), Some(0));
        assert_eq!(end.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn entries_without_hold_events_send_nothing() {
        let (sender, end, _) = HoldEventSender::new();
        send(&sender, 0);
        assert!(end.next().is_none());
        assert!(HoldEventSender::default().collect(&Store::new()).is_none());
    }
}
