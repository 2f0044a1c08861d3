//! Contents of one entry, and the callers that wait for it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{BatchOutcome, ForwardedBatch, MAX_ENTRY_BYTES, MAX_ENTRY_COMMANDS};
use crate::messages::{Declined, NotLeader};
use crate::versions::OLDEST_COMMANDS_VERSION;

/// Maximum delay of acquires that must wait for other holders. They are kept for the next entry, which most likely contains a grant.
/// Each entry costs all members a flush and several messages, and an entry with these alone would grant nothing: a lock changes hands
/// twice as often where its next contenders come with its release. It is longer than an entry takes on a usual disk, and too short
/// to be noticed in a wait.
const MAX_HOLD_BACK: Duration = Duration::from_millis(2);

/// Contents of one entry.
pub(super) struct EntryBatch {
    /// In which it may be proposed.
    pub term: u64,
    /// The commands of all runs, without those that were declined.
    pub envelopes: Vec<Bytes>,
    /// Callers that wait for them.
    pub waiting: Vec<Waiting>,
    /// The size of all runs.
    bytes: usize,
}

/// Caller that waits for one run of a pack.
pub(super) struct Waiting {
    done: oneshot::Sender<BatchOutcome>,
    /// Number of its commands.
    commands: u32,
    declined: Declined,
}

impl EntryBatch {
    /// A pack with one run in it, however large that is.
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

    /// Takes a run, unless it is of another term or would make the entry too large: then it is returned.
    pub fn take(&mut self, run: ForwardedBatch) -> Option<ForwardedBatch> {
        let full = self.bytes + run.bytes() > MAX_ENTRY_BYTES
            || self.envelopes.len() + run.envelopes.len() > MAX_ENTRY_COMMANDS;
        if run.term != self.term || full {
            return Some(run);
        }
        self.add(run);
        None
    }

    /// Takes the runs that wait in the queue, one after the other; returns the first one that cannot be taken.
    pub fn fill(&mut self, queue: &mut mpsc::Receiver<ForwardedBatch>) -> Option<ForwardedBatch> {
        while let Ok(run) = queue.try_recv() {
            if let Some(left) = self.take(run) {
                return Some(left);
            }
        }
        None
    }

    /// Keeps the pack while all its commands have to wait for a lock, until another command arrives. Returns a run that arrived
    /// meanwhile and did not fit.
    ///
    /// `in_flight` are the entries in flight. `must_wait` returns whether a command will wait if it is applied now,
    /// and, if there are such entries, also after them.
    ///
    /// This delays no grant: a command that changes the holders of a lock, or the queue before these contenders, must pass
    /// here, and takes them along, in the order of arrival.
    pub async fn hold_back(
        &mut self,
        queue: &mut mpsc::Receiver<ForwardedBatch>,
        in_flight: &mut FuturesUnordered<impl Future<Output = ()>>,
        must_wait: impl Fn(&Bytes, bool) -> bool,
    ) -> Option<ForwardedBatch> {
        // What was applied already is not on its way any more.
        while let Some(Some(())) = in_flight.next().now_or_never() {}
        // Most are not kept, and need no clock.
        let mut until = None;
        let mut known = 0;
        while self.envelopes[known..]
            .iter()
            .all(|command| must_wait(command, !in_flight.is_empty()))
        {
            known = self.envelopes.len();
            let until = *until.get_or_insert_with(|| Instant::now() + MAX_HOLD_BACK);
            tokio::select! {
                run = queue.recv() => {
                    if let Some(left) = self.take(run?) {
                        return Some(left);
                    }
                    // Runs that arrived with it are taken, too.
                    tokio::task::yield_now().await;
                    if let Some(left) = self.fill(queue) {
                        return Some(left);
                    }
                }
                // What was on its way has changed the state by which they were judged.
                Some(()) = in_flight.next() => known = 0,
                () = tokio::time::sleep_until(until) => return None,
            }
        }
        None
    }

    fn add(&mut self, run: ForwardedBatch) {
        self.bytes += run.bytes();
        self.waiting.push(Waiting {
            done: run.done,
            commands: run.envelopes.len() as u32,
            declined: Declined::default(),
        });
        self.envelopes.extend(run.envelopes);
    }

    /// The version of its newest command.
    pub fn newest(&self) -> u8 {
        let versions = self.envelopes.iter().filter_map(|envelope| envelope.first());
        versions.copied().max().unwrap_or(OLDEST_COMMANDS_VERSION)
    }

    /// Takes out the commands that some members cannot apply.
    pub fn decline_newer_than(&mut self, known: u8) {
        let reason = format!(
            "not every member of the cluster is known to be able to apply this, only commands up to version {known}: \
             upgrade all of them first"
        );
        self.decline(&reason, false, |envelope| {
            envelope.first().is_some_and(|version| *version > known)
        });
    }

    /// Takes out what `unwanted` says.
    pub fn decline(&mut self, reason: &str, read_only: bool, mut unwanted: impl FnMut(&Bytes) -> bool) {
        let mut left = std::mem::take(&mut self.envelopes).into_iter();
        for run in &mut self.waiting {
            let before = run.declined.places.clone();
            for place in (0..run.commands).filter(|place| !before.contains(place)) {
                let envelope = left
                    .next()
                    .expect("the pack has all commands that were not declined");
                if unwanted(&envelope) {
                    run.declined.places.push(place);
                    run.declined.reason = reason.to_owned();
                    run.declined.read_only = read_only;
                } else {
                    self.envelopes.push(envelope);
                }
            }
        }
    }
}

/// Answers all who wait: their runs were applied, or `refused` as a whole.
pub(super) fn answer_callers(waiting: Vec<Waiting>, refused: Option<NotLeader>) {
    for run in waiting {
        // A connection that broke meanwhile needs no answer.
        let _ = run.done.send(match &refused {
            Some(not_leader) => Err(not_leader.clone()),
            None => Ok(run.declined),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<C: AsRef<[u8]>>(
        term: u64,
        commands: impl AsRef<[C]>,
    ) -> (ForwardedBatch, oneshot::Receiver<BatchOutcome>) {
        let (done, outcome) = oneshot::channel();
        let commands = commands.as_ref().iter();
        let envelopes = commands
            .map(|command| Bytes::copy_from_slice(command.as_ref()))
            .collect();
        let run = ForwardedBatch {
            term,
            envelopes,
            done,
        };
        (run, outcome)
    }

    #[test]
    fn a_pack_is_of_one_term_and_fits_into_an_entry() {
        let large = vec![0; MAX_ENTRY_BYTES];
        let mut batch = EntryBatch::of(run(1, [&large]).0);
        assert!(batch.take(run(1, [b"x"]).0).is_some(), "there are no bytes left");
        let mut batch = EntryBatch::of(run(1, [b"x"]).0);
        assert!(batch.take(run(2, [b"x"]).0).is_some(), "the term is another");
        assert!(batch.take(run(1, vec![b"x"; MAX_ENTRY_COMMANDS - 1]).0).is_none());
        assert!(batch.take(run(1, [b"x"]).0).is_some(), "there are no places left");

        let (batches, mut queue) = mpsc::channel(4);
        for term in [1, 1, 2, 1] {
            batches
                .try_send(run(term, [b"x"]).0)
                .expect("there is room for four");
        }
        let mut batch = EntryBatch::of(run(1, [b"x"]).0);
        let left = batch.fill(&mut queue).expect("the third is of another term");
        assert_eq!((left.term, batch.waiting.len()), (2, 3));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn each_run_learns_which_of_its_commands_were_declined() {
        let (first, outcome) = run(1, ["a", "X", "b"]);
        let mut batch = EntryBatch::of(first);
        let mut outcomes = vec![outcome];
        for (run, outcome) in [run(1, ["X", "X"].as_slice()), run(1, ["c"].as_slice())] {
            outcomes.push(outcome);
            assert!(batch.take(run).is_none());
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
    fn a_command_that_a_member_may_not_know_is_declined() {
        let command = |version: u8| vec![version, 0];
        let (run, mut outcome) = run(1, [1, 3, 2].map(command));
        let mut batch = EntryBatch::of(run);
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

    /// Of these, `w` has to wait for a lock, also after what is in flight; `f` if nothing is; `x` does not.
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
    async fn those_who_have_to_wait_are_kept_for_who_comes_next_and_go_alone_after_a_while() {
        let (batches, mut queue) = mpsc::channel(4);
        let mut batch = EntryBatch::of(run(1, ["w", "f"]).0);
        batches.try_send(run(1, ["w"]).0).expect("there is room");
        let later = tokio::spawn(async move {
            tokio::time::sleep(MAX_HOLD_BACK / 2).await;
            batches.try_send(run(1, ["x"]).0).expect("there is room");
            batches.try_send(run(1, ["w"]).0).expect("there is room");
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
            "as soon as somebody is in a hurry"
        );

        let _runs = later.await.expect("it has sent all");
        let mut batch = EntryBatch::of(run(1, ["w"]).0);
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
    async fn urgent_commands_are_not_kept() {
        let (_runs, mut queue) = mpsc::channel(1);
        let began = Instant::now();
        for commands in [["w", "x"], ["x", "w"]] {
            let mut batch = EntryBatch::of(run(1, commands).0);
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
        let (_runs, mut queue) = mpsc::channel(1);
        let began = Instant::now();
        // Nobody waits before it, so what is on its way may be the release.
        let in_flight = || FuturesUnordered::from_iter([tokio::time::sleep(MAX_HOLD_BACK / 2)]);
        let mut batch = EntryBatch::of(run(1, ["f"]).0);
        assert!(
            batch
                .hold_back(&mut queue, &mut in_flight(), must_wait)
                .await
                .is_none()
        );
        assert_eq!(began.elapsed(), Duration::ZERO);

        // It is judged anew when that is applied.
        let applied = std::cell::Cell::new(false);
        let until_then = |command: &Bytes, is_in_flight: bool| {
            applied.set(applied.get() || !is_in_flight);
            must_wait(command, is_in_flight) && !applied.get()
        };
        let mut batch = EntryBatch::of(run(1, ["w"]).0);
        assert!(
            batch
                .hold_back(&mut queue, &mut in_flight(), until_then)
                .await
                .is_none()
        );
        assert!(applied.get() && began.elapsed() < MAX_HOLD_BACK);

        // What was applied and was not looked at yet is not on its way any more.
        let mut done = FuturesUnordered::from_iter([std::future::ready(())]);
        let mut batch = EntryBatch::of(run(1, ["f"]).0);
        let began = Instant::now();
        assert!(batch.hold_back(&mut queue, &mut done, must_wait).await.is_none());
        assert!(began.elapsed() >= MAX_HOLD_BACK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_does_not_fit_comes_after_those_who_were_kept() {
        let (batches, mut queue) = mpsc::channel(2);
        let mut batch = EntryBatch::of(run(1, ["w"]).0);
        batches.try_send(run(2, ["w"]).0).expect("there is room");
        let left = batch.hold_back(&mut queue, &mut nothing(), must_wait).await;
        assert_eq!(left.expect("it is of another term").term, 2);
        assert_eq!(batch.envelopes, ["w"]);
    }
}
