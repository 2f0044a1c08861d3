//! Cache of the outcomes of requests with a `request_id`, so that a request that is sent several times is executed once. It is bounded, because
//! clients repeat requests soon. This module also decides which requests count as the same. `apply/locks` decides the answer to a repeated
//! `acquire`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashlink::LinkedHashMap;
use serde::{Deserialize, Serialize};

use crate::model::access::principal::{MAX_CERTIFICATE_BYTES, Principal};
use crate::model::command::Command;
use crate::model::damage::{Damage, NEVER_COUNTED};
use crate::model::entry::Rules;
use crate::model::ids::{MAX_REQUEST_ID_BYTES, RequestId};
use crate::model::lock::{LockCommand, LockWish};
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::stable_hash::{self, FixedState, Table};

/// Maximum number of recorded outcomes of a session, besides those of calls that wait in a queue. A client repeats only requests in flight, and has
/// fewer than this in flight for one session. Each outcome takes about 200 bytes, and this number fits into a table of 256 entries.
pub const MAX_REMEMBERED_REQUESTS: usize = 200;

/// Maximum number of recorded outcomes of requests without a session, of all clients together. Beyond it the oldest outcome of the
/// principal with the most outcomes is evicted.
pub const MAX_SESSIONLESS_REQUESTS: usize = 10_000;

/// Key of a recorded outcome.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct RequestKey(Arc<str>);

/// Maximum length of a key in bytes: a request id, the subject of a certificate, and the separators.
const MAX_KEY_BYTES: usize = MAX_REQUEST_ID_BYTES + MAX_CERTIFICATE_BYTES + 64;

impl RequestKey {
    /// Returns the key of a principal's request without a session.
    pub(crate) fn of_principal(principal: &Principal, id: &RequestId) -> Self {
        // The length comes first, so that no id can look like another one with the name of a principal.
        let mut text = format!("{} {} ", id.as_str().len(), id.as_str());
        principal.append_to(&mut text);
        Self(text.into())
    }
}

impl RequestKey {
    /// Returns the principal of the request, as a text that no other principal has. Empty if principals do not matter.
    fn principal(&self) -> &str {
        let found = self.0.split_once(' ').and_then(|(length, rest)| {
            let id: usize = length.parse().ok()?;
            rest.get(id.checked_add(1)?..)
        });
        found.unwrap_or_default()
    }
}

impl From<&RequestId> for RequestKey {
    fn from(id: &RequestId) -> Self {
        Self(id.shared())
    }
}

/// Bounded cache of outcomes by request id; the oldest is evicted first.
///
/// A call that waits in a lock's queue is neither counted nor evicted, because a repetition that was executed again would enter the queue
/// twice. When the call is answered, its outcome becomes the newest.
#[derive(Clone)]
pub(crate) struct RequestCache {
    limit: usize,
    /// Outcomes that may be evicted, in the order of arrival. An outcome and its links in that order are in one allocation, because the cache of a
    /// session has usually left the processor's caches before its next request.
    answered: LinkedHashMap<RequestKey, Entry, FixedState>,
    /// Shares of the principals, if the cache is shared among principals.
    shares: Option<Shares>,
    /// Calls that wait in a queue.
    waiting: Table<RequestKey, Entry>,
    /// Next number of arrival. It is the same on all replicas, and is part of snapshots.
    next: u64,
    /// Sum of the digests of all records.
    digest: u64,
}

/// Number of cached outcomes of each principal.
#[derive(Clone, Default)]
struct Shares {
    /// Keys by principal and arrival.
    of: BTreeMap<Arc<str>, BTreeMap<u64, RequestKey>>,
    /// Principals by their number of outcomes.
    by_size: BTreeSet<(usize, Arc<str>)>,
}

impl Shares {
    fn add(&mut self, id: &RequestKey, arrival: u64) {
        self.change(id, |share| drop(share.insert(arrival, id.clone())));
    }

    fn remove(&mut self, id: &RequestKey, arrival: u64) {
        self.change(id, |share| drop(share.remove(&arrival)));
    }

    fn change(&mut self, id: &RequestKey, change: impl FnOnce(&mut BTreeMap<u64, RequestKey>)) {
        let principal = match self.of.get_key_value(id.principal()) {
            Some((known, _)) => known.clone(),
            None => id.principal().into(),
        };
        let share = self.of.entry(principal.clone()).or_default();
        self.by_size.remove(&(share.len(), principal.clone()));
        change(share);
        match share.len() {
            0 => drop(self.of.remove(&principal)),
            size => drop(self.by_size.insert((size, principal))),
        }
    }

    /// Returns the oldest key of the principal with the most outcomes.
    fn oldest_of_largest(&self) -> Option<RequestKey> {
        let (_, principal) = self.by_size.last()?;
        self.of.get(principal)?.values().next().cloned()
    }
}

/// Recorded outcome in memory, with its digest.
#[derive(Clone)]
struct Entry {
    record: RecordedOutcome,
    /// Digest of the record.
    digest: u64,
}

/// Recorded outcome of one request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecordedOutcome {
    /// Fingerprint of the request; see [`fingerprint`].
    pub(crate) fingerprint: u64,
    /// The outcome.
    pub(crate) outcome: Outcome,
    /// Number of the outcome in the order of arrival.
    pub(crate) arrival: u64,
}

impl RecordedOutcome {
    fn waits(&self) -> bool {
        let queued = |reply: &Reply| matches!(reply, Reply::Queued(_));
        match &self.outcome {
            Ok(Reply::Multi(parts)) => parts.iter().any(queued),
            Ok(reply) => queued(reply),
            Err(_) => false,
        }
    }

    fn digest(&self, id: &RequestKey) -> u64 {
        stable_hash::of_words([
            stable_hash::of(id),
            self.fingerprint,
            stable_hash::of(&self.outcome),
            self.arrival,
        ])
    }
}

impl RequestCache {
    /// Returns an empty cache for one session.
    pub(crate) fn of_session() -> Self {
        Self::with_limit(MAX_REMEMBERED_REQUESTS)
    }

    /// Returns an empty cache for requests without a session.
    pub(crate) fn sessionless() -> Self {
        Self {
            shares: Some(Shares::default()),
            ..Self::with_limit(MAX_SESSIONLESS_REQUESTS)
        }
    }

    fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            answered: LinkedHashMap::default(),
            shares: None,
            waiting: Table::default(),
            next: 0,
            digest: 0,
        }
    }

    /// Returns whether a recorded outcome is a lease or its renewal.
    pub(crate) fn knows_leases(&self) -> bool {
        self.answered().any(|(_, record)| {
            matches!(
                record.outcome,
                Ok(Reply::Leased { .. } | Reply::LeaseRenewed { .. }) | Err(Refusal::LeaseExpired)
            )
        })
    }

    /// Returns the number of outcomes that may be evicted.
    pub(crate) fn len(&self) -> usize {
        self.answered.len()
    }

    pub(crate) fn get(&self, id: &RequestKey) -> Option<&RecordedOutcome> {
        let entry = self.answered.get(id).or_else(|| self.waiting.get(id));
        entry.map(|entry| &entry.record)
    }

    /// Records an outcome.
    pub(crate) fn insert(&mut self, id: RequestKey, fingerprint: u64, outcome: Outcome, rules: Rules) {
        let arrival = self.next;
        self.next += 1;
        self.put(
            id,
            RecordedOutcome {
                fingerprint,
                outcome,
                arrival,
            },
        );
        if self.answered.len() > self.limit {
            let of_largest = match (rules, &self.shares) {
                (Rules::Current, Some(shares)) => shares.oldest_of_largest(),
                (Rules::Former, _) | (_, None) => None,
            };
            let first = || self.answered.front().map(|(id, _)| id.clone());
            let oldest = of_largest.or_else(first).expect("there are more than the limit");
            self.forget(&oldest);
        }
    }

    /// Replaces the outcome that a repeated request gets, unless it is evicted already.
    pub(crate) fn update(&mut self, id: &RequestKey, outcome: Outcome) {
        if let Some(record) = self.get(id) {
            self.insert(id.clone(), record.fingerprint, outcome, Rules::Current);
        }
    }

    /// Evicts an outcome. From here on a repeated request is executed again.
    pub(crate) fn forget(&mut self, id: &RequestKey) {
        let answered = self.answered.remove(id);
        if let (Some(entry), Some(shares)) = (&answered, &mut self.shares) {
            shares.remove(id, entry.record.arrival);
        }
        if let Some(entry) = answered.or_else(|| self.waiting.remove(id)) {
            self.digest = self.digest.wrapping_sub(entry.digest);
        }
    }

    /// Inserts the newest outcome.
    fn put(&mut self, id: RequestKey, record: RecordedOutcome) {
        self.forget(&id);
        let digest = record.digest(&id);
        self.digest = self.digest.wrapping_add(digest);
        let waits = record.waits();
        let entry = Entry { record, digest };
        match waits {
            true => drop(self.waiting.insert(id, entry)),
            false => {
                if let Some(shares) = &mut self.shares {
                    shares.add(&id, entry.record.arrival);
                }
                self.answered.insert(id, entry);
            }
        }
    }

    /// Returns the recorded outcomes of answered requests, the oldest first.
    pub(crate) fn answered(&self) -> impl Iterator<Item = (&RequestKey, &RecordedOutcome)> {
        self.answered.iter().map(|(id, entry)| (id, &entry.record))
    }

    /// Returns all outcomes, as they go into a snapshot.
    pub(crate) fn kept(&self) -> CachedRequests {
        let waiting = self.waiting.iter().map(|(id, entry)| (id, &entry.record));
        let all = self.answered().chain(waiting);
        let mut records: Vec<_> = all.map(|(id, record)| (id.clone(), record.clone())).collect();
        records.sort_unstable_by_key(|(_, record)| record.arrival);
        CachedRequests {
            next: self.next,
            records,
        }
    }

    /// Returns the next number of arrival.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Adds the records of a snapshot.
    pub(crate) fn restore(&mut self, kept: CachedRequests) -> Result<(), Damage> {
        if kept.next >= NEVER_COUNTED {
            return Err("a request in it came after all that can come");
        }
        self.next = self.next.max(kept.next);
        let last = self.answered.back().map(|(_, entry)| entry.record.arrival);
        let mut earliest = last.map_or(0, |arrival| arrival + 1);
        for (id, record) in kept.records {
            if !(earliest..kept.next).contains(&record.arrival) {
                return Err("the requests in it are not in the order in which they came");
            }
            if !(1..=MAX_KEY_BYTES).contains(&id.0.len()) {
                return Err("the id of a request in it is illegal");
            }
            if self.get(&id).is_some() {
                return Err("a request in it is there twice");
            }
            earliest = record.arrival + 1;
            self.put(id, record);
        }
        Ok(())
    }

    /// Returns the records' share of the digest. It is updated with each change, because there may be many records.
    pub(crate) fn digest(&self) -> u64 {
        let records = self.answered.len() + self.waiting.len();
        stable_hash::of_words([self.next, records as u64, self.digest])
    }
}

/// Records of a request cache in a snapshot, or some of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct CachedRequests {
    pub(crate) next: u64,
    pub(crate) records: Vec<(RequestKey, RecordedOutcome)>,
}

impl CachedRequests {
    /// Returns whether the cache was never written to.
    pub(crate) fn is_nothing(&self) -> bool {
        self.next == 0 && self.records.is_empty()
    }

    /// Returns whether one of the requests waits for its answer.
    pub(crate) fn waits(&self) -> bool {
        self.records.iter().any(|(_, record)| record.waits())
    }
}

/// Returns whether an outcome is the final answer to its request. A session id that was taken is not: the node draws another one and
/// proposes the same request again.
pub(crate) fn is_final(outcome: &Outcome) -> bool {
    !matches!(
        outcome,
        Err(Refusal::SessionIdTaken(_) | Refusal::StaleLeader | Refusal::RequestIdReused)
    )
}

/// Returns a hash that equal requests share. It covers everything that the client sent, and nothing that a node added on receipt (session ids,
/// passwords, names, ids of calls, the caller's address).
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
            // A repetition may have less time left, or none. It gets the outcome of the first call all the same.
            wait: _,
        }) => stable_hash::of_words([stable_hash::of("acquire"), fingerprint_of_wish(wish)]),
        Command::Lock(LockCommand::AcquireBounded {
            wish,
            guid: _,
            attempt: _,
            wait: _,
            bounds,
            lease,
        }) => {
            let timeout_ms = lease.map(|lease| lease.timeout_ms);
            stable_hash::of(&("acquire bounded", fingerprint_of_wish(wish), bounds, timeout_ms))
        }
        Command::Lock(LockCommand::AcquireMany {
            wishes,
            guid: _,
            attempt: _,
            wait: _,
        }) => {
            let wishes: Vec<u64> = wishes.iter().map(fingerprint_of_wish).collect();
            stable_hash::of(&("acquire many", wishes))
        }
        Command::Lock(LockCommand::Upgrade {
            lock,
            holder,
            attempt: _,
            wait: _,
        }) => stable_hash::of(&("upgrade", lock, holder)),
        Command::Lock(LockCommand::Break {
            lock,
            holder,
            by: _,
            reason,
        }) => stable_hash::of(&("break", lock, holder, reason)),
        Command::Lock(LockCommand::Revoke {
            lock,
            holder,
            by: _,
            reason,
        }) => stable_hash::of(&("revoke", lock, holder, reason)),
        Command::CloseSession { .. }
        | Command::ExpireSessions { .. }
        | Command::Write(_)
        | Command::Multi(_)
        | Command::Sweep(_)
        | Command::SetLimits(_)
        | Command::Reconnect { .. }
        | Command::InTurn { .. }
        // The hash of a new token counts: a repeated request has another secret, which the first answer would not fit.
        | Command::Access(_)
        | Command::Mirror(_)
        | Command::RecordSilence { .. }
        | Command::NoteHeartbeats { .. }
        | Command::RenewLease { .. }
        | Command::ReleaseLease { .. }
        | Command::SetQuotas { .. }
        | Command::Lock(_) => stable_hash::of(command),
    }
}

fn fingerprint_of_wish(wish: &LockWish) -> u64 {
    let LockWish {
        lock,
        mode,
        permits,
        owner,
        reentrant,
        note,
        address: _,
        lock_delay_ms,
        names,
    } = wish;
    stable_hash::of(&(lock, mode, permits, owner, reentrant, note, lock_delay_ms, names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateMode, CreatePath, Op};

    fn creation(data: &[u8]) -> Command {
        let path = CreatePath::parse("/a", false).expect("it is a path");
        let mode = CreateMode::Persistent;
        Command::Write(Op::Create {
            path,
            data: data.into(),
            acl: crate::Acl::open(),
            mode,
            parents: false,
        })
    }

    #[test]
    fn data_that_is_no_text_tells_requests_apart_too() {
        let first = fingerprint(&creation(&[0xff; 24]));
        assert_eq!(first, fingerprint(&creation(&[0xff; 24])));
        assert_ne!(first, fingerprint(&creation(&[0xfe; 24])));
        assert_ne!(first, fingerprint(&creation(&[0xff; 25])));
    }
}
