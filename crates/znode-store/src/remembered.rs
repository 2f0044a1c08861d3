//! Outcomes of requests that carried a `request_id`, so that a request that is sent again has the effect of
//! being sent once. Bounded: who repeats a request does so soon. What "the same request" means for each
//! command is decided here too; what a repeated `acquire` answers is decided in [`crate::lock`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::command::{Command, LockCommand};
use crate::ids::RequestId;
use crate::reply::{Outcome, Refusal};
use crate::stable_hash::{self, Table};

/// How many outcomes a session has remembered. A client repeats what it has in flight, and more than this
/// in flight for one session is not a client but a flood; each one costs up to some hundred bytes.
pub const MAX_REMEMBERED_REQUESTS: usize = 256;

/// How many outcomes are remembered of requests without a session, of all clients together.
pub const MAX_SESSIONLESS_REQUESTS: usize = 10_000;

/// A bounded memory of outcomes; the oldest is forgotten first.
#[derive(Clone)]
pub(crate) struct Remembered {
    limit: usize,
    records: Table<RequestId, Record>,
    /// The same in the order of arrival.
    order: BTreeMap<u64, RequestId>,
    next: u64,
}

/// What is remembered of one request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What was asked; see [`fingerprint`].
    pub(crate) fingerprint: u64,
    /// What is answered.
    pub(crate) outcome: Outcome,
    /// When it arrived, relative to others.
    pub(crate) arrival: u64,
}

impl Remembered {
    /// Of one session.
    pub(crate) fn of_session() -> Self {
        Self::with_limit(MAX_REMEMBERED_REQUESTS)
    }

    /// Of requests without a session.
    pub(crate) fn sessionless() -> Self {
        Self::with_limit(MAX_SESSIONLESS_REQUESTS)
    }

    fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            records: Table::default(),
            order: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn get(&self, id: &RequestId) -> Option<&Record> {
        self.records.get(id)
    }

    /// Remembers an outcome under an id that is not remembered yet.
    pub(crate) fn insert(&mut self, id: RequestId, fingerprint: u64, outcome: Outcome) {
        self.forget(&id);
        let arrival = self.next;
        self.next += 1;
        self.order.insert(arrival, id.clone());
        self.records.insert(
            id,
            Record {
                fingerprint,
                outcome,
                arrival,
            },
        );
        if self.records.len() > self.limit {
            let (_, oldest) = self.order.pop_first().expect("as many as there are records");
            self.records.remove(&oldest);
        }
    }

    /// From now on a repeated request is answered by `outcome`, unless it is forgotten already.
    pub(crate) fn update(&mut self, id: &RequestId, outcome: Outcome) {
        if let Some(record) = self.records.get_mut(id) {
            record.outcome = outcome;
        }
    }

    /// From now on a repeated request is carried out anew.
    pub(crate) fn forget(&mut self, id: &RequestId) {
        if let Some(record) = self.records.remove(id) {
            self.order.remove(&record.arrival);
        }
    }

    /// The records of all that arrived at `arrival` or later, the oldest first.
    pub(crate) fn records_from(&self, arrival: u64) -> impl Iterator<Item = (RequestId, Record)> + '_ {
        self.order
            .range(arrival..)
            .map(|(_, id)| (id.clone(), self.records[id].clone()))
    }

    /// Takes in what a snapshot has kept of it.
    pub(crate) fn filled_with(mut self, records: Vec<(RequestId, Record)>) -> Self {
        for (id, record) in records {
            self.insert(id, record.fingerprint, record.outcome);
        }
        self
    }

    /// All records, the oldest first.
    fn iter(&self) -> impl Iterator<Item = (&RequestId, &Record)> {
        self.order.values().map(|id| (id, &self.records[id]))
    }

    /// The records' share of the digest. Positions count, numbers of arrival do not: they start anew after
    /// a restore.
    pub(crate) fn digest(&self) -> u64 {
        self.iter().fold(0, |hash, (id, record)| {
            stable_hash::of_words(&[
                hash,
                stable_hash::of(id),
                record.fingerprint,
                stable_hash::of(&record.outcome),
            ])
        })
    }
}

/// Whether an outcome is the final answer to its request. A drawn id that was taken is not: the node draws
/// another one and proposes the same request again.
pub(crate) fn is_memorable(outcome: &Outcome) -> bool {
    !matches!(
        outcome,
        Err(Refusal::SessionIdTaken(_) | Refusal::StaleLeader | Refusal::RequestIdReused)
    )
}

/// What makes two requests the same: all that the client said, and nothing that a node has drawn or seen
/// when it took the request in (session ids, passwords, names, numbers of calls, the caller's address).
pub(crate) fn fingerprint(command: &Command) -> u64 {
    match command {
        Command::OpenSession {
            session: _,
            password: _,
            timeout_ms,
            name,
            address: _,
        } => stable_hash::of(&("open session", timeout_ms, name)),
        Command::Lock(LockCommand::Acquire {
            wish,
            guid: _,
            attempt: _,
            wait,
        }) => {
            let crate::LockWish {
                lock,
                mode,
                permits,
                owner,
                reentrant,
                note,
                address: _,
            } = wish;
            stable_hash::of(&("acquire", (lock, mode, permits, owner, reentrant, note), wait))
        }
        Command::CloseSession { .. }
        | Command::ExpireSessions { .. }
        | Command::Write(_)
        | Command::Multi(_)
        | Command::SweepContainers(_)
        | Command::Lock(_) => stable_hash::of(command),
    }
}
