//! Where whoever keeps a history of holds is told of them, in the order in which commands are applied.
//!
//! Telling never waits. What was told and not yet taken is bounded; beyond the bound nothing is told but, as soon as there
//! is room again, that something was missed. It does not know what becomes of what it tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use znode_store::{ContenderEnd, Event, Hold, Store};

/// So many beginnings and ends wait at most to be taken: some seconds of a node's largest load, some 30 MB.
const MAX_WAITING: usize = 65_536;

/// What is told.
pub enum Told {
    /// Entries were applied.
    Applied(AppliedHolds),
    /// A snapshot took the place of the state.
    Replaced {
        /// The state before. It takes a while to compare, and to give back.
        before: Box<Store>,
        /// Where the new one stands.
        zxid: u64,
        /// And its time.
        time_ms: u64,
        /// Whether something was missed before.
        missed: u64,
    },
    /// Nothing more will come.
    Stop,
}

/// What one entry did to holds.
pub struct AppliedHolds {
    /// The beginnings and ends, with the zxids of their commands.
    pub holds: Vec<(u64, HoldChange)>,
    /// The last zxid before the entry.
    pub after: u64,
    /// The last zxid of the entry.
    pub zxid: u64,
    /// The state's time after it.
    pub time_ms: u64,
    /// How many messages were missed just before this one.
    pub missed: u64,
}

/// A beginning or an end.
pub enum HoldChange {
    /// A hold began.
    Began(Arc<Hold>),
    /// A hold ended.
    Ended {
        /// Which.
        hold: Arc<Hold>,
        /// How.
        how: ContenderEnd,
        /// By whom, if it was broken.
        by: Option<Arc<str>>,
        /// When, in the time of the state.
        time_ms: u64,
    },
}

/// The applier's end. Without somebody who listens it does nothing.
#[derive(Default)]
pub struct Tap {
    listener: Option<Listener>,
}

struct Listener {
    queue: mpsc::Sender<Told>,
    waiting: Arc<AtomicUsize>,
    meter: TapMeter,
    missed: AtomicU64,
}

/// The other end.
pub struct TapEnd {
    queue: mpsc::Receiver<Told>,
    waiting: Arc<AtomicUsize>,
}

/// Looks how much was told.
#[derive(Clone, Default)]
pub struct TapMeter(Arc<Meter>);

#[derive(Default)]
struct Meter {
    sent: AtomicU64,
    zxid: AtomicU64,
    time_ms: AtomicU64,
}

impl TapMeter {
    /// How many messages were told so far.
    pub fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Acquire)
    }

    /// A zxid up to which everything was told by now, and a time that is not later than its own.
    pub fn told_until(&self) -> (u64, u64) {
        let time_ms = self.0.time_ms.load(Ordering::Acquire);
        (self.0.zxid.load(Ordering::Acquire), time_ms)
    }
}

impl Tap {
    /// A tap with its other end.
    pub fn new() -> (Self, TapEnd, TapMeter) {
        let (queue, end) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let meter = TapMeter::default();
        let listener = Listener {
            queue,
            waiting: waiting.clone(),
            meter: meter.clone(),
            missed: AtomicU64::new(0),
        };
        let tap = Self {
            listener: Some(listener),
        };
        (tap, TapEnd { queue: end, waiting }, meter)
    }

    /// Begins to collect what an entry does; `None` if nobody wants to know.
    pub fn collect(&self, store: &Store) -> Option<AppliedHolds> {
        self.listener.as_ref().map(|_| AppliedHolds {
            holds: Vec::new(),
            after: store.zxid().0,
            zxid: 0,
            time_ms: 0,
            missed: 0,
        })
    }

    /// Tells of an entry. Call it while the state is still locked, so that nobody who looks at the state is ahead of what
    /// was told.
    pub fn applied(&self, applied: Option<AppliedHolds>, store: &Store) {
        let (Some(listener), Some(mut applied)) = (&self.listener, applied) else {
            return;
        };
        let (zxid, time_ms) = (store.zxid().0, store.time_ms());
        if !applied.holds.is_empty() {
            (applied.zxid, applied.time_ms) = (zxid, time_ms);
            applied.missed = listener.missed.load(Ordering::Relaxed);
            // What does not fit is counted as missed.
            drop(listener.tell(applied.holds.len(), Told::Applied(applied)));
        }
        listener.reached(zxid, time_ms);
    }

    /// Tells of a snapshot that took the place of `before`, which is given back if nobody takes it.
    #[must_use = "a large state should be dropped where it holds nobody up"]
    pub fn replaced(&self, before: Store, zxid: u64, time_ms: u64) -> Option<Store> {
        let Some(listener) = &self.listener else {
            return Some(before);
        };
        let missed = listener.missed.load(Ordering::Relaxed);
        let before = Box::new(before);
        let refused = listener.tell(
            1,
            Told::Replaced {
                before,
                zxid,
                time_ms,
                missed,
            },
        );
        listener.reached(zxid, time_ms);
        match refused {
            Some(Told::Replaced { before, .. }) => Some(*before),
            _ => None,
        }
    }

    /// Tells that nothing more will come.
    pub fn stop(&self) {
        if let Some(listener) = &self.listener {
            // Whoever is gone has stopped already.
            let _ = listener.queue.send(Told::Stop);
        }
    }
}

impl Listener {
    /// Returns what could not be told.
    fn tell(&self, weight: usize, told: Told) -> Option<Told> {
        let has_room = self.waiting.load(Ordering::Relaxed) < MAX_WAITING;
        self.waiting.fetch_add(weight, Ordering::Relaxed);
        let refused = match has_room {
            true => self.queue.send(told).err().map(|error| error.0),
            false => Some(told),
        };
        if refused.is_none() {
            self.missed.store(0, Ordering::Relaxed);
            self.meter.0.sent.fetch_add(1, Ordering::Release);
        } else {
            self.waiting.fetch_sub(weight, Ordering::Relaxed);
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
        refused
    }
}

impl Listener {
    /// Everything up to here was told, unless something is missed.
    fn reached(&self, zxid: u64, time_ms: u64) {
        if self.missed.load(Ordering::Relaxed) == 0 {
            // In this order a reader never gets a time that is later than the position.
            self.meter.0.zxid.store(zxid, Ordering::Release);
            self.meter.0.time_ms.store(time_ms, Ordering::Release);
        }
    }
}

impl AppliedHolds {
    /// Takes what one command did.
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

impl Told {
    fn weight(&self) -> usize {
        match self {
            Self::Applied(applied) => applied.holds.len(),
            Self::Replaced { .. } => 1,
            Self::Stop => 0,
        }
    }
}

impl TapEnd {
    /// Waits for what is told next, for so long at most.
    pub fn wait(&self, patience: std::time::Duration) -> Result<Told, mpsc::RecvTimeoutError> {
        let told = self.queue.recv_timeout(patience)?;
        self.waiting.fetch_sub(told.weight(), Ordering::Relaxed);
        Ok(told)
    }

    /// What was told and not yet taken.
    pub fn next(&self) -> Option<Told> {
        let told = self.queue.try_recv().ok()?;
        self.waiting.fetch_sub(told.weight(), Ordering::Relaxed);
        Some(told)
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

    fn tell(tap: &Tap, count: usize) {
        let store = Store::new();
        let mut applied = tap.collect(&store).expect("somebody listens");
        let events = vec![Event::HoldBegan(hold()); count];
        applied.follow(1, 1, &events);
        tap.applied(Some(applied), &store);
    }

    fn missed(told: Option<Told>) -> Option<u64> {
        match told? {
            Told::Applied(applied) => Some(applied.missed),
            _ => None,
        }
    }

    #[test]
    fn whoever_does_not_take_what_is_told_is_told_that_something_was_missed() {
        let (tap, end, meter) = Tap::new();
        tell(&tap, MAX_WAITING);
        tell(&tap, 1);
        tell(&tap, 1);
        assert_eq!(meter.sent(), 1);
        assert_eq!(missed(end.next()), Some(0));
        assert_eq!(missed(end.next()), None);
        tell(&tap, 1);
        tell(&tap, 1);
        assert_eq!(meter.sent(), 3);
        assert_eq!(missed(end.next()), Some(2));
        assert_eq!(missed(end.next()), Some(0));
        assert_eq!(end.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nobody_is_told_what_does_not_concern_holds() {
        let (tap, end, _) = Tap::new();
        tell(&tap, 0);
        assert!(end.next().is_none());
        assert!(Tap::default().collect(&Store::new()).is_none());
    }
}
