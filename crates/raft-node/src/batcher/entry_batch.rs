//! Commands of one entry, and the callers that wait for their outcome.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{BatchOutcome, ForwardedBatch, MAX_ENTRY_BYTES, MAX_ENTRY_COMMANDS};
use crate::messages::{Declined, NotLeader};
use crate::versions::OLDEST_COMMANDS_VERSION;

/// Maximum delay of acquires that must wait for other holders. They are held back for the next entry, which
/// most likely contains a grant. Each entry costs every member a flush and several messages, and an entry
/// with these acquires alone would grant nothing: a lock changes hands twice as often if its next contenders
/// arrive with its release. The delay is longer than an entry takes on a usual disk, and too short to be
/// noticed by a waiting client.
const MAX_HOLD_BACK: Duration = Duration::from_millis(2);

/// Contents of one entry.
pub(super) struct EntryBatch {
    /// Term in which it may be proposed.
    pub term: u64,
    /// Commands of all forwarded batches, without the declined ones.
    pub envelopes: Vec<Bytes>,
    /// Callers that wait for the outcome.
    pub waiting: Vec<Waiting>,
    /// Size of all forwarded batches in bytes.
    bytes: usize,
}

/// Caller that waits for one forwarded batch.
pub(super) struct Waiting {
    done: oneshot::Sender<BatchOutcome>,
    /// Number of its commands.
    commands: u32,
    declined: Declined,
}

impl EntryBatch {
    /// Creates a batch from one forwarded batch of any size.
    pub fn of(first: ForwardedBatch) -> Self {
        let mut batch = Self {
            term: first.term,
            envelopes: Vec::new(),
            waiting: Vec::new(),
            bytes: 0,
        };
        batch.add(first);
        batch
    }

    /// Adds a forwarded batch. Returns it instead if it is of another term or would make the entry too large.
    pub fn take(&mut self, forwarded: ForwardedBatch) -> Option<ForwardedBatch> {
        let full = self.bytes + forwarded.bytes() > MAX_ENTRY_BYTES
            || self.envelopes.len() + forwarded.envelopes.len() > MAX_ENTRY_COMMANDS;
        if forwarded.term != self.term || full {
            return Some(forwarded);
        }
        self.add(forwarded);
        None
    }

    /// Adds queued batches one by one. Returns the first one that cannot be added.
    pub fn fill(&mut self, queue: &mut mpsc::Receiver<ForwardedBatch>) -> Option<ForwardedBatch> {
        while let Ok(forwarded) = queue.try_recv() {
            if let Some(left) = self.take(forwarded) {
                return Some(left);
            }
        }
        None
    }

    /// Holds the entry back while all its commands would wait for a lock, until another command arrives.
    /// Returns a batch that arrived meanwhile and did not fit.
    ///
    /// `in_flight` are the entries in flight. `must_wait` returns whether a command will wait if it is
    /// applied now, and, if there are entries in flight, also after them.
    ///
    /// This delays no grant: a command that changes the holders of a lock, or the queue ahead of these
    /// contenders, must pass through here, and takes them along in the order of arrival.
    pub async fn hold_back(
        &mut self,
        queue: &mut mpsc::Receiver<ForwardedBatch>,
        in_flight: &mut FuturesUnordered<impl Future<Output = ()>>,
        must_wait: impl Fn(&Bytes, bool) -> bool,
    ) -> Option<ForwardedBatch> {
        // Entries that are already applied are not in flight any more.
        while let Some(Some(())) = in_flight.next().now_or_never() {}
        // Most entries are not held back, and need no clock.
        let mut until = None;
        let mut known = 0;
        while self.envelopes[known..]
            .iter()
            .all(|command| must_wait(command, !in_flight.is_empty()))
        {
            known = self.envelopes.len();
            let until = *until.get_or_insert_with(|| Instant::now() + MAX_HOLD_BACK);
            tokio::select! {
                forwarded = queue.recv() => {
                    if let Some(left) = self.take(forwarded?) {
                        return Some(left);
                    }
                    // Batches that arrived with it are taken, too.
                    tokio::task::yield_now().await;
                    if let Some(left) = self.fill(queue) {
                        return Some(left);
                    }
                }
                // The applied entry has changed the state by which the commands were checked.
                Some(()) = in_flight.next() => known = 0,
                () = tokio::time::sleep_until(until) => return None,
            }
        }
        None
    }

    fn add(&mut self, forwarded: ForwardedBatch) {
        self.bytes += forwarded.bytes();
        self.waiting.push(Waiting {
            done: forwarded.done,
            commands: forwarded.envelopes.len() as u32,
            declined: Declined::default(),
        });
        self.envelopes.extend(forwarded.envelopes);
    }

    /// Returns the version of its newest command.
    pub fn newest(&self) -> u8 {
        let versions = self.envelopes.iter().filter_map(|envelope| envelope.first());
        versions.copied().max().unwrap_or(OLDEST_COMMANDS_VERSION)
    }

    /// Declines the commands that some members cannot apply.
    pub fn decline_newer_than(&mut self, known: u8) {
        let reason = format!(
            "not all members of the cluster are known to support this command, only commands up to version \
             {known}: upgrade all members first"
        );
        self.decline(&reason, false, |envelope| {
            envelope.first().is_some_and(|version| *version > known)
        });
    }

    /// Declines the commands for which `unwanted` returns true.
    pub fn decline(&mut self, reason: &str, read_only: bool, mut unwanted: impl FnMut(&Bytes) -> bool) {
        let mut left = std::mem::take(&mut self.envelopes).into_iter();
        for forwarded in &mut self.waiting {
            let before = forwarded.declined.places.clone();
            for place in (0..forwarded.commands).filter(|place| !before.contains(place)) {
                let envelope = left
                    .next()
                    .expect("the batch has all commands that were not declined");
                if unwanted(&envelope) {
                    forwarded.declined.places.push(place);
                    forwarded.declined.reason = reason.to_owned();
                    forwarded.declined.read_only = read_only;
                } else {
                    self.envelopes.push(envelope);
                }
            }
        }
    }
}

/// Answers all waiting callers: their batches were applied, or `refused` as a whole.
pub(super) fn answer_callers(waiting: Vec<Waiting>, refused: Option<NotLeader>) {
    for forwarded in waiting {
        // A connection that broke in the meantime needs no answer.
        let _ = forwarded.done.send(match &refused {
            Some(not_leader) => Err(not_leader.clone()),
            None => Ok(forwarded.declined),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded_batch<C: AsRef<[u8]>>(
        term: u64,
        commands: impl AsRef<[C]>,
    ) -> (ForwardedBatch, oneshot::Receiver<BatchOutcome>) {
        let (done, outcome) = oneshot::channel();
        let commands = commands.as_ref().iter();
        let envelopes = commands
            .map(|command| Bytes::copy_from_slice(command.as_ref()))
            .collect();
        let forwarded = ForwardedBatch {
            term,
            envelopes,
            done,
        };
        (forwarded, outcome)
    }

    #[test]
    fn entry_has_one_term_and_bounded_size() {
        let large = vec![0; MAX_ENTRY_BYTES];
        let mut batch = EntryBatch::of(forwarded_batch(1, [&large]).0);
        assert!(
            batch.take(forwarded_batch(1, [b"x"]).0).is_some(),
            "there are no bytes left"
        );
        let mut batch = EntryBatch::of(forwarded_batch(1, [b"x"]).0);
        assert!(
            batch.take(forwarded_batch(2, [b"x"]).0).is_some(),
            "the term is another"
        );
        assert!(
            batch
                .take(forwarded_batch(1, vec![b"x"; MAX_ENTRY_COMMANDS - 1]).0)
                .is_none()
        );
        assert!(
            batch.take(forwarded_batch(1, [b"x"]).0).is_some(),
            "the number of commands is at its limit"
        );

        let (batches, mut queue) = mpsc::channel(4);
        for term in [1, 1, 2, 1] {
            batches
                .try_send(forwarded_batch(term, [b"x"]).0)
                .expect("there is room for four");
        }
        let mut batch = EntryBatch::of(forwarded_batch(1, [b"x"]).0);
        let left = batch.fill(&mut queue).expect("the third is of another term");
        assert_eq!((left.term, batch.waiting.len()), (2, 3));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn each_caller_gets_its_declined_commands() {
        let (first, outcome) = forwarded_batch(1, ["a", "X", "b"]);
        let mut batch = EntryBatch::of(first);
        let mut outcomes = vec![outcome];
        for (forwarded, outcome) in [
            forwarded_batch(1, ["X", "X"].as_slice()),
            forwarded_batch(1, ["c"].as_slice()),
        ] {
            outcomes.push(outcome);
            assert!(batch.take(forwarded).is_none());
        }
        batch.decline("large", true, |envelope| envelope == "X");
        assert_eq!(batch.envelopes, ["a", "b", "c"]);
        batch.decline("full", true, |envelope| envelope == "b");
        assert_eq!(batch.envelopes, ["a", "c"]);
        answer_callers(batch.waiting, None);
        let outcomes = outcomes
            .iter_mut()
            .map(|outcome| outcome.try_recv().unwrap().unwrap());
        let outcomes: Vec<_> = outcomes
            .map(|declined| (declined.places, declined.reason))
            .collect();
        let expected = [(vec![1, 2], "full"), (vec![0, 1], "large"), (vec![], "")];
        assert_eq!(
            outcomes,
            expected.map(|(places, reason)| (places, reason.to_owned()))
        );
    }

    #[test]
    fn command_that_a_member_may_not_know_is_declined() {
        let command = |version: u8| vec![version, 0];
        let (forwarded, mut outcome) = forwarded_batch(1, [1, 3, 2].map(command));
        let mut batch = EntryBatch::of(forwarded);
        assert_eq!(batch.newest(), 3);
        batch.decline_newer_than(2);
        assert_eq!(batch.envelopes, [1, 2].map(command));
        answer_callers(batch.waiting, None);
        let declined = outcome.try_recv().unwrap().unwrap();
        assert_eq!(declined.places, [1]);
        assert!(
            declined.reason.contains("up to version 2") && !declined.read_only,
            "{declined:?}"
        );
    }

    /// Test rule: `w` must wait for a lock, also after the entries in flight; `f` only if there are none; `x`
    /// never.
    fn must_wait(command: &Bytes, is_in_flight: bool) -> bool {
        match command.first() {
            Some(b'w') => true,
            Some(b'f') => !is_in_flight,
            _ => false,
        }
    }

    fn nothing() -> FuturesUnordered<std::future::Ready<()>> {
        FuturesUnordered::new()
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_acquires_are_held_back_for_a_bounded_time() {
        let (batches, mut queue) = mpsc::channel(4);
        let mut batch = EntryBatch::of(forwarded_batch(1, ["w", "f"]).0);
        batches
            .try_send(forwarded_batch(1, ["w"]).0)
            .expect("there is room");
        let later = tokio::spawn(async move {
            tokio::time::sleep(MAX_HOLD_BACK / 2).await;
            batches
                .try_send(forwarded_batch(1, ["x"]).0)
                .expect("there is room");
            batches
                .try_send(forwarded_batch(1, ["w"]).0)
                .expect("there is room");
            batches
        });
        let began = Instant::now();
        assert!(
            batch
                .hold_back(&mut queue, &mut nothing(), must_wait)
                .await
                .is_none()
        );
        assert_eq!(batch.envelopes, ["w", "f", "w", "x", "w"], "all, in their order");
        assert!(
            began.elapsed() < MAX_HOLD_BACK,
            "as soon as an urgent command arrives"
        );

        let _batches = later.await.expect("it has sent all");
        let mut batch = EntryBatch::of(forwarded_batch(1, ["w"]).0);
        let began = Instant::now();
        assert!(
            batch
                .hold_back(&mut queue, &mut nothing(), must_wait)
                .await
                .is_none()
        );
        assert!(began.elapsed() >= MAX_HOLD_BACK && began.elapsed() < MAX_HOLD_BACK * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_commands_are_not_held_back() {
        let (_batches, mut queue) = mpsc::channel(1);
        let began = Instant::now();
        for commands in [["w", "x"], ["x", "w"]] {
            let mut batch = EntryBatch::of(forwarded_batch(1, commands).0);
            assert!(
                batch
                    .hold_back(&mut queue, &mut nothing(), must_wait)
                    .await
                    .is_none()
            );
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn entries_in_flight_may_grant_the_lock() {
        let (_batches, mut queue) = mpsc::channel(1);
        let began = Instant::now();
        // No contender waits ahead of it, so the entry in flight may be the release.
        let in_flight = || FuturesUnordered::from_iter([tokio::time::sleep(MAX_HOLD_BACK / 2)]);
        let mut batch = EntryBatch::of(forwarded_batch(1, ["f"]).0);
        assert!(
            batch
                .hold_back(&mut queue, &mut in_flight(), must_wait)
                .await
                .is_none()
        );
        assert_eq!(began.elapsed(), Duration::ZERO);

        // It is checked again when that entry is applied.
        let applied = std::cell::Cell::new(false);
        let until_then = |command: &Bytes, is_in_flight: bool| {
            applied.set(applied.get() || !is_in_flight);
            must_wait(command, is_in_flight) && !applied.get()
        };
        let mut batch = EntryBatch::of(forwarded_batch(1, ["w"]).0);
        assert!(
            batch
                .hold_back(&mut queue, &mut in_flight(), until_then)
                .await
                .is_none()
        );
        assert!(applied.get() && began.elapsed() < MAX_HOLD_BACK);

        // An applied entry that was not yet polled is not in flight any more.
        let mut done = FuturesUnordered::from_iter([std::future::ready(())]);
        let mut batch = EntryBatch::of(forwarded_batch(1, ["f"]).0);
        let began = Instant::now();
        assert!(batch.hold_back(&mut queue, &mut done, must_wait).await.is_none());
        assert!(began.elapsed() >= MAX_HOLD_BACK);
    }

    #[tokio::test(start_paused = true)]
    async fn batch_that_does_not_fit_follows_the_held_back_ones() {
        let (batches, mut queue) = mpsc::channel(2);
        let mut batch = EntryBatch::of(forwarded_batch(1, ["w"]).0);
        batches
            .try_send(forwarded_batch(2, ["w"]).0)
            .expect("there is room");
        let left = batch.hold_back(&mut queue, &mut nothing(), must_wait).await;
        assert_eq!(left.expect("it is of another term").term, 2);
        assert_eq!(batch.envelopes, ["w"]);
    }
}
