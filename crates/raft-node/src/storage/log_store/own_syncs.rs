//! When openraft hears that a leader's own log has reached the disk.
//!
//! A leader's own disk alone commits nothing. Unless a follower has the entry already, openraft could do nothing with the news
//! but look at it, which costs a turn of its loop and a wake of the thread that serves; so it hears of it together with the next
//! answer of a follower, which is what the entry waits for.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use openraft::storage::IOFlushed;

use crate::sync::Mutex;
use crate::types::{LogId, TypeConfig, term_of};

/// So long at most the news is kept while nobody answers. A lone voter whose learners stand still would otherwise never hear of it, and
/// whoever looks at the node's condition sees it as late. It is longer than a follower takes on a usual disk.
const MAX_KEPT: Duration = Duration::from_millis(2);

/// The leader's own syncs of which openraft has not heard. Clones are the same.
#[derive(Clone, Default)]
pub struct OwnSyncs {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    /// The term in which this node has others to wait for.
    term: Option<u64>,
    /// The latest term in which this node has voted. After `term` it leads no more.
    voted: u64,
    /// Up to where some follower has the log.
    acknowledged: u64,
    untold: Vec<IOFlushed<TypeConfig>>,
}

impl OwnSyncs {
    /// This node proposes in `term`, and commits nothing of it alone if it `has_others`. Who says so waits for what it proposes by
    /// [`Self::tell_meanwhile`].
    pub fn propose(&self, term: u64, has_others: bool) {
        self.inner.lock().term = has_others.then_some(term);
    }

    /// This node has voted in `term`. From then on it keeps nothing back of earlier terms: another node leads, which may send entries
    /// that this node itself has proposed and lost, and waits for each.
    pub(super) fn voted(&self, term: u64) {
        let mut inner = self.inner.lock();
        inner.voted = inner.voted.max(term);
    }

    /// The log is on the disk up to the entry `last`, or is not because of an error: so says `told`, now or later.
    pub(super) fn synced(&self, last: LogId, told: IOFlushed<TypeConfig>, result: io::Result<()>) {
        let mut inner = self.inner.lock();
        let leads = inner.term == Some(term_of(&last)) && inner.voted <= term_of(&last);
        if result.is_ok() && leads && inner.acknowledged < last.index {
            inner.untold.push(told);
            return;
        }
        let untold = std::mem::take(&mut inner.untold);
        drop(inner);
        // Newest first: it says that everything before it is durable, too.
        told.io_completed(result);
        tell(untold);
    }

    /// A follower has the log up to the entry at `index`, and openraft is about to hear of it.
    pub fn answered(&self, index: u64) {
        let mut inner = self.inner.lock();
        inner.acknowledged = inner.acknowledged.max(index);
        let untold = std::mem::take(&mut inner.untold);
        drop(inner);
        tell(untold);
    }

    /// Nothing is kept any longer.
    pub fn tell(&self) {
        let untold = std::mem::take(&mut self.inner.lock().untold);
        tell(untold);
    }

    /// Waits for what becomes of an entry that this node has proposed. However long that takes, nothing is kept for much longer than
    /// it is worth.
    pub async fn tell_meanwhile<F: Future>(&self, outcome: F) -> F::Output {
        let mut outcome = pin!(outcome);
        loop {
            if let Ok(outcome) = tokio::time::timeout(MAX_KEPT, &mut outcome).await {
                return outcome;
            }
            self.tell();
        }
    }
}

fn tell(untold: Vec<IOFlushed<TypeConfig>>) {
    for told in untold.into_iter().rev() {
        told.io_completed(Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use openraft::type_config::TypeConfigExt;
    use tokio::sync::oneshot::{self, error::TryRecvError};
    use tokio::time::Instant;

    use super::*;
    use crate::types::log_id;

    type Heard = oneshot::Receiver<io::Result<()>>;

    const TERM: u64 = 3;

    fn synced(own: &OwnSyncs, term: u64, index: u64) -> Heard {
        let (tell, heard) = TypeConfig::oneshot();
        own.synced(log_id(term, index), IOFlushed::signal(tell), Ok(()));
        heard
    }

    fn of_a_leader() -> OwnSyncs {
        let own = OwnSyncs::default();
        own.propose(TERM, true);
        own
    }

    #[track_caller]
    fn assert_kept(heard: &mut Heard) {
        assert_eq!(heard.try_recv().unwrap_err(), TryRecvError::Empty);
    }

    #[track_caller]
    fn assert_told(heard: &mut Heard) {
        assert!(heard.try_recv().unwrap().is_ok());
    }

    #[test]
    fn a_sync_is_told_with_the_next_answer_of_a_follower() {
        let own = of_a_leader();
        let mut heard = [synced(&own, TERM, 7), synced(&own, TERM, 8)];
        heard.iter_mut().for_each(assert_kept);
        // Whatever it says: openraft has a turn for it anyway.
        own.answered(5);
        heard.iter_mut().for_each(assert_told);
    }

    #[test]
    fn a_sync_that_commits_an_entry_is_told_at_once() {
        let own = of_a_leader();
        own.answered(7);
        // An answer that came later and says less does not take that back.
        own.answered(6);
        assert_told(&mut synced(&own, TERM, 7));
        assert_kept(&mut synced(&own, TERM, 8));
    }

    #[test]
    fn nothing_is_kept_of_entries_that_this_node_does_not_wait_for_with_others() {
        assert_told(&mut synced(&OwnSyncs::default(), TERM, 7));
        let own = of_a_leader();
        let mut before = synced(&own, TERM, 7);
        // Another one leads by now, and hears of what is kept as soon as of its own entry.
        assert_told(&mut synced(&own, TERM + 1, 8));
        assert_told(&mut before);
        own.propose(TERM, false);
        assert_told(&mut synced(&own, TERM, 9));
    }

    /// It proposed an entry, lost it with its power, led once more in the same term, and gets the entry from the next leader.
    #[test]
    fn entry_that_a_former_leader_gets_back_is_told_at_once() {
        let own = of_a_leader();
        let mut before = synced(&own, TERM, 7);
        own.voted(TERM + 1);
        assert_told(&mut synced(&own, TERM, 8));
        assert_told(&mut before);
        // A proposal that was under way when the node lost its office changes nothing.
        own.propose(TERM, true);
        assert_told(&mut synced(&own, TERM, 9));
    }

    #[test]
    fn a_failure_is_told_at_once() {
        let own = of_a_leader();
        let mut before = synced(&own, TERM, 7);
        let (tell, mut heard) = TypeConfig::oneshot();
        let failed = Err(io::Error::other("the disk is broken"));
        own.synced(log_id(TERM, 8), IOFlushed::signal(tell), failed);
        assert!(heard.try_recv().unwrap().is_err());
        assert_told(&mut before);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_long_however_often_it_happens() {
        let own = of_a_leader();
        let (tell, outcome) = oneshot::channel::<u8>();
        let waiting = own.tell_meanwhile(outcome);
        let disk = async {
            for index in 1..=3 {
                let began = Instant::now();
                synced(&own, TERM, index).await.unwrap().unwrap();
                let after = began.elapsed();
                assert!(after > Duration::ZERO && after <= MAX_KEPT * 2, "{after:?}");
            }
            tell.send(1).unwrap();
        };
        let (outcome, ()) = tokio::join!(waiting, disk);
        assert_eq!(outcome, Ok(1));
    }
}
