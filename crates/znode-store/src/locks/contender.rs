//! Records of contenders: the data of their znodes, in JSON, so that users of any ZooKeeper client can read the queue. The rule and not the
//! record decides about grants.
//!
//! The record is the only source of what it says. Copies beside the tree (the request, the token, the owner) change together with it, so a
//! replica that restored a snapshot has the same copies as the others. For the same reason only the lock protocol writes records: see
//! [`super::name::is_reserved`].

#[cfg(test)]
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::locks::name::{Kind, recognise};
use crate::model::ids::{RequestId, Zxid};
use crate::model::lock::{AttemptId, LockMode, LockRequest, LockWish, Revocation, distinct_owner};

/// Facts about a contender that its znode records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The sequence number in the name.
    pub number: u64,
    /// Mode and permits that it requests.
    pub request: LockRequest,
    /// Record that Lockgate wrote. `None` for contenders of other clients, whose data is their own.
    pub record: Option<Arc<Record>>,
}

/// Record that Lockgate writes about a contender of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Mode and permits that it requests.
    pub request: LockRequest,
    /// The scope of re-entrancy within the session.
    pub owner: Arc<str>,
    /// True if the same owner may join.
    pub reentrant: bool,
    /// For people.
    pub note: Arc<str>,
    /// Address that the client called from.
    pub address: Arc<str>,
    /// Time of joining the queue.
    pub since_ms: u64,
    /// Time of the grant.
    pub granted_ms: Option<u64>,
    /// The calls of `acquire` that it stands for, oldest first. While it holds, each is one hold.
    pub attempts: Vec<Attempt>,
    /// Calls whose holds were released while other holds stayed, oldest first.
    ///
    /// A release ends one hold of the owner and does not say which call's. Suppose two calls of one owner are granted together, the caller
    /// of the first releases, and the caller of the second has hung up. Then the second call may be the one that was removed from the list.
    /// When its node withdraws it, the other hold has to end.
    pub released: Vec<Attempt>,
    /// Time for which the lock grants nothing if the session expires during the hold.
    pub lock_delay_ms: u32,
    /// The fencing token, where it is not the position of the creation.
    pub token: Option<Zxid>,
    /// The last call of `upgrade`, unless it was withdrawn or downgraded since.
    pub upgrade: Option<Upgrade>,
    /// The last release request.
    pub revoke: Option<Revocation>,
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

/// The record as it is read. The order of the fields is that of the text, which `text.rs` writes.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Serialize))]
struct Json {
    mode: JsonMode,
    permits: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    limit: Option<u32>,
    owner: Arc<str>,
    reentrant: bool,
    note: Arc<str>,
    address: Arc<str>,
    since_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    granted_ms: Option<u64>,
    attempts: Vec<Attempt>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    released: Vec<Attempt>,
    #[serde(skip_serializing_if = "is_zero", default)]
    lock_delay_ms: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    token: Option<Zxid>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    upgrade: Option<Upgrade>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    revoke: Option<Revocation>,
}

#[cfg(test)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(Serialize))]
#[serde(rename_all = "snake_case")]
enum JsonMode {
    Exclusive,
    Shared,
    Semaphore,
    Upgradeable,
}

impl Facts {
    /// Reads a znode below a lock. `None`: its name is no contender's. Data that makes no sense is another
    /// client's business; such a contender is what its name says.
    pub fn read(name: &str, data: &[u8]) -> Option<Self> {
        let name = recognise(name)?;
        let json = if name.ours {
            serde_json::from_slice(data).ok()
        } else {
            None
        };
        let record = json.and_then(|json| Record::from_json(name.kind, json));
        let request = match (&record, name.kind) {
            (Some(record), _) => record.request,
            (None, Kind::Shared) => LockRequest {
                mode: LockMode::Shared,
                permits: 1,
            },
            // A lease of we do not know how many: safe only alone.
            (None, Kind::Exclusive | Kind::Lease) => LockRequest {
                mode: LockMode::Exclusive,
                permits: 1,
            },
        };
        Some(Self {
            number: name.number,
            request,
            record: record.map(Arc::new),
        })
    }

    /// Since when it holds, or else waits. `None`: that is not known of other clients' contenders.
    pub fn since_ms(&self, holds: bool) -> Option<u64> {
        let record = self.record.as_ref()?;
        Some(record.granted_ms.filter(|_| holds).unwrap_or(record.since_ms))
    }

    /// Returns the number of entries of the owner (or, in the queue, of calls). A foreign contender stands for one call.
    pub fn holds(&self) -> u32 {
        self.record.as_deref().map_or(1, Record::holds)
    }
}

impl Record {
    /// The record of a new contender, which stands for one call.
    pub fn new(wish: &LockWish, attempt: Attempt, now_ms: u64) -> Self {
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
            attempts: alloc::vec![attempt],
            released: Vec::new(),
            lock_delay_ms: wish.lock_delay_ms,
            token: None,
            upgrade: None,
            revoke: None,
        }
    }

    /// Returns whether this contender stands for the call, or did before another call's release.
    pub fn knows(&self, attempt: AttemptId) -> bool {
        self.attempts
            .iter()
            .chain(&self.released)
            .any(|known| known.id == attempt)
    }

    /// Returns the id under which the outcome of a call is recorded.
    pub fn request_id_of(&self, attempt: AttemptId) -> Option<RequestId> {
        let known = self
            .attempts
            .iter()
            .chain(&self.released)
            .find(|known| known.id == attempt)?;
        known.request_id.clone()
    }

    /// Replaces a call by its repetition, unless that was sent earlier. Returns false if there is no such call.
    pub fn replace(&mut self, request_id: &RequestId, attempt: AttemptId) -> bool {
        let upgrade = self.upgrade.iter_mut().map(|upgrade| &mut upgrade.attempt);
        let calls = self.attempts.iter_mut().chain(&mut self.released);
        let mut known = calls.chain(upgrade);
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
        self.released.push(self.attempts.remove(0));
        if self.released.len() > MAX_RELEASED {
            self.released.remove(0);
        }
    }

    /// Removes a known call, and with it one hold or one wait.
    ///
    /// If the call's own hold was released already, by another caller, the oldest of the other holds ends in its place. The call of that
    /// one counts as released from then on: it stays known, because its caller may hang up as well.
    pub fn remove_call(&mut self, attempt: AttemptId) {
        match self.attempts.iter().position(|known| known.id == attempt) {
            Some(at) => drop(self.attempts.remove(at)),
            None => {
                self.released.retain(|known| known.id != attempt);
                self.release_one();
            }
        }
    }

    /// The scope that waits for others and is waited for.
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
        u32::try_from(self.attempts.len()).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the record as the library writes it, which is the specification.
    #[cfg(test)]
    pub fn to_json(&self) -> String {
        let (mode, limit) = match self.request.mode {
            LockMode::Exclusive => (JsonMode::Exclusive, None),
            LockMode::Shared => (JsonMode::Shared, None),
            LockMode::Upgradeable => (JsonMode::Upgradeable, None),
            LockMode::Semaphore { limit } => (JsonMode::Semaphore, Some(limit)),
        };
        let json = Json {
            mode,
            permits: self.request.permits,
            limit,
            owner: self.owner.clone(),
            reentrant: self.reentrant,
            note: self.note.clone(),
            address: self.address.clone(),
            since_ms: self.since_ms,
            granted_ms: self.granted_ms,
            attempts: self.attempts.clone(),
            released: self.released.clone(),
            lock_delay_ms: self.lock_delay_ms,
            token: self.token,
            upgrade: self.upgrade.clone(),
            revoke: self.revoke.clone(),
        };
        serde_json::to_string(&json).expect("numbers and texts always have a form in JSON")
    }

    /// Reads a record within the bounds of the contender's name: an exclusive name may have been downgraded since, a shared name stays
    /// shared. Lockgate never writes a record without a call, or with an upgrade in a mode that has none.
    fn from_json(kind: Kind, json: Json) -> Option<Self> {
        if json.attempts.is_empty() {
            return None;
        }
        let of_one = |mode| LockRequest { mode, permits: 1 };
        let request = match (kind, json.mode, json.limit) {
            (Kind::Exclusive, JsonMode::Exclusive, None) => of_one(LockMode::Exclusive),
            (Kind::Exclusive, JsonMode::Upgradeable, None) => of_one(LockMode::Upgradeable),
            (Kind::Exclusive | Kind::Shared, JsonMode::Shared, None) => of_one(LockMode::Shared),
            (Kind::Lease, JsonMode::Semaphore, Some(limit)) if (1..=limit).contains(&json.permits) => {
                LockRequest {
                    mode: LockMode::Semaphore { limit },
                    permits: json.permits,
                }
            }
            _ => return None,
        };
        match (&json.upgrade, request.mode) {
            (None, _) => {}
            (Some(Upgrade { done: true, .. }), LockMode::Exclusive) => {}
            (Some(Upgrade { done: false, .. }), LockMode::Upgradeable) => {}
            (Some(_), _) => return None,
        }
        Some(Self {
            request,
            owner: json.owner,
            reentrant: json.reentrant,
            note: json.note,
            address: json.address,
            since_ms: json.since_ms,
            granted_ms: json.granted_ms,
            attempts: json.attempts,
            released: json.released,
            lock_delay_ms: json.lock_delay_ms,
            token: json.token,
            upgrade: json.upgrade,
            revoke: json.revoke,
        })
    }
}

impl Record {
    /// Returns the ids under which the outcomes of its calls are recorded.
    pub(crate) fn request_ids(&self) -> impl Iterator<Item = &RequestId> {
        self.attempts
            .iter()
            .filter_map(|Attempt { request_id, .. }| request_id.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use crate::locks::json;

    use alloc::format;
    use alloc::vec;

    use super::*;
    use crate::locks::name::make;

    fn record(mode: LockMode, permits: u32) -> Record {
        Record {
            request: LockRequest { mode, permits },
            owner: "thread \"1\"".into(),
            reentrant: true,
            note: "nightly build\n".into(),
            address: "127.0.0.1:4711".into(),
            since_ms: 1_700_000_000_000,
            granted_ms: None,
            attempts: vec![
                Attempt {
                    id: AttemptId(u64::MAX),
                    request_id: None,
                },
                Attempt {
                    id: AttemptId(1),
                    request_id: Some(RequestId::parse("r-1").unwrap()),
                },
            ],
            released: vec![],
            lock_delay_ms: 0,
            token: None,
            upgrade: None,
            revoke: None,
        }
    }

    fn name(mode: LockMode) -> alloc::string::String {
        make(5, mode, Default::default(), 7)
    }

    #[test]
    fn written_records_are_read_back() {
        for (mode, permits) in [
            (LockMode::Exclusive, 1),
            (LockMode::Shared, 1),
            (LockMode::Upgradeable, 1),
            (LockMode::Semaphore { limit: 9 }, 4),
            (LockMode::Semaphore { limit: u32::MAX }, u32::MAX),
        ] {
            let released = vec![Attempt {
                id: AttemptId(2),
                request_id: None,
            }];
            let record = Record {
                granted_ms: Some(3),
                released,
                lock_delay_ms: 15_000,
                token: Some(Zxid(77)),
                upgrade: (mode == LockMode::Upgradeable).then_some(Upgrade {
                    attempt: Attempt {
                        id: AttemptId(5),
                        request_id: None,
                    },
                    since_ms: 9,
                    done: false,
                }),
                revoke: Some(Revocation {
                    by: "10.0.0.7".into(),
                    reason: "maintenance".into(),
                    requested_ms: 4,
                    answer: Some("in a minute".into()),
                }),
                ..record(mode, permits)
            };
            let facts = Facts::read(&name(mode), json::data(&record).as_bytes()).unwrap();
            assert_eq!(
                facts,
                Facts {
                    number: 7,
                    request: record.request,
                    record: Some(Arc::new(record))
                }
            );
            assert_eq!(facts.holds(), 2);
        }
    }

    #[test]
    fn the_text_is_pleasant_to_read() {
        assert_eq!(
            format!(
                "{:?}",
                json::data(&Record {
                    attempts: vec![],
                    ..record(LockMode::Exclusive, 1)
                })
            ),
            format!(
                "{:?}",
                "{\"mode\":\"exclusive\",\"permits\":1,\"owner\":\"thread \\\"1\\\"\",\"reentrant\":true,\
                 \"note\":\"nightly build\\n\",\"address\":\"127.0.0.1:4711\",\"since_ms\":1700000000000,\
                 \"attempts\":[]}"
            )
        );
    }

    #[track_caller]
    fn foreign(name: &str, data: &[u8], mode: LockMode) {
        let facts = Facts::read(name, data).unwrap();
        assert_eq!(facts.record, None);
        assert_eq!(facts.request, LockRequest { mode, permits: 1 });
        assert_eq!(facts.holds(), 1);
    }

    #[test]
    fn data_that_makes_no_sense_is_foreign() {
        let nested = "[".repeat(100_000);
        for data in [
            &b""[..],
            b"127.0.0.1",
            b"{}",
            b"{\"mode\":\"exclusive\"}",
            b"\xff\xfe",
            b"null",
            b"[1,2",
            nested.as_bytes(),
        ] {
            foreign(&name(LockMode::Exclusive), data, LockMode::Exclusive);
            foreign(&name(LockMode::Shared), data, LockMode::Shared);
            foreign(&name(LockMode::Semaphore { limit: 1 }), data, LockMode::Exclusive);
        }
    }

    #[test]
    fn data_that_contradicts_the_name_is_foreign() {
        for alone in [LockMode::Exclusive, LockMode::Upgradeable] {
            let data = json::data(&record(alone, 1));
            foreign(&name(LockMode::Shared), data.as_bytes(), LockMode::Shared);
        }
        let lease = json::data(&record(LockMode::Semaphore { limit: 3 }, 2));
        foreign(&name(LockMode::Shared), lease.as_bytes(), LockMode::Shared);
        // Curator's own name with our data in it: the data is not ours to write, so not ours to read.
        let curator = "_c_7c1e1b2a-5c8f-4f5e-9a53-0d2f6a3c9f11-lock-0000000003";
        foreign(
            curator,
            json::data(&record(LockMode::Exclusive, 1)).as_bytes(),
            LockMode::Exclusive,
        );
    }

    #[test]
    fn an_upgrade_of_what_cannot_be_upgraded_is_foreign() {
        for (mode, done) in [(LockMode::Exclusive, false), (LockMode::Upgradeable, true)] {
            let attempt = Attempt {
                id: AttemptId(5),
                request_id: None,
            };
            let upgrade = Some(Upgrade {
                attempt,
                since_ms: 1,
                done,
            });
            let record = Record {
                upgrade,
                ..record(mode, 1)
            };
            foreign(&name(mode), json::data(&record).as_bytes(), LockMode::Exclusive);
        }
    }

    #[test]
    fn a_contender_that_stands_for_no_call_is_foreign() {
        let mut record = record(LockMode::Exclusive, 1);
        record.released = core::mem::take(&mut record.attempts);
        foreign(
            &name(LockMode::Exclusive),
            json::data(&record).as_bytes(),
            LockMode::Exclusive,
        );
    }

    #[test]
    fn permits_that_could_never_be_granted_are_foreign() {
        for (limit, permits) in [(3, 4), (3, 0), (0, 0), (0, 1)] {
            let mode = LockMode::Semaphore { limit };
            foreign(
                &name(mode),
                json::data(&record(mode, permits)).as_bytes(),
                LockMode::Exclusive,
            );
        }
    }
}
