//! Record of the commands in transit to the leader, by caller. While there are several callers, each has a share of them, so that one caller
//! delays the others by its share, and not by all that a node may have in transit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use raft_log::sync::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::admission::Caller;

/// Maximum size of one caller's commands in transit; the last one may exceed it. Others have room beside it, because a few large commands delay
/// them as many small ones do.
const MOST_BYTES: usize = 512 * 1024;

/// Maximum number of one caller's commands in transit while there are other callers. More would delay these, and fewer would cost the rate of a
/// caller with many: decision 25 has the measurements. A caller without others has all the room of the node.
const MOST_BESIDE_OTHERS: usize = 64;

/// Time for which a caller counts as another one after its last command. A client with one request at a time has none in transit most of the
/// time.
const COUNTS_FOR: Duration = Duration::from_secs(1);

/// Number and size of commands.
#[derive(Debug, Clone, Copy, Default)]
struct Amount {
    commands: usize,
    bytes: usize,
}

/// Adds a command of this size to the amount of a caller.
fn count(amounts: &mut BTreeMap<Caller, Amount>, caller: &Caller, bytes: usize) {
    let amount = match amounts.get_mut(caller) {
        Some(amount) => amount,
        None => amounts.entry(caller.clone()).or_default(),
    };
    amount.commands += 1;
    amount.bytes += bytes;
}

/// Commands in transit to the leader of a term, by caller.
#[derive(Debug, Default)]
pub struct InTransit {
    /// Term in which the counted commands were sent. Those to an earlier leader do not count: they may stay without an outcome for long.
    term: u64,
    amounts: BTreeMap<Caller, Amount>,
    /// Caller of the last command, and its time.
    last: Option<(Caller, Instant)>,
    /// Time of the last command whose caller was not that of the command before.
    shared_at: Option<Instant>,
}

impl InTransit {
    /// Records that a caller has a new command.
    pub fn note_caller(&mut self, caller: &Caller, now: Instant) {
        match &mut self.last {
            Some((last, at)) if last == caller => *at = now,
            last => {
                if last.replace((caller.clone(), now)).is_some() {
                    self.shared_at = Some(now);
                }
            }
        }
    }

    /// Returns whether callers other than this one have had commands lately.
    pub fn has_others_than(&self, caller: &Caller, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < COUNTS_FOR;
        let last = self.last.as_ref();
        self.shared_at.is_some_and(is_recent)
            || last.is_some_and(|(last, at)| last != caller && is_recent(*at))
    }

    /// Returns whether another command of the caller may be sent in this term.
    pub fn has_room(&self, caller: &Caller, term: u64, now: Instant) -> bool {
        let sent = match self.term == term {
            true => self.amounts.get(caller).copied().unwrap_or_default(),
            false => Amount::default(),
        };
        let is_shared = self.has_others_than(caller, now);
        sent.bytes < MOST_BYTES && (!is_shared || sent.commands < MOST_BESIDE_OTHERS)
    }

    fn add(&mut self, caller: &Caller, term: u64, bytes: usize) {
        if self.term != term {
            self.term = term;
            self.amounts.clear();
        }
        count(&mut self.amounts, caller, bytes);
    }

    fn remove(&mut self, caller: &Caller, term: u64, ended: Amount) {
        if self.term == term
            && let Some(amount) = self.amounts.get_mut(caller)
        {
            amount.commands -= ended.commands;
            amount.bytes -= ended.bytes;
            if amount.commands == 0 {
                self.amounts.remove(caller);
            }
        }
    }
}

/// Commands of one batch, which are in transit until this is dropped.
#[derive(Debug)]
pub struct BatchInTransit {
    in_transit: Arc<Mutex<InTransit>>,
    /// Notified when there is room again.
    room: Arc<Notify>,
    term: u64,
    amounts: BTreeMap<Caller, Amount>,
}

impl BatchInTransit {
    /// Begins a batch in a term.
    pub fn new(in_transit: Arc<Mutex<InTransit>>, room: Arc<Notify>, term: u64) -> Self {
        Self {
            in_transit,
            room,
            term,
            amounts: BTreeMap::new(),
        }
    }

    /// Returns whether another command of the caller may be sent.
    pub fn has_room(&self, caller: &Caller, now: Instant) -> bool {
        self.in_transit.lock().has_room(caller, self.term, now)
    }

    /// Adds a command of this size.
    pub fn add(&mut self, caller: &Caller, bytes: usize) {
        self.in_transit.lock().add(caller, self.term, bytes);
        count(&mut self.amounts, caller, bytes);
    }
}

impl Drop for BatchInTransit {
    fn drop(&mut self) {
        if self.amounts.is_empty() {
            return;
        }
        let mut in_transit = self.in_transit.lock();
        for (caller, ended) in &self.amounts {
            in_transit.remove(caller, self.term, *ended);
        }
        drop(in_transit);
        self.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(number: u8) -> Caller {
        Caller::Network(Some([192, 0, 2, number].into()))
    }

    #[test]
    fn caller_beside_others_has_less_room() {
        let (mut in_transit, now) = (InTransit::default(), Instant::now());
        let (flood, other) = (caller(1), caller(2));
        in_transit.note_caller(&flood, now);
        for _ in 0..10 * MOST_BESIDE_OTHERS {
            in_transit.add(&flood, 1, 1);
        }
        assert!(in_transit.has_room(&flood, 1, now), "it is alone");
        in_transit.note_caller(&other, now);
        for after in [Duration::ZERO, COUNTS_FOR / 2] {
            assert!(!in_transit.has_room(&flood, 1, now + after));
            assert!(in_transit.has_room(&other, 1, now + after));
        }
        assert!(
            in_transit.has_room(&flood, 1, now + COUNTS_FOR),
            "it is alone again"
        );
    }

    #[test]
    fn others_are_those_with_recent_commands() {
        let (mut in_transit, now) = (InTransit::default(), Instant::now());
        let (first, second) = (caller(1), caller(2));
        in_transit.note_caller(&first, now);
        assert!(!in_transit.has_others_than(&first, now), "it is alone");
        assert!(in_transit.has_others_than(&second, now), "it only reads");
        let later = now + COUNTS_FOR;
        assert!(!in_transit.has_others_than(&second, later));
        in_transit.note_caller(&second, later);
        in_transit.note_caller(&second, later + COUNTS_FOR / 2);
        assert!(in_transit.has_others_than(&second, later + COUNTS_FOR / 2));
        let alone = later + COUNTS_FOR;
        assert!(!in_transit.has_others_than(&second, alone));
        assert!(in_transit.has_others_than(&first, alone));
    }

    #[test]
    fn size_of_one_callers_commands_is_bounded_also_without_others() {
        let (mut in_transit, now) = (InTransit::default(), Instant::now());
        in_transit.add(&caller(1), 1, MOST_BYTES - 1);
        assert!(in_transit.has_room(&caller(1), 1, now));
        in_transit.add(&caller(1), 1, 2 * MOST_BYTES);
        assert!(!in_transit.has_room(&caller(1), 1, now));
        assert!(in_transit.has_room(&caller(2), 1, now));
    }

    #[test]
    fn batch_is_in_transit_until_its_outcome_or_the_next_term() {
        let (in_transit, room) = (Arc::<Mutex<InTransit>>::default(), Arc::<Notify>::default());
        let now = Instant::now();
        let batch = |term| {
            let mut batch = BatchInTransit::new(in_transit.clone(), room.clone(), term);
            batch.add(&caller(1), MOST_BYTES);
            batch
        };
        let has_room = |term| in_transit.lock().has_room(&caller(1), term, now);
        let first = batch(1);
        assert!(!has_room(1) && has_room(2));
        let second = batch(2);
        drop(first);
        assert!(!has_room(2), "a late outcome of an earlier term changes nothing");
        drop(second);
        assert!(has_room(2) && in_transit.lock().amounts.is_empty());
    }
}
