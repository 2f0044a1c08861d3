//! A node's storage on a simulated disk, driven from one thread: random calls, and the checks of their
//! results.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use raft_log::sim_disk::{Random, SimDisk};
use raft_log::wal::{Step, WalWriter};
use raft_log::{
    DataDir, LogPos, SnapshotMeta, SnapshotStore, StorageError, VoteRecord, Wal, WalEntry, WalIdentity,
    WalOptions,
};

use crate::state::{Record, State};

pub const DATA_DIR: &str = "/data";
const CLUSTER_ID: [u8; 16] = [0xc1; 16];

/// Calls and completions of the storage over all lives of one disk.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The log before the first record.
    pub before: State,
    pub records: Vec<Record>,
    /// Number of events on the disk at the time when each record was queued.
    queued: Vec<usize>,
    /// Durable records over time as (events, records), both increasing.
    acknowledged: Vec<(usize, usize)>,
    /// All positions that were ever marked as committed.
    marked: Vec<LogPos>,
    /// Last mark that the running process knows.
    committed: Option<LogPos>,
    /// Snapshots: (events when begun, events when finished, last entry).
    snapshots: Vec<(usize, Option<usize>, LogPos)>,
    /// Snapshot that existed before.
    snapshot_before: Option<LogPos>,
}

/// Completion for the records up to a number.
type Answer = (usize, Result<(), StorageError>);

/// The parts of a running node's storage.
pub struct Node {
    pub disk: SimDisk,
    pub wal: Wal,
    pub writer: WalWriter,
    pub snapshots: SnapshotStore,
    _dir: DataDir,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

pub fn options() -> WalOptions {
    WalOptions {
        segment_bytes: 4096,
        cached_bytes: 600,
        idle_flush: None,
        preallocator_thread: false,
    }
}

impl Node {
    /// Opens the storage of a disk as a starting node does.
    pub fn open(disk: &SimDisk) -> Result<Self, StorageError> {
        let path = Path::new(DATA_DIR);
        let disk_arc = Arc::new(disk.clone());
        let dir = DataDir::open(disk_arc.clone(), path, "tests", 1)?;
        let identity = dir.identity();
        let cluster_id = identity.cluster_id.unwrap_or_default();
        let snapshots = SnapshotStore::open(disk_arc.clone(), &path.join("snapshots"), cluster_id, 1)?;
        let identity = WalIdentity {
            cluster_id,
            disk_id: identity.disk_id,
            node_id: 1,
        };
        let (wal, writer) = Wal::open(disk_arc, &path.join("log"), identity, options())?;
        if cluster_id == [0; 16] {
            dir.set_cluster_id(CLUSTER_ID)?;
            snapshots.set_cluster_id(CLUSTER_ID);
            wal.set_cluster_id(CLUSTER_ID)?;
        }
        Ok(Self {
            disk: disk.clone(),
            wal,
            writer,
            snapshots,
            _dir: dir,
            answers: Arc::default(),
        })
    }

    /// Returns a completion for the records up to `records`.
    fn done(&self, records: usize) -> Box<dyn FnOnce(Result<(), StorageError>) + Send> {
        let answers = self.answers.clone();
        Box::new(move |result| answers.lock().push_back((records, result)))
    }

    /// Lets the writer work, and records its completions.
    pub fn step(&mut self, history: &mut History) -> Result<(), StorageError> {
        self.step_writer();
        self.note_answers(history)
    }

    /// Lets the writer work if there is work. Returns whether there was.
    pub fn step_writer(&mut self) -> bool {
        match self.writer.step(false) {
            Step::Worked => true,
            Step::Idle => false,
            Step::Closed => panic!("the log was not closed"),
        }
    }

    /// Records the completions of the writer. Returns the first failure.
    pub fn note_answers(&mut self, history: &mut History) -> Result<(), StorageError> {
        let events = self.disk.events();
        let mut failed = None;
        let mut newest = 0;
        for (records, result) in self.answers.lock().drain(..) {
            match result {
                Ok(()) => newest = newest.max(records),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if newest > history.acknowledged_records() {
            history.acknowledged.push((events, newest));
        }
        let Some(error) = failed else { return Ok(()) };
        let again = self.wal.save_committed(LogPos { term: 1, index: 1 });
        assert!(
            matches!(again, Err(StorageError::Failed(_))),
            "a failed log accepts nothing more"
        );
        assert!(self.wal.failure().is_some());
        Err(error)
    }
}

impl History {
    /// Creates a history that begins with the state of a disk after a crash.
    pub fn after(node: &Node) -> Self {
        let snapshot_before = node.snapshots.latest().and_then(|snapshot| snapshot.meta().last);
        Self {
            before: State::of(&node.wal),
            marked: node.wal.committed().into_iter().collect(),
            committed: node.wal.committed(),
            snapshot_before,
            ..Self::default()
        }
    }

    /// Returns the state of the log after the first `records` records.
    pub fn state(&self, records: usize) -> State {
        let mut state = self.before.clone();
        self.records[..records]
            .iter()
            .for_each(|record| state.apply(record));
        state
    }

    /// Returns the number of records known to be durable.
    pub fn acknowledged_records(&self) -> usize {
        self.acknowledged.last().map_or(0, |(_, records)| *records)
    }

    /// Appends a few random entries.
    pub fn call_append(&mut self, node: &mut Node, random: &mut Random) -> Result<(), StorageError> {
        let state = self.state(self.records.len());
        let term = current_term(&state);
        self.append(node, random, &state, term)
    }

    fn queue(&mut self, node: &Node, record: Record) {
        self.records.push(record);
        self.queued.push(node.disk.events());
    }

    /// Treats everything that was found after a restart as promised, because a restarted node reports it to
    /// its peers.
    pub fn restarted(&mut self, node: &Node) -> Result<(), String> {
        let events = node.disk.events();
        let found = self.check(events, node)?;
        // Queued records that were lost stay lost.
        self.records.truncate(found);
        self.queued.truncate(found);
        self.acknowledged.retain(|(_, records)| *records <= found);
        self.acknowledged.push((events, found));
        self.committed = node.wal.committed();
        Ok(())
    }

    /// Makes one random call.
    pub fn call(&mut self, node: &mut Node, random: &mut Random) -> Result<(), StorageError> {
        let state = self.state(self.records.len());
        let term = current_term(&state);
        match random.below(20) {
            0..=9 => self.append(node, random, &state, term),
            10..=11 => self.vote(node, random, term),
            12 => self.truncate(node, random, &state),
            13..=14 => self.commit(node, random, &state),
            15 => self.snapshot_and_purge(node, random, &state),
            16 => self.purge_beyond(node, random, &state, term),
            _ => node.step(self),
        }
    }

    fn append(
        &mut self,
        node: &mut Node,
        random: &mut Random,
        state: &State,
        term: u64,
    ) -> Result<(), StorageError> {
        let first = state.last().map_or(1, |last| last.index + 1);
        let entries: Vec<WalEntry> = (first..first + 1 + random.below(6))
            .map(|index| WalEntry {
                pos: LogPos { term, index },
                payload: payload(random),
            })
            .collect();
        for entry in &entries {
            self.queue(node, Record::Entry(entry.clone()));
        }
        node.wal.append(entries, node.done(self.records.len()))
    }

    fn vote(&mut self, node: &mut Node, random: &mut Random, term: u64) -> Result<(), StorageError> {
        let vote = VoteRecord {
            term: term + random.below(2),
            node_id: (random.below(4) > 0).then(|| 1 + random.below(3)),
            committed: random.below(2) == 0,
        };
        self.queue(node, Record::Vote(vote));
        node.wal.save_vote(vote, node.done(self.records.len()))
    }

    /// Removes uncommitted entries, as a follower does after a change of leader.
    fn truncate(&mut self, node: &mut Node, random: &mut Random, state: &State) -> Result<(), StorageError> {
        let safe = self.committed.map_or(0, |pos| pos.index);
        let from = state.purged.map_or(0, |purged| purged.index).max(safe);
        let Some(last) = state.last().filter(|last| last.index > from) else {
            return Ok(());
        };
        let keep = from + random.below(last.index - from);
        let after = (keep > 0).then_some(keep);
        self.queue(node, Record::Truncate(after));
        node.wal.truncate_after(after, node.done(self.records.len()))
    }

    fn commit(&mut self, node: &mut Node, random: &mut Random, state: &State) -> Result<(), StorageError> {
        let known = self.committed.map_or(0, |pos| pos.index);
        let Some(last) = state.last().filter(|last| last.index > known) else {
            return Ok(());
        };
        let Some(pos) = state.pos(known + 1 + random.below(last.index - known)) else {
            return Ok(());
        };
        self.mark(node, pos)
    }

    fn mark(&mut self, node: &Node, pos: LogPos) -> Result<(), StorageError> {
        self.marked.push(pos);
        self.committed = Some(pos);
        node.wal.save_committed(pos)
    }

    /// Writes a snapshot of the committed entries, and purges the entries that it covers.
    fn snapshot_and_purge(
        &mut self,
        node: &mut Node,
        random: &mut Random,
        state: &State,
    ) -> Result<(), StorageError> {
        let Some(committed) = self.committed else {
            return Ok(());
        };
        if state.purged.is_some_and(|purged| purged.index >= committed.index) {
            return Ok(());
        }
        self.snapshot(node, random, committed)?;
        self.queue(node, Record::Purge(committed));
        node.wal.purge(committed, node.done(self.records.len()))
    }

    /// Installs a snapshot from the leader that is beyond the end of the log.
    fn purge_beyond(
        &mut self,
        node: &mut Node,
        random: &mut Random,
        state: &State,
        term: u64,
    ) -> Result<(), StorageError> {
        let index = state.last().map_or(0, |last| last.index) + 1 + random.below(5);
        let upto = LogPos { term, index };
        self.snapshot(node, random, upto)?;
        self.queue(node, Record::Purge(upto));
        node.wal.purge(upto, node.done(self.records.len()))?;
        self.mark(node, upto)
    }

    fn snapshot(&mut self, node: &mut Node, random: &mut Random, last: LogPos) -> Result<(), StorageError> {
        self.snapshots.push((node.disk.events(), None, last));
        let mut writer = node.snapshots.create(snapshot_meta(last))?;
        for part in 0..1 + random.below(3) {
            writer.write_part(&snapshot_part(last, part))?;
        }
        writer.finish()?;
        self.snapshots.last_mut().expect("just pushed").1 = Some(node.disk.events());
        Ok(())
    }

    /// Checks the state of a disk that stopped after `events` events. Returns the number of records found.
    pub fn check(&self, events: usize, node: &Node) -> Result<usize, String> {
        let promised = self
            .acknowledged
            .iter()
            .rev()
            .find(|(at, _)| *at <= events)
            .map_or(0, |(_, records)| *records);
        let asked = self.queued.partition_point(|at| *at <= events);
        let found = State::of(&node.wal);
        let mut expected = self.state(promised);
        let mut records = promised;
        while expected != found {
            if records == asked.max(promised) {
                let expected = self.state(promised);
                return Err(format!(
                    "after {events} events the log is none of those after {promised} to {asked} records\n\
                     promised: {expected:?}\nfound:    {found:?}"
                ));
            }
            expected.apply(&self.records[records]);
            records += 1;
        }
        self.check_committed(node, &found)?;
        self.check_snapshots(events, node, &found)?;
        Ok(records)
    }

    fn check_committed(&self, node: &Node, found: &State) -> Result<(), String> {
        let Some(committed) = node.wal.committed() else {
            return Ok(());
        };
        if !self.marked.contains(&committed) {
            return Err(format!("{committed} was never marked as committed"));
        }
        if found.last().is_none_or(|last| last < committed) {
            return Err(format!(
                "{committed} is committed and beyond the end of the log {found:?}"
            ));
        }
        Ok(())
    }

    /// Checks that the newest snapshot is complete, was begun by this history, is not older than the newest
    /// finished one, and covers the purged entries.
    fn check_snapshots(&self, events: usize, node: &Node, found: &State) -> Result<(), String> {
        let latest = node.snapshots.latest();
        let last = latest.as_ref().and_then(|latest| latest.meta().last);
        let finished = self
            .snapshots
            .iter()
            .filter(|(_, end, _)| end.is_some_and(|end| end <= events));
        let promised = finished
            .map(|(_, _, last)| *last)
            .chain(self.snapshot_before)
            .max_by_key(|pos| pos.index);
        if last.map(|pos| pos.index) < promised.map(|pos| pos.index) {
            return Err(format!(
                "the snapshot at {promised:?} was finished, and the newest is at {last:?}"
            ));
        }
        if last.map(|pos| pos.index) < found.purged.map(|pos| pos.index) {
            return Err(format!(
                "{:?} was purged, and the newest snapshot is at {last:?}",
                found.purged
            ));
        }
        let Some(latest) = latest else { return Ok(()) };
        let last = last.ok_or("a snapshot of nothing was never made")?;
        let begun = self
            .snapshots
            .iter()
            .any(|(start, _, pos)| *start <= events && *pos == last);
        if !begun && self.snapshot_before != Some(last) || *latest.meta() != snapshot_meta(last) {
            return Err(format!("the snapshot at {last} was never made"));
        }
        let parts: Vec<Bytes> = latest
            .read()
            .and_then(Iterator::collect)
            .map_err(|error| error.to_string())?;
        let right = (0..).map(|part| snapshot_part(last, part)).take(parts.len());
        if !parts.iter().eq(right.collect::<Vec<_>>().iter()) {
            return Err(format!("the snapshot at {last} holds something else"));
        }
        Ok(())
    }
}

fn current_term(state: &State) -> u64 {
    state
        .vote
        .map_or(0, |vote| vote.term)
        .max(state.last().map_or(0, |last| last.term))
        .max(1)
}

fn payload(random: &mut Random) -> Bytes {
    // Mostly small, sometimes spanning several sectors, rarely larger than a segment.
    let len = match random.below(40) {
        0 => 5000,
        1..=8 => 300 + random.below(1500),
        9 => 0,
        _ => 1 + random.below(120),
    };
    // No zeros, because they would look like a lost sector.
    (0..len)
        .map(|_| 1 + random.below(255) as u8)
        .collect::<Vec<_>>()
        .into()
}

fn snapshot_meta(last: LogPos) -> SnapshotMeta {
    SnapshotMeta {
        last: Some(last),
        membership: Bytes::from_static(b"all"),
        snapshot_id: format!("s{last}"),
        made_ms: last.index,
    }
}

fn snapshot_part(last: LogPos, part: u64) -> Bytes {
    Bytes::from(format!("part {part} of {last} ").repeat(40))
}

/// Returns the segments of the log on a disk.
pub fn segments(disk: &SimDisk) -> Vec<PathBuf> {
    disk.files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|it| it == "wal"))
        .collect()
}

/// Runs a random program of `calls` calls, with a new process now and then.
pub fn run(disk: &SimDisk, history: &mut History, random: &mut Random, calls: usize) -> Result<Node, String> {
    let mut node = Node::open(disk).map_err(|error| error.to_string())?;
    for _ in 0..calls {
        history
            .call(&mut node, random)
            .map_err(|error| error.to_string())?;
        if random.below(40) == 0 {
            // The process is killed: the disk keeps everything that the process gave to the kernel.
            drop(node);
            node = Node::open(disk).map_err(|error| error.to_string())?;
            history.restarted(&node)?;
        }
    }
    node.step(history).map_err(|error| error.to_string())?;
    Ok(node)
}
