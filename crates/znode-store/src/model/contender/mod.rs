//! Record of a contender: the facts that Lockgate stores about one of its own contenders. It is a value; ZooKeeper clients read its JSON (`json.rs`)
//! as the data of the contender's znode.
//!
//! Only the lock protocol writes records. The lock rule decides about grants, and not the record.

pub(crate) mod json;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::model::address::CallerAddress;
use crate::model::data::Data;
use crate::model::ids::{RequestId, Zxid};
use crate::model::lock::{
    AttemptId, HoldBounds, LockMode, LockRequest, LockWish, Revocation, distinct_owner,
};
use crate::stable_hash::{self, StableHasher};

/// Record that Lockgate writes about a contender of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Mode and permits that it requests.
    pub request: LockRequest,
    /// The scope of re-entrancy within the session.
    pub owner: Arc<str>,
    /// True if the same owner may join.
    pub reentrant: bool,
    /// Note, for people to read.
    pub note: Arc<str>,
    /// Address that the client called from.
    pub address: CallerAddress,
    /// Time of joining the queue.
    pub since_ms: u64,
    /// Time of the grant.
    pub granted_ms: Option<u64>,
    /// Calls of `acquire` that it knows, oldest first: the released ones, and then those that it stands for.
    pub calls: Vec<Attempt>,
    /// Number of calls that count as released. Each other call is a hold, or a wait.
    ///
    /// A release ends one hold of the owner and does not say which call's: the oldest counts as released. Suppose two calls of one owner
    /// are granted together, the caller of the second releases, and the caller of the first hangs up before it has its answer. When its
    /// node withdraws the first call, the other hold has to end.
    pub released: usize,
    /// Time for which the lock grants nothing if the session expires during the hold.
    pub lock_delay_ms: u32,
    /// The fencing token, where it is not the position of the creation.
    pub token: Option<Zxid>,
    /// The last call of `upgrade`, unless it was withdrawn or downgraded since.
    pub upgrade: Option<Upgrade>,
    /// The last release request.
    pub revoke: Option<Revocation>,
    /// Bounds of the hold in time.
    pub bounds: HoldBounds,
}

/// One call of `upgrade`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upgrade {
    /// The call.
    pub attempt: Attempt,
    /// Time of the request.
    pub since_ms: u64,
    /// True if it was granted.
    pub done: bool,
}

/// Maximum number of released calls that a contender records while it holds. They matter only until their callers have their answers, so
/// these are calls of one owner in flight at once.
pub const MAX_RELEASED: usize = 16;

/// One call of `acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    /// The call.
    pub id: AttemptId,
    /// Id under which its outcome is recorded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_id: Option<RequestId>,
}

/// Immutable record as the data of a znode, with cached values that follow from it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    record: Record,
    json_bytes: usize,
    digest: u64,
}

impl Written {
    pub fn new(record: Record) -> Arc<Self> {
        Arc::new(Self {
            json_bytes: json::length(&record),
            digest: record.digest(),
            record,
        })
    }

    /// Returns the length of the JSON.
    pub fn json_bytes(&self) -> usize {
        self.json_bytes
    }

    /// Returns the record's share of a digest.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Writes the JSON.
    pub fn to_data(&self) -> Data {
        json::data(&self.record)
    }
}

impl Deref for Written {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl Record {
    /// Returns the record of a new contender, which stands for one call.
    pub fn new(wish: &LockWish, bounds: HoldBounds, attempt: Attempt, now_ms: u64) -> Self {
        Self {
            request: LockRequest {
                mode: wish.mode,
                permits: wish.permits,
            },
            owner: wish.owner.clone(),
            reentrant: wish.may_reenter(),
            note: wish.note.clone(),
            address: wish.address.clone(),
            since_ms: now_ms,
            granted_ms: None,
            calls: alloc::vec![attempt],
            released: 0,
            lock_delay_ms: wish.lock_delay_ms,
            token: None,
            upgrade: None,
            revoke: None,
            bounds,
        }
    }

    /// Returns whether this contender stands for the call, or did before another call's release.
    pub fn knows(&self, attempt: AttemptId) -> bool {
        self.calls.iter().any(|known| known.id == attempt)
    }

    /// Returns the id under which the outcome of a call is recorded.
    pub fn request_id_of(&self, attempt: AttemptId) -> Option<RequestId> {
        let known = self.calls.iter().find(|known| known.id == attempt)?;
        known.request_id.clone()
    }

    /// Replaces a call by its repetition, unless the repetition was sent earlier. Returns false if there is no such call.
    pub fn replace(&mut self, request_id: &RequestId, attempt: AttemptId) -> bool {
        let upgrade = self.upgrade.iter_mut().map(|upgrade| &mut upgrade.attempt);
        let mut known = self.calls.iter_mut().chain(upgrade);
        let Some(repeated) = known.find(|known| known.request_id.as_ref() == Some(request_id)) else {
            return false;
        };
        if attempt.retry() >= repeated.id.retry() {
            repeated.id = attempt;
        }
        true
    }

    /// Releases one hold of several.
    pub fn release_one(&mut self) {
        match self.released < MAX_RELEASED {
            true => self.released += 1,
            false => drop(self.calls.remove(0)),
        }
    }

    /// Removes a known call, and with it one hold or one wait.
    ///
    /// If the call counts as released already, the oldest of the other holds ends in its place. The call of that one counts as released
    /// from then on: it stays known, because its caller may hang up as well.
    pub fn remove_call(&mut self, attempt: AttemptId) {
        let known = self.calls.iter().position(|known| known.id == attempt);
        self.calls.remove(known.expect("the call is known"));
    }

    /// The calls that it stands for, oldest first.
    pub fn attempts(&self) -> &[Attempt] {
        &self.calls[self.released..]
    }

    /// The calls that count as released, oldest first.
    pub fn released_calls(&self) -> &[Attempt] {
        &self.calls[..self.released]
    }

    /// Returns the owner as a party of deadlock detection, if it is distinct.
    pub fn distinct_owner(&self) -> Option<&Arc<str>> {
        distinct_owner(&self.owner, self.reentrant)
    }

    /// Returns whether the call is the contender's last upgrade.
    pub fn upgrades_by(&self, attempt: AttemptId) -> bool {
        self.upgrade
            .as_ref()
            .is_some_and(|upgrade| upgrade.attempt.id == attempt)
    }

    /// Returns whether an upgrade waits.
    pub fn is_upgrading(&self) -> bool {
        self.upgrade.as_ref().is_some_and(|upgrade| !upgrade.done)
    }

    /// Returns the number of calls that it stands for.
    pub fn holds(&self) -> u32 {
        u32::try_from(self.attempts().len()).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the ids under which the outcomes of its calls are recorded.
    pub fn request_ids(&self) -> impl Iterator<Item = &RequestId> {
        self.attempts()
            .iter()
            .filter_map(|Attempt { request_id, .. }| request_id.as_ref())
    }

    /// Returns its share of a digest.
    fn digest(&self) -> u64 {
        // All fields by name, so a new field does not compile without its share.
        let Self {
            request,
            owner,
            reentrant,
            note,
            address,
            since_ms,
            granted_ms,
            calls: _,
            released,
            lock_delay_ms,
            token,
            upgrade,
            revoke,
            bounds,
        } = self;
        let attempts = self.attempts();
        let (mode, limit) = match request.mode {
            LockMode::Exclusive => (0, 0),
            LockMode::Shared => (1, 0),
            LockMode::Semaphore { limit } => (2, limit),
            LockMode::Upgradeable => (3, 0),
        };
        let mut hasher = StableHasher::new();
        hasher.words([
            mode,
            limit.into(),
            request.permits.into(),
            (*reentrant).into(),
            *since_ms,
            granted_ms.is_some().into(),
            granted_ms.unwrap_or_default(),
            (*lock_delay_ms).into(),
            token.is_some().into(),
            token.unwrap_or_default().0,
            attempts.len() as u64,
            *released as u64,
            owner.len() as u64,
            note.len() as u64,
            address.as_str().len() as u64,
        ]);
        // Most owners and notes are empty.
        for text in [&**owner, note, address.as_str()]
            .into_iter()
            .filter(|text| !text.is_empty())
        {
            hasher.bytes(text.as_bytes());
        }
        for Attempt { id, request_id } in attempts.iter().chain(self.released_calls()) {
            hasher.word(id.0);
            // No id is empty.
            hasher.bytes(request_id.as_ref().map_or("", RequestId::as_str).as_bytes());
        }
        if upgrade.is_some() || revoke.is_some() {
            hasher.word(stable_hash::of(&(upgrade, revoke)));
        }
        // Former versions have none, so a contender without them has the same digest there.
        if bounds.is_some() {
            hasher.word(stable_hash::of(bounds));
        }
        hasher.finish()
    }
}
