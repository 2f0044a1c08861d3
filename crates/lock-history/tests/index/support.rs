//! Helpers that report events to an index without a state machine.

use std::sync::Arc;
use std::time::Duration;

use lock_history::{HistoryLimits, Index, Position};
use tempfile::TempDir;
use znode_store::{ContenderEnd, Hold, LockMode, LockName, SessionId, Zxid};

pub const OWNER: [u8; 16] = [7; 16];

/// Limits with this number of records and a maximum age of a million seconds.
pub fn bounds(records: usize) -> HistoryLimits {
    HistoryLimits {
        records,
        max_age: Duration::from_secs(1_000_000),
        ..HistoryLimits::default()
    }
}

pub fn open(dir: &TempDir, records: usize) -> Index {
    Index::open(&dir.path().join("history"), OWNER, bounds(records)).unwrap()
}

pub fn lock(name: &str) -> LockName {
    LockName::parse(name).unwrap()
}

pub fn at(zxid: u64) -> Position {
    Position {
        zxid,
        time_ms: zxid * 1_000,
    }
}

/// Returns a hold of lock `name` with this token, granted at `token` seconds.
pub fn hold(name: &str, token: u64) -> Arc<Hold> {
    Arc::new(Hold {
        lock: lock(name),
        holder: format!("holder-{token:010}").into(),
        session: SessionId(1),
        session_name: "worker".into(),
        mode: LockMode::Semaphore { limit: 3 },
        permits: 2,
        fencing_token: Zxid(token),
        owner: "owner".into(),
        note: "a note".into(),
        address: "127.0.0.1:1".into(),
        since_ms: Some(token * 1_000),
    })
}

/// Records a hold from `token` to `end`.
pub fn report(index: &mut Index, name: &str, token: u64, end: u64) {
    let hold = hold(name, token);
    index.began(&hold);
    index
        .ended(&hold, at(end), &ContenderEnd::Released, None)
        .unwrap();
    index.advance_to(at(end));
}

/// Returns the tokens of a lock's records, the newest first.
pub fn tokens(index: &mut Index, name: &str) -> Vec<u64> {
    let page = index.page(&lock(name), None, usize::MAX).unwrap();
    page.records
        .iter()
        .map(|record| record.hold.fencing_token.0)
        .collect()
}
