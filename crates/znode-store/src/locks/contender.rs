//! Contenders of a lock as its queue has them. Only the lock protocol writes records: see [`super::name::is_reserved`].

use alloc::sync::Arc;

use crate::locks::name::{ContenderName, Kind, recognise};
use crate::model::contender::{Written, json};
use crate::model::event::Hold;
use crate::model::ids::{SessionId, Zxid};
use crate::model::lock::{HoldBounds, LockMode, LockRequest};
use crate::model::path::{LockName, ZPath};

/// Position of a contender in the order of arrival: its creation, its sequence number, its name.
///
/// For sequential znodes that is the order of their numbers. The creation comes first because clients may choose a name that ends in ten digits.
/// Such a name must not come before the holders of a lock, nor make fencing tokens decrease.
pub(crate) type Position<'a> = (Zxid, u64, &'a str);

/// Contender in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    /// Position of its creation. Contenders of one transaction share it.
    pub czxid: Zxid,
    /// Sequence number.
    pub number: u64,
    /// Path of its znode.
    pub path: ZPath,
    /// Offset of its name in the path.
    name_at: usize,
    /// Session.
    pub session: SessionId,
    /// Request, from its record or its name.
    pub request: LockRequest,
    /// Record, which its znode shares. `None` for contenders of other clients, whose data is their own.
    pub record: Option<Arc<Written>>,
    /// Hold, as the event of its beginning reported it. `None` for waiters, for contenders of other clients, and after a restore.
    pub hold: Option<Arc<Hold>>,
}

impl Contender {
    /// Returns a contender of the lock protocol.
    pub fn new(path: ZPath, number: u64, session: SessionId, czxid: Zxid, record: Arc<Written>) -> Self {
        Self {
            czxid,
            number,
            name_at: path.as_str().len() - path.name().len(),
            path,
            session,
            request: record.request,
            record: Some(record),
            hold: None,
        }
    }

    /// Returns the contender that an ephemeral znode below a lock stands for. Returns `None` if its name is not
    /// that of a contender. If its data is no record, it belongs to another client, and the name alone decides.
    pub fn read(path: &ZPath, data: &[u8], session: SessionId, czxid: Zxid) -> Option<Self> {
        let ContenderName { number, kind, ours } = recognise(path.name())?;
        let record = match ours {
            true => json::read(data).filter(|record| kind.fits(record.request.mode)),
            // Lockgate did not write this data, so it does not read it.
            false => None,
        };
        // A lease with an unknown number of permits is safe only as the only holder.
        let mode = match kind {
            Kind::Shared => LockMode::Shared,
            Kind::Exclusive | Kind::Lease => LockMode::Exclusive,
        };
        let by_name = LockRequest { mode, permits: 1 };
        Some(Self {
            czxid,
            number,
            name_at: path.as_str().len() - path.name().len(),
            path: path.clone(),
            session,
            request: record.as_ref().map_or(by_name, |record| record.request),
            record: record.map(Written::new),
            hold: None,
        })
    }

    /// Returns its position in the order of arrival.
    pub fn position(&self) -> Position<'_> {
        (self.czxid, self.number, self.name())
    }

    /// Returns its name, which clients call the `holder`.
    pub fn name(&self) -> &str {
        &self.path.as_str()[self.name_at..]
    }

    /// Returns the fencing token of its grant: the one in its record, or the position of its creation.
    pub fn token(&self) -> Zxid {
        let recorded = self.record.as_ref().and_then(|record| record.token);
        recorded.unwrap_or(self.czxid)
    }

    /// Returns its scope within the session. `None` if it has no distinct owner, as contenders of other clients.
    pub fn owner(&self) -> Option<&Arc<str>> {
        self.record.as_ref()?.distinct_owner()
    }

    /// Returns the owner whose calls join it, if any.
    pub fn joined_by(&self) -> Option<&Arc<str>> {
        let record = self.record.as_ref()?;
        record.reentrant.then_some(&record.owner)
    }

    /// Returns its scope in deadlock detection. `None` if it has no distinct owner.
    pub fn scope(&self) -> Option<(SessionId, Arc<str>)> {
        Some((self.session, self.owner()?.clone()))
    }

    /// Returns whether it holds the lock and waits to be the only holder.
    pub fn is_upgrading(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.is_upgrading())
    }

    /// Returns whether it has an unanswered release request.
    pub fn is_asked_to_release(&self) -> bool {
        let revoke = self.record.as_ref().and_then(|record| record.revoke.as_ref());
        revoke.is_some_and(|revoke| revoke.answer.is_none())
    }

    /// Returns the number of entries of the owner (or, in the queue, of calls). A foreign contender stands for one call.
    pub fn holds(&self) -> u32 {
        self.record.as_ref().map_or(1, |record| record.holds())
    }

    /// Returns the bounds of its hold in time.
    pub fn bounds(&self) -> HoldBounds {
        self.record
            .as_ref()
            .map(|record| record.bounds)
            .unwrap_or_default()
    }

    /// Returns its request, as it conflicts with those of others.
    pub fn effective_request(&self) -> LockRequest {
        match self.is_upgrading() {
            true => LockRequest {
                mode: LockMode::Exclusive,
                ..self.request
            },
            false => self.request,
        }
    }

    /// Replaces its record.
    pub fn rewrite(&mut self, record: Arc<Written>) {
        self.request = record.request;
        self.record = Some(record);
        self.hold = None;
    }

    /// Describes its hold. Shares the texts with the record.
    pub fn describe_hold(&self, lock: &LockName, session_name: Arc<str>, since_ms: Option<u64>) -> Arc<Hold> {
        let (owner, note, address) = match &self.record {
            Some(record) => (record.owner.clone(), record.note.clone(), record.address.clone()),
            None => Default::default(),
        };
        Arc::new(Hold {
            lock: lock.clone(),
            holder: self.name().into(),
            session: self.session,
            session_name,
            mode: self.request.mode,
            permits: self.request.permits,
            fencing_token: self.token(),
            owner,
            note,
            address,
            since_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use super::*;
    use crate::locks::name::make;
    use crate::model::contender::{Attempt, MAX_RELEASED, Record, Upgrade};
    use crate::model::ids::RequestId;
    use crate::model::lock::{AttemptId, HoldBounds, Revocation};

    fn record(mode: LockMode, permits: u32) -> Record {
        Record {
            request: LockRequest { mode, permits },
            owner: "thread \"1\"".into(),
            reentrant: true,
            note: "nightly build\n".into(),
            address: "127.0.0.1:4711".into(),
            since_ms: 1_700_000_000_000,
            granted_ms: None,
            calls: vec![
                Attempt {
                    id: AttemptId(u64::MAX),
                    request_id: None,
                },
                Attempt {
                    id: AttemptId(1),
                    request_id: Some(RequestId::parse("r-1").unwrap()),
                },
            ],
            released: 0,
            lock_delay_ms: 0,
            token: None,
            upgrade: None,
            revoke: None,
            bounds: HoldBounds::default(),
        }
    }

    fn name(mode: LockMode) -> alloc::string::String {
        let lock = LockName::parse("a").unwrap();
        let path = make(&lock, 5, mode, Default::default(), 7);
        path.unwrap().name().into()
    }

    fn read(name: &str, data: &[u8]) -> Contender {
        let path = LockName::parse("a").unwrap().znode().join(name).unwrap();
        let contender = Contender::read(&path, data, SessionId(1), Zxid(1)).unwrap();
        assert_eq!(contender.name(), name);
        contender
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
            let mut record = record(mode, permits);
            record.calls.insert(0, call(2));
            let record = Record {
                granted_ms: Some(3),
                released: 1,
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
                bounds: HoldBounds {
                    min_ms: 60_000,
                    max_ms: u32::MAX,
                },
                ..record
            };
            let contender = read(&name(mode), json::data(&record).as_bytes());
            assert_eq!((contender.number, contender.request), (7, record.request));
            assert_eq!(contender.record, Some(Written::new(record)));
            assert_eq!(contender.holds(), 2);
        }
    }

    fn call(id: u64) -> Attempt {
        Attempt {
            id: AttemptId(id),
            request_id: None,
        }
    }

    #[test]
    fn withdrawal_of_a_released_call_ends_the_oldest_other_hold() {
        let mut record = record(LockMode::Exclusive, 1);
        record.calls = vec![call(1), call(2), call(3)];
        record.release_one();
        assert_eq!((record.holds(), record.knows(AttemptId(1))), (2, true));
        record.remove_call(AttemptId(1));
        assert_eq!((record.holds(), record.knows(AttemptId(1))), (1, false));
        assert_eq!(
            (record.released_calls(), record.attempts()),
            (&[call(2)][..], &[call(3)][..])
        );
    }

    #[test]
    fn withdrawal_of_a_holding_call_ends_its_own_hold() {
        let mut record = record(LockMode::Exclusive, 1);
        record.calls = vec![call(1), call(2), call(3)];
        record.release_one();
        record.remove_call(AttemptId(3));
        assert_eq!(
            (record.released_calls(), record.attempts()),
            (&[call(1)][..], &[call(2)][..])
        );
    }

    #[test]
    fn released_calls_are_known_up_to_a_bound() {
        let mut record = record(LockMode::Exclusive, 1);
        let last = MAX_RELEASED as u64 + 2;
        record.calls = (1..=last).map(call).collect();
        for _ in 1..last {
            record.release_one();
        }
        assert_eq!(record.attempts(), [call(last)]);
        assert_eq!(record.released_calls().len(), MAX_RELEASED);
        assert_eq!(
            (record.knows(AttemptId(1)), record.knows(AttemptId(2))),
            (false, true)
        );
    }

    #[test]
    fn record_is_written_as_readable_json() {
        assert_eq!(
            format!(
                "{:?}",
                json::data(&Record {
                    calls: vec![],
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
        let contender = read(name, data);
        assert_eq!(contender.record, None);
        assert_eq!(contender.request, LockRequest { mode, permits: 1 });
        assert_eq!(contender.holds(), 1);
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
    fn upgrade_of_another_mode_is_foreign() {
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
    fn contender_without_a_request_is_foreign() {
        let mut record = record(LockMode::Exclusive, 1);
        record.released = record.calls.len();
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
