//! Record on this node's own disk of the progress of each member. A member that returns with less than it had
//! acknowledged is rejected, like one that lost its disk.
//!
//! Every data directory counts its starts, and gives each of them a random name. The number and the names of
//! the latest starts are written before the node connects to any peer, and shown in every handshake
//! ([`Shown`]). A peer records them on its own disk before it proceeds. The leader also records what a member
//! has acknowledged and in which term it has voted, and reports that to all members every few seconds
//! (`crate::audit`). The fault of a returning member follows from these records ([`Loss`]):
//!
//! - A number below the recorded one, or another start under a recorded number or name: an old image of the
//!   directory, or a second process on a copy of it.
//! - A new start whose vote or log ends before the acknowledged one: an image of a directory in use, or a
//!   disk that lost synced data.
//!
//! An honest node always passes. It wrote its number before it showed it, so a crash in between leaves a gap
//! and nothing else. It still has what it acknowledged, unless a leader of a later term truncated it: then
//! its vote is of a later term than the acknowledgement, and only committed entries count.
//!
//! This module calls no other one, in particular not while its mutex is locked: `peers::peer_registry` calls
//! it in every handshake while its own mutex is locked.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use fault_injection::planted::{self, Bug};
use serde::{Deserialize, Serialize};

use crate::codec;
use crate::ids::DiskId;
use crate::ids::NodeId;
use fault_injection::fail_step;
use raft_log::disk::Disk;
use raft_log::error::StorageError;
use raft_log::sync::Mutex;
use raft_log::two_slots::TwoSlots;

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "witness";

/// Number of latest starts that a directory names. A peer that has missed more of them cannot compare names,
/// and compares numbers and positions only.
const NAMED_STARTS: usize = 32;

/// Maximum number of recorded members. There are at most [`crate::membership::MAX_MEMBERS`] at a time; the
/// others were removed.
pub const MAX_MEMBERS_KNOWN: usize = 64;

/// Maximum length of a stored reason.
const MAX_REASON_BYTES: usize = 1_024;

/// Start of a data directory that a node shows in a handshake. It does not change while the process runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Number of starts of the directory.
    pub number: u64,
    /// Random names of the latest starts, the current one first.
    pub names: Vec<u64>,
    /// Term of its vote at the start.
    pub term: u64,
    /// End of its log, or of its newest snapshot, at the start.
    pub last: u64,
}

/// Record of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Data directory of the member.
    pub disk: DiskId,
    /// Number of its latest start.
    pub number: u64,
    /// Name of that start.
    pub name: u64,
    /// Latest term in which it voted or acknowledged entries.
    pub term: u64,
    /// Position that it acknowledged, with the leader's term.
    pub acknowledged: Acknowledged,
    /// Committed part of the acknowledged entries.
    pub committed: u64,
    /// Set if it returned with less than it had acknowledged. Never reset.
    pub lost: bool,
    /// Commands version of its program at its latest start.
    pub commands: u8,
}

/// Last entry that a member has on its disk, as it reported to a leader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Term of the leader.
    pub term: u64,
    /// Index of the entry.
    pub index: u64,
}

/// Evidence that a member's data directory is not its latest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Its number is lower than the recorded one.
    OldStart { shown: u64, known: u64 },
    /// Another start has this number.
    OtherStart { number: u64 },
    /// It has voted in a later term than it remembers.
    Vote { shown: u64, known: u64 },
    /// It has acknowledged an entry that it does not have.
    Log { shown: u64, known: u64 },
    /// It was found earlier to have lost something.
    Known,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OldStart { shown, known } => write!(
                f,
                "it was started {shown} times, and a later start, number {known}, is known"
            ),
            Self::OtherStart { number } => write!(
                f,
                "another process was start {number} of this directory: there are two copies of it"
            ),
            Self::Vote { shown, known } => {
                write!(f, "its vote is of term {shown}, and it has voted in term {known}")
            }
            Self::Log { shown, known } => {
                write!(
                    f,
                    "its log ends at entry {shown}, and it had acknowledged entry {known}"
                )
            }
            Self::Known => write!(f, "it was found earlier to lack acknowledged data"),
        }
    }
}

/// Result of a comparison of a handshake with the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartComparison {
    /// A recorded start.
    Again,
    /// A later start than the recorded one, or an unrecorded member.
    New,
}

impl Record {
    fn of(disk: DiskId, shown: &Shown, commands: u8) -> Self {
        Self {
            disk,
            number: shown.number,
            name: shown.names.first().copied().unwrap_or_default(),
            term: shown.term,
            acknowledged: Acknowledged::default(),
            committed: 0,
            lost: false,
            commands,
        }
    }

    fn check(&self, shown: &Shown) -> Result<StartComparison, Loss> {
        if planted::is(Bug::TrustedReturn) {
            return Ok(StartComparison::Again);
        }
        if self.lost {
            return Err(Loss::Known);
        }
        let Some(behind) = shown.number.checked_sub(self.number) else {
            return Err(Loss::OldStart {
                shown: shown.number,
                known: self.number,
            });
        };
        let named = usize::try_from(behind).ok().and_then(|at| shown.names.get(at));
        if named.is_some_and(|name| *name != self.name) {
            return Err(Loss::OtherStart { number: self.number });
        }
        if behind == 0 {
            return Ok(StartComparison::Again);
        }
        if planted::is(Bug::CountedStarts) {
            return Ok(StartComparison::New);
        }
        // Everything that an earlier start acknowledged was on its disk, and sent, before this start began.
        if shown.term < self.term {
            return Err(Loss::Vote {
                shown: shown.term,
                known: self.term,
            });
        }
        let needed = match shown.term == self.acknowledged.term {
            true => self.acknowledged.index,
            // A later leader may have truncated uncommitted entries.
            false => self.committed,
        };
        match shown.last < needed {
            true => Err(Loss::Log {
                shown: shown.last,
                known: needed,
            }),
            false => Ok(StartComparison::New),
        }
    }

    /// Merges another node's record of the same directory.
    fn merge(&mut self, other: &Self) {
        let is_other_start = other.number == self.number && other.name != self.name;
        self.lost |= other.lost || is_other_start;
        if other.number > self.number {
            (self.number, self.name) = (other.number, other.name);
            self.commands = other.commands;
        }
        self.term = self.term.max(other.term);
        self.acknowledged = self.acknowledged.max(other.acknowledged);
        self.committed = self.committed.max(other.committed);
    }
}

/// Contents of the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Content {
    /// Number of starts of this directory.
    number: u64,
    /// Names of the latest starts, newest first.
    names: Vec<u64>,
    /// Reason why this directory must not be used any more.
    refused: Option<String>,
    /// Set if this node's state differed from the others', and has not been found equal since.
    differs: bool,
    members: BTreeMap<NodeId, Record>,
}

struct Known {
    content: Content,
    /// Number of changes so far.
    version: u64,
    /// Number of changes that must be on the disk before a peer relies on them.
    urgent: u64,
    /// Number of changes that are on the disk.
    saved: u64,
    /// Start that each member has shown last; in memory only.
    shown: BTreeMap<NodeId, Shown>,
}

impl Known {
    fn new(content: Content) -> Self {
        Self {
            content,
            version: 0,
            urgent: 0,
            saved: 0,
            shown: BTreeMap::new(),
        }
    }

    fn changed(&mut self) {
        self.version += 1;
    }

    fn changed_urgently(&mut self) {
        self.version += 1;
        self.urgent = self.version;
    }

    fn is_urgent(&self) -> bool {
        self.urgent > self.saved
    }
}

/// Record of the members' starts and progress; see the module.
pub struct Witness {
    known: Mutex<Known>,
    /// Locked before `known` for writing. `None` stores nothing, for tests of callers.
    file: Option<Mutex<TwoSlots>>,
    shown: Shown,
    node: NodeId,
    disk: DiskId,
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness")
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}

impl Witness {
    /// Records this start, durably. `term` is that of this node's vote and `last` the end of its log.
    pub fn begin(
        disk: &dyn Disk,
        dir: &Path,
        (node, disk_id): (NodeId, DiskId),
        (term, last): (u64, u64),
    ) -> Result<Self, StorageError> {
        let (file, content) = TwoSlots::open(disk, dir, FILE_NAME)?;
        let mut content: Content = match content {
            None => Content::default(),
            Some(bytes) => codec::decode(&bytes).map_err(|error| {
                StorageError::Damaged(format!("{}: {error}", dir.join(FILE_NAME).display()))
            })?,
        };
        if let Some(reason) = content.refused {
            return Err(StorageError::Foreign(reason));
        }
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(|error| StorageError::Io {
            what: "choose the name of this start".into(),
            source: std::sync::Arc::new(std::io::Error::other(error.to_string())),
        })?;
        content.number += 1;
        content.names.insert(0, u64::from_le_bytes(name));
        content.names.truncate(NAMED_STARTS);
        let shown = Shown {
            number: content.number,
            names: content.names.clone(),
            term,
            last,
        };
        let mut known = Known::new(content);
        known.changed_urgently();
        let witness = Self {
            known: Mutex::new(known),
            file: Some(Mutex::new(file)),
            shown,
            node,
            disk: disk_id,
        };
        fail_step!("witness::before_start", |e| StorageError::io("write", dir, e));
        witness.save()?;
        Ok(witness)
    }

    /// Creates a record that is not stored on disk.
    pub fn in_memory(node: NodeId, disk: DiskId, shown: Shown) -> Self {
        let content = Content {
            number: shown.number,
            names: shown.names.clone(),
            ..Content::default()
        };
        Self {
            known: Mutex::new(Known::new(content)),
            file: None,
            shown,
            node,
            disk,
        }
    }

    /// Returns the start that this node shows.
    pub fn shown(&self) -> &Shown {
        &self.shown
    }

    /// Checks a shown start against the record, if there is one.
    pub fn check(&self, node: NodeId, disk: DiskId, shown: &Shown) -> Result<(), Loss> {
        match self.record_of(node, disk) {
            Some(record) => record.check(shown).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Returns whether a member shows an earlier start that led to the one that it has shown last. The
    /// handshake of an ended process may arrive late; a process on an old copy has another name.
    pub fn is_predecessor(&self, node: NodeId, shown: &Shown) -> bool {
        let known = self.known.lock();
        let latest = known.shown.get(&node);
        let name = shown.names.first();
        latest.is_some_and(|latest| {
            let behind = latest.number.checked_sub(shown.number);
            let at = behind.and_then(|behind| usize::try_from(behind).ok());
            at.is_some_and(|at| at > 0 && latest.names.get(at) == name)
        })
    }

    /// Returns whether this start of a member is already recorded on this node's disk.
    pub fn has_met(&self, node: NodeId, disk: DiskId, shown: &Shown) -> bool {
        let known = self.known.lock();
        let record = known.content.members.get(&node);
        !known.is_urgent()
            && record.is_some_and(|record| {
                record.disk == disk && record.check(shown) == Ok(StartComparison::Again)
            })
    }

    /// Records a start of a member durably, or returns the evidence against it. `commands` is the commands
    /// version of its program. A loss is recorded, too, if the same directory could pass a later check.
    /// Blocks.
    pub fn meet(
        &self,
        node: NodeId,
        disk: DiskId,
        shown: &Shown,
        commands: u8,
    ) -> Result<Result<(), Loss>, StorageError> {
        let found = {
            let mut known = self.known.lock();
            let found = match known
                .content
                .members
                .get_mut(&node)
                .filter(|record| record.disk == disk)
            {
                Some(record) => {
                    let found = record.check(shown);
                    match found {
                        Ok(StartComparison::New) => {
                            record.number = shown.number;
                            record.name = shown.names.first().copied().unwrap_or_default();
                            record.term = record.term.max(shown.term);
                            record.commands = commands;
                        }
                        // It may receive the missing entries from others, and would pass the next check.
                        Err(Loss::Vote { .. } | Loss::Log { .. }) => record.lost = true,
                        Ok(StartComparison::Again) | Err(_) => {}
                    }
                    found
                }
                None => {
                    known.content.insert(node, Record::of(disk, shown, commands));
                    Ok(StartComparison::New)
                }
            };
            if found.is_ok() {
                known.shown.insert(node, shown.clone());
            }
            if found != Ok(StartComparison::Again) {
                known.changed_urgently();
            }
            found
        };
        if self.known.lock().is_urgent() {
            self.save()?;
        }
        Ok(found.map(|_| ()))
    }

    /// Records that a member has acknowledged entries up to `index` to the leader of `term`, of which those
    /// up to `committed` are committed.
    pub fn acknowledged(&self, node: NodeId, term: u64, index: u64, committed: u64) {
        let mut known = self.known.lock();
        let now = Acknowledged { term, index };
        if let Some(record) = known.content.members.get_mut(&node)
            && record.acknowledged < now
        {
            record.acknowledged = now;
            record.term = record.term.max(term);
            record.committed = record.committed.max(index.min(committed));
            known.changed();
        }
    }

    /// Records that a member has voted in `term`.
    pub fn voted(&self, node: NodeId, term: u64) {
        let mut known = self.known.lock();
        if let Some(record) = known.content.members.get_mut(&node)
            && record.term < term
        {
            record.term = term;
            known.changed();
        }
    }

    /// Checks whether a member that lacks an entry had acknowledged it to the leader of this very term. If
    /// so, the member has lost it and is no longer trusted.
    pub fn denied(&self, node: NodeId, term: u64, index: u64) -> bool {
        if planted::is(Bug::TrustedReturn) || planted::is(Bug::CountedStarts) {
            return false;
        }
        let mut known = self.known.lock();
        match known.content.members.get_mut(&node) {
            Some(record) if record.acknowledged.term == term && index <= record.acknowledged.index => {
                record.lost = true;
                known.changed_urgently();
                true
            }
            Some(_) | None => false,
        }
    }

    /// Returns the number of a member's latest start that is recorded on this node's disk, or of this node's
    /// own latest start. 0 if none is recorded, or the record is still being written.
    pub fn start_of(&self, node: NodeId) -> u64 {
        if node == self.node {
            return self.shown.number;
        }
        let known = self.known.lock();
        let record = known.content.members.get(&node).filter(|_| !known.is_urgent());
        record.map_or(0, |record| record.number)
    }

    /// Returns the commands version of a member's program at its latest start that any node recorded.
    pub fn commands_of(&self, node: NodeId, disk: DiskId) -> Option<u8> {
        self.record_of(node, disk).map(|record| record.commands)
    }

    /// Returns the last entry that a member has acknowledged to this node and that is known to be committed.
    #[cfg(feature = "simulation")]
    pub fn committed_by(&self, node: NodeId) -> u64 {
        let known = self.known.lock();
        let record = known.content.members.get(&node);
        record.map_or(0, |record| record.committed)
    }

    /// Returns the last entry that a member has acknowledged.
    pub fn acknowledged_by(&self, node: NodeId) -> u64 {
        let known = self.known.lock();
        let record = known.content.members.get(&node);
        record.map_or(0, |record| record.acknowledged.index)
    }

    /// Returns the records of all members, and of this node itself, which applies `commands`.
    pub fn records(
        &self,
        own_term: u64,
        own_last: u64,
        committed: u64,
        commands: u8,
    ) -> BTreeMap<NodeId, Record> {
        let mut records = self.known.lock().content.members.clone();
        let own = Record {
            term: self.shown.term.max(own_term),
            acknowledged: Acknowledged {
                term: own_term,
                index: own_last,
            },
            committed: own_last.min(committed),
            ..Record::of(self.disk, &self.shown, commands)
        };
        records.insert(self.node, own);
        records
    }

    /// Merges another member's records of directories that are members' `disks`. Returns the evidence against
    /// this node itself, if any follows. Blocks if a start is new.
    pub fn learn(
        &self,
        records: &BTreeMap<NodeId, Record>,
        disks: &BTreeMap<NodeId, DiskId>,
    ) -> Result<Option<Loss>, StorageError> {
        let mut about_me = None;
        {
            let mut known = self.known.lock();
            for (node, theirs) in records {
                if disks.get(node) != Some(&theirs.disk) {
                    continue;
                }
                if *node == self.node {
                    let is_other = theirs.check(&self.shown);
                    about_me = is_other
                        .err()
                        .filter(|loss| !matches!(loss, Loss::Vote { .. } | Loss::Log { .. }));
                    continue;
                }
                let ours = known.content.members.get(node).copied();
                let mut merged = ours.filter(|ours| ours.disk == theirs.disk).unwrap_or(*theirs);
                merged.merge(theirs);
                if ours == Some(merged) {
                    continue;
                }
                let is_new_reason = |ours: Record| (ours.number, ours.lost) != (merged.number, merged.lost);
                known.content.insert(*node, merged);
                match ours.is_none_or(is_new_reason) {
                    true => known.changed_urgently(),
                    false => known.changed(),
                }
            }
        }
        if self.known.lock().is_urgent() {
            self.save()?;
        }
        Ok(about_me)
    }

    /// Marks this directory as unusable, durably. Blocks.
    pub fn refuse(&self, reason: &str) -> Result<(), StorageError> {
        {
            let mut known = self.known.lock();
            let mut reason = reason.to_owned();
            reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
            known.content.refused = Some(reason);
            known.changed();
        }
        self.save()
    }

    /// Returns whether this node's state differed at the last comparison.
    pub fn differs(&self) -> bool {
        self.known.lock().content.differs
    }

    /// Records durably whether this node's state differs. Blocks.
    pub fn set_differs(&self, differs: bool) -> Result<(), StorageError> {
        {
            let mut known = self.known.lock();
            if known.content.differs != differs {
                known.content.differs = differs;
                known.changed();
            }
        }
        self.save()
    }

    /// Returns the members that returned with less than they had acknowledged, with their directories.
    pub fn lost(&self) -> Vec<(NodeId, DiskId)> {
        let known = self.known.lock();
        let lost = known.content.members.iter().filter(|(_, record)| record.lost);
        lost.map(|(id, record)| (*id, record.disk)).collect()
    }

    /// Writes unsaved changes to the disk. Blocks.
    pub fn save(&self) -> Result<(), StorageError> {
        let Some(file) = &self.file else {
            let mut known = self.known.lock();
            known.saved = known.version;
            return Ok(());
        };
        let mut file = file.lock();
        let (bytes, version) = {
            let known = self.known.lock();
            if known.version == known.saved {
                return Ok(());
            }
            (codec::encode(&known.content), known.version)
        };
        file.write(&bytes)?;
        self.known.lock().saved = version;
        Ok(())
    }

    fn record_of(&self, node: NodeId, disk: DiskId) -> Option<Record> {
        let record = self.known.lock().content.members.get(&node).copied();
        record.filter(|record| record.disk == disk)
    }
}

impl Content {
    /// Inserts a record. More members than the limit are known only if most of them were removed; those have
    /// the lowest ids and are dropped.
    fn insert(&mut self, node: NodeId, record: Record) {
        self.members.insert(node, record);
        while self.members.len() > MAX_MEMBERS_KNOWN {
            let oldest = self.members.keys().copied().find(|id| *id != node);
            self.members.retain(|id, _| Some(*id) != oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;
    use raft_log::RealDisk;

    const DISK: DiskId = DiskId([1; 16]);
    const PEER_DISK: DiskId = DiskId([2; 16]);

    /// Data directory of node 1.
    struct TestDir {
        dir: TempDir,
    }

    impl TestDir {
        fn new() -> Self {
            Self {
                dir: TempDir::new().unwrap(),
            }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().to_owned()
        }

        fn begin(&self, term: u64, last: u64) -> Witness {
            Witness::begin(&RealDisk, &self.path(), (1, DISK), (term, last)).unwrap()
        }
    }

    /// Returns a start with this number. The names of the start and of its predecessors are their numbers.
    fn shown(number: u64, term: u64, last: u64) -> Shown {
        let names = (1..=number).rev().take(NAMED_STARTS).collect();
        Shown {
            number,
            names,
            term,
            last,
        }
    }

    /// Commands version of the members.
    const COMMANDS: u8 = 3;

    fn meet(witness: &Witness, shown: &Shown) -> Result<(), Loss> {
        witness.meet(2, PEER_DISK, shown, COMMANDS).unwrap()
    }

    #[test]
    fn each_start_has_the_next_number_and_a_new_name() {
        let dir = TestDir::new();
        let mut before: Vec<u64> = Vec::new();
        for number in 1..=NAMED_STARTS as u64 + 3 {
            let witness = dir.begin(7, 70);
            let shown = witness.shown().clone();
            assert_eq!((shown.number, shown.term, shown.last), (number, 7, 70));
            assert_eq!(&shown.names[1..], &before[..before.len().min(NAMED_STARTS - 1)]);
            assert!(!before.contains(&shown.names[0]));
            before = shown.names;
        }
    }

    #[test]
    fn starts_of_members_survive_a_restart() {
        let dir = TestDir::new();
        let witness = dir.begin(0, 0);
        assert_eq!(meet(&witness, &shown(5, 3, 10)), Ok(()));
        assert!(witness.has_met(2, PEER_DISK, &shown(5, 3, 10)));
        drop(witness);
        let witness = dir.begin(0, 0);
        assert!(witness.has_met(2, PEER_DISK, &shown(5, 3, 10)));
        assert_eq!(witness.commands_of(2, PEER_DISK), Some(COMMANDS));
        let old = Loss::OldStart { shown: 4, known: 5 };
        assert_eq!(meet(&witness, &shown(4, 3, 10)), Err(old));
        let other = Shown {
            names: vec![99, 4, 3, 2, 1],
            ..shown(5, 3, 10)
        };
        assert_eq!(meet(&witness, &other), Err(Loss::OtherStart { number: 5 }));
        // The copy starts once more, so that its number is higher than the recorded one.
        let later = Shown {
            names: vec![100, 99, 4, 3, 2, 1],
            ..shown(6, 3, 10)
        };
        assert_eq!(meet(&witness, &later), Err(Loss::OtherStart { number: 5 }));
        assert_eq!(
            meet(&witness, &shown(6, 3, 10)),
            Ok(()),
            "the original directory passes"
        );
        assert!(witness.is_predecessor(2, &shown(5, 3, 10)) && !witness.is_predecessor(2, &other));
        assert_eq!(
            witness.meet(2, DiskId([3; 16]), &shown(1, 0, 0), 2).unwrap(),
            Ok(()),
            "another disk"
        );
    }

    #[test]
    fn unrecorded_starts_are_harmless() {
        let witness = TestDir::new().begin(0, 0);
        assert_eq!(meet(&witness, &shown(5, 3, 10)), Ok(()));
        assert_eq!(meet(&witness, &shown(9, 3, 10)), Ok(()));
        assert_eq!(meet(&witness, &shown(9 + 2 * NAMED_STARTS as u64, 3, 10)), Ok(()));
    }

    #[test]
    fn acknowledged_entries_must_be_there_unless_a_later_leader_truncated_them() {
        let known = || {
            let witness = TestDir::new().begin(0, 0);
            assert_eq!(meet(&witness, &shown(1, 3, 10)), Ok(()));
            // The leader of term 4 knows 20 entries of the member, of which 15 are committed.
            witness.acknowledged(2, 4, 20, 15);
            // Acknowledgements that overtake a handshake of the same start are harmless.
            assert_eq!(meet(&witness, &shown(1, 3, 10)), Ok(()));
            witness
        };
        assert_eq!(meet(&known(), &shown(2, 4, 20)), Ok(()));
        let short = Loss::Log { shown: 19, known: 20 };
        let witness = known();
        assert_eq!(meet(&witness, &shown(2, 4, 19)), Err(short));
        // The member may have received the entry from others meanwhile.
        assert_eq!(meet(&witness, &shown(3, 5, 30)), Err(Loss::Known));
        assert_eq!(
            meet(&known(), &shown(2, 5, 15)),
            Ok(()),
            "truncated by the leader of term 5"
        );
        let short = Loss::Log { shown: 14, known: 15 };
        assert_eq!(meet(&known(), &shown(2, 5, 14)), Err(short));
        let vote = Loss::Vote { shown: 3, known: 4 };
        assert_eq!(meet(&known(), &shown(2, 3, 20)), Err(vote));
        let witness = known();
        witness.voted(2, 6);
        let vote = Loss::Vote { shown: 5, known: 6 };
        assert_eq!(meet(&witness, &shown(2, 5, 20)), Err(vote));
    }

    #[test]
    fn entry_that_was_acknowledged_to_this_leader_cannot_be_denied() {
        let witness = TestDir::new().begin(0, 0);
        assert_eq!(meet(&witness, &shown(1, 3, 10)), Ok(()));
        witness.acknowledged(2, 4, 20, 15);
        assert!(!witness.denied(2, 4, 21), "it was never acknowledged");
        assert!(!witness.denied(2, 5, 20), "acknowledged to the previous leader");
        assert!(witness.denied(2, 4, 20));
        assert_eq!(meet(&witness, &shown(1, 3, 10)), Err(Loss::Known));
    }

    #[test]
    fn records_of_other_members_are_adopted() {
        let dir = TestDir::new();
        let witness = dir.begin(0, 0);
        let leader = TestDir::new().begin(0, 0);
        assert_eq!(meet(&leader, &shown(5, 3, 10)), Ok(()));
        leader.acknowledged(2, 4, 20, 20);
        let learnt = witness.learn(
            &leader.records(4, 30, 20, COMMANDS),
            &BTreeMap::from([(2, PEER_DISK)]),
        );
        assert_eq!(learnt.unwrap(), None);
        drop(witness);
        let witness = dir.begin(0, 0);
        let old = Loss::OldStart { shown: 4, known: 5 };
        assert_eq!(meet(&witness, &shown(4, 3, 10)), Err(old));
        let short = Loss::Log { shown: 19, known: 20 };
        assert_eq!(meet(&witness, &shown(6, 4, 19)), Err(short));
    }

    #[test]
    fn node_learns_from_its_leader_that_its_directory_is_old() {
        let witness = TestDir::new().begin(0, 0);
        let mut records = witness.records(0, 0, 0, COMMANDS);
        let disks = BTreeMap::from([(1, DISK)]);
        assert_eq!(
            witness.learn(&records, &disks).unwrap(),
            None,
            "the record matches"
        );
        records.get_mut(&1).unwrap().number = 9;
        let old = Loss::OldStart { shown: 1, known: 9 };
        assert_eq!(witness.learn(&records, &disks).unwrap(), Some(old));
    }

    #[test]
    fn refused_directory_is_not_started_again() {
        let dir = TestDir::new();
        dir.begin(0, 0).refuse("it is an old copy").unwrap();
        let again = Witness::begin(&RealDisk, &dir.path(), (1, DISK), (0, 0));
        let refused = again.map(|_| ()).unwrap_err();
        assert!(
            matches!(&refused, StorageError::Foreign(why) if why == "it is an old copy"),
            "{refused}"
        );
    }

    #[test]
    fn maximum_number_of_members_fits_into_the_file() {
        let dir = TestDir::new();
        let witness = dir.begin(u64::MAX, u64::MAX);
        for number in 0..NAMED_STARTS as u64 {
            drop(dir.begin(number, number));
        }
        let witness = {
            drop(witness);
            dir.begin(u64::MAX, u64::MAX)
        };
        witness.refuse(&"x".repeat(2 * MAX_REASON_BYTES)).unwrap();
        for node in 0..2 * MAX_MEMBERS_KNOWN as u64 {
            let most = Shown {
                number: u64::MAX,
                names: vec![u64::MAX],
                term: u64::MAX,
                last: u64::MAX,
            };
            witness
                .meet(u64::MAX - node, DiskId([0xff; 16]), &most, u8::MAX)
                .unwrap()
                .unwrap();
            witness.acknowledged(u64::MAX - node, u64::MAX, u64::MAX, u64::MAX);
        }
        witness.save().unwrap();
        assert_eq!(witness.known.lock().content.members.len(), MAX_MEMBERS_KNOWN);
    }
}
