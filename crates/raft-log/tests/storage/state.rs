//! Model of the log after each of its records, with which every recovery is compared.

use std::collections::BTreeMap;

use bytes::Bytes;
use raft_log::{LogPos, VoteRecord, Wal, WalEntry};

/// Smallest atomic change of a log.
#[derive(Debug, Clone)]
pub enum Record {
    Entry(WalEntry),
    Vote(VoteRecord),
    Truncate(Option<u64>),
    Purge(LogPos),
}

/// State of a log, without its commit mark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub vote: Option<VoteRecord>,
    pub purged: Option<LogPos>,
    pub entries: BTreeMap<u64, (u64, Bytes)>,
}

impl State {
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Entry(WalEntry { pos, payload }) => {
                self.entries.insert(pos.index, (pos.term, payload.clone()));
            }
            Record::Vote(vote) => self.vote = Some(*vote),
            Record::Truncate(None) => self.entries.clear(),
            Record::Truncate(Some(last)) => self.entries.retain(|index, _| index <= last),
            Record::Purge(upto) => {
                self.entries.retain(|index, _| *index > upto.index);
                self.purged = Some(*upto);
            }
        }
    }

    pub fn last(&self) -> Option<LogPos> {
        match self.entries.last_key_value() {
            Some((index, (term, _))) => Some(LogPos {
                term: *term,
                index: *index,
            }),
            None => self.purged,
        }
    }

    /// Returns the position of an entry, or of the purge point.
    pub fn pos(&self, index: u64) -> Option<LogPos> {
        let entry = self
            .entries
            .get(&index)
            .map(|(term, _)| LogPos { term: *term, index });
        entry.or(self.purged.filter(|purged| purged.index == index))
    }

    /// Reads the state of a log through its public interface.
    pub fn of(wal: &Wal) -> Self {
        let read = wal.read(0..u64::MAX).expect("what a log holds can be read");
        let entries: BTreeMap<_, _> = read
            .into_iter()
            .map(|entry| (entry.pos.index, (entry.pos.term, entry.payload)))
            .collect();
        let state = Self {
            vote: wal.vote(),
            purged: wal.purged(),
            entries,
        };
        assert_eq!(wal.last(), state.last());
        state
    }
}
