//! Property test against a plain model of the index's rules: many records per chunk, hidden ends that become
//! known, and restarts. Evicted records stay evicted, though they may still be in a chunk that is needed for
//! other records.

use std::collections::BTreeMap;

use lock_history::{End, Index};
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;
use znode_store::{ContenderEnd, Hold};

use crate::support::{at, hold, lock, open, report};

/// All in one share.
const LOCKS: [&str; 3] = ["a", "a/b", "a/c"];

#[derive(Debug, Clone)]
enum Step {
    /// This many holds begin and end, one after the other.
    Holds(usize),
    /// This many holds begin, and their ends fall into a gap.
    Hide(usize),
    /// The end of a hidden hold is reported after all, perhaps not for the first time.
    Late(prop::sample::Index),
    /// Evicts records that ended this many positions ago or earlier.
    Age(u64),
    Commit,
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..6).prop_map(Step::Holds),
        2 => (30usize..150).prop_map(Step::Holds),
        2 => (1usize..6).prop_map(Step::Hide),
        4 => any::<prop::sample::Index>().prop_map(Step::Late),
        1 => (0u64..400).prop_map(Step::Age),
        2 => Just(Step::Commit),
        2 => Just(Step::Restart),
    ]
}

/// Zxid of an end, and whether the end was hidden.
type Over = (u64, bool);

#[derive(Default)]
struct Model {
    /// Records by lock and token, each with its number in the order of recording.
    records: BTreeMap<(usize, u64), (Over, usize)>,
    recorded: usize,
    /// Holds that were hidden at some time, with the end of their gaps.
    hidden: Vec<(usize, u64, u64)>,
    since: u64,
    bound: usize,
}

impl Model {
    fn close(&mut self, lock: usize, token: u64, over: Over) {
        let is_more = |(before, _): &(Over, usize)| !over.1 && *before != over;
        if over.0 <= self.since || !self.records.get(&(lock, token)).is_none_or(is_more) {
            return;
        }
        self.recorded += 1;
        self.records.insert((lock, token), (over, self.recorded));
        self.pop(|len, _, bound| len > bound);
    }

    fn pop(&mut self, is_due: impl Fn(usize, u64, usize) -> bool) {
        let oldest = |model: &Self| {
            let records = model.records.iter();
            records
                .map(|(id, ((zxid, _), number))| (*zxid, *number, *id))
                .min()
        };
        while let Some((zxid, _, id)) = oldest(self)
            && is_due(self.records.len(), zxid, self.bound)
        {
            self.records.remove(&id);
            self.since = self.since.max(zxid);
        }
    }
}

struct World {
    dir: TempDir,
    index: Option<Index>,
    model: Model,
    now: u64,
}

impl World {
    fn index(&mut self) -> &mut Index {
        self.index.as_mut().unwrap()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Holds(count) => {
                for _ in 0..count {
                    self.now += 2;
                    let (token, which) = (self.now - 1, (self.now / 2) as usize % LOCKS.len());
                    report(self.index.as_mut().unwrap(), LOCKS[which], token, token + 1);
                    self.model.close(which, token, (token + 1, false));
                }
            }
            Step::Hide(count) => {
                let which = self.now as usize % LOCKS.len();
                let tokens = self.now + 1..=self.now + count as u64;
                for token in tokens.clone() {
                    let hold = hold(LOCKS[which], token);
                    self.index().began(&hold);
                }
                self.now += count as u64;
                let (from, until) = (at(self.now), at(self.now + 5));
                self.now += 5;
                self.index().advance_to(from);
                assert!(self.index().missed_until(until).is_some());
                for token in tokens {
                    let hold = hold(LOCKS[which], token);
                    self.index().hidden(&hold, from, until).unwrap();
                    self.model.close(which, token, (until.zxid, true));
                    self.model.hidden.push((which, token, until.zxid));
                }
            }
            Step::Late(which) => {
                if self.model.hidden.is_empty() {
                    return;
                }
                let (which, token, until) = *which.get(&self.model.hidden);
                // Only its record has the time of its grant.
                let hold = Hold {
                    since_ms: None,
                    ..Hold::clone(&hold(LOCKS[which], token))
                };
                // A hold has one end, however often it is reported.
                let end = until - token % 4;
                self.index()
                    .ended(&hold, at(end), &ContenderEnd::Released, None)
                    .unwrap();
                self.model.close(which, token, (end, false));
            }
            Step::Age(ago) => {
                let before = self.now.saturating_sub(ago);
                // The tests' records may be a million seconds old, and a position is a second.
                self.index().remove_expired((before + 1_000_000) * 1_000).unwrap();
                self.model.pop(|_, zxid, _| zxid < before);
            }
            Step::Commit => self.index().commit(true).unwrap(),
            Step::Restart => {
                self.index.take().unwrap().shut().unwrap();
                self.index = Some(open(&self.dir, self.model.bound));
            }
        }
    }

    fn check(&mut self) {
        assert_eq!(self.index().len(), self.model.records.len());
        for (which, name) in LOCKS.iter().enumerate() {
            let page = self.index().page(&lock(name), None, usize::MAX).unwrap();
            assert_eq!(page.since.zxid, self.model.since);
            let found = page.records.iter().map(|record| {
                let token = record.hold.fencing_token.0;
                assert_eq!(
                    record.hold,
                    *hold(name, token),
                    "the rest of the hold is unchanged"
                );
                let over = match &record.end {
                    End::Known { at, .. } => (at.zxid, false),
                    End::Hidden { not_after, .. } => (not_after.zxid, true),
                };
                (token, over)
            });
            let of_lock = self.model.records.range((which, 0)..(which + 1, 0)).rev();
            let expected: Vec<_> = of_lock.map(|((_, token), (over, _))| (*token, *over)).collect();
            assert_eq!(found.collect::<Vec<_>>(), expected, "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn index_agrees_with_its_model_over_restarts(
        steps in vec(any_step(), 1..50),
        bound in prop_oneof![Just(5usize), Just(40), Just(300), Just(10_000)],
    ) {
        let dir = TempDir::new().unwrap();
        let index = Some(open(&dir, bound));
        let model = Model { bound, ..Model::default() };
        let mut world = World { dir, index, model, now: 0 };
        world.step(Step::Holds(1));
        for step in steps {
            world.step(step);
        }
        world.check();
        world.step(Step::Restart);
        world.check();
    }
}
