//! Builder of a snapshot, part by part, while commands change the state.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::access::table::Access;
use crate::locks::table::{KeptState, Locks};
use crate::model::ids::{SessionId, Zxid};
use crate::model::limits::Limits;
use crate::model::namespace::{NamespaceName, Quotas};
use crate::model::session::Silence;
use crate::sessions::request_cache::{CachedRequests, RequestCache};
use crate::sessions::{Ending, Leases, SessionRecord, Sessions};
use crate::snapshot::part::{
    FORMAT, FORMAT_WITHOUT_LEASES, FORMAT_WITHOUT_QUOTAS, OLDEST_FORMAT, Part, SnapshotPart,
};
use crate::stable_hash;
use crate::tree::index::NodeIndex;
use crate::tree::{Tree, ZnodeRecord};

/// Size of data at which a part ends, however few znodes it contains. The largest znodes have a mebibyte each, and a part is one allocation and one
/// frame for its transport.
const PART_DATA_BYTES: usize = 1024 * 1024;

/// Facts of the whole state at the position of a snapshot.
pub(crate) struct Header {
    /// The position.
    pub(crate) zxid: Zxid,
    /// The time of its command.
    pub(crate) time_ms: u64,
    /// The limits in force.
    pub(crate) limits: Limits,
    /// Parts of the digest that the restored state must have. That of the tree is known only at the end.
    pub(crate) digest: StateDigest,
}

/// Parts of a state's digest.
pub(crate) struct StateDigest(pub(crate) [u64; 8]);

impl StateDigest {
    /// Index of the tree's part.
    const TREE: usize = 3;

    /// Returns the digest of the state.
    pub(crate) fn value(&self) -> u64 {
        stable_hash::of_words(self.0)
    }

    /// Returns the digest of a state whose tree has this digest.
    pub(crate) fn with_tree(&self, tree: u64) -> u64 {
        let mut parts = self.0;
        parts[Self::TREE] = tree;
        stable_hash::of_words(parts)
    }
}

/// Snapshot in progress, which is taken part by part while commands change the state.
pub(crate) struct SnapshotBuilder {
    header: Header,
    format: u32,
    access: Arc<Access>,
    stage: Stage,
    /// Sessions at the beginning of the snapshot. Their request caches are shared with the live sessions until these change.
    sessions: VecDeque<(SessionRecord, Arc<RequestCache>)>,
    silences: Vec<(SessionId, Silence)>,
    certificates: VecDeque<(SessionId, Arc<str>)>,
    endings: Vec<(SessionId, Ending)>,
    ended: Vec<SessionId>,
    leases: Leases,
    /// Quotas of namespaces, if one was ever set.
    quotas: Option<Vec<(NamespaceName, Quotas)>>,
    sessionless: Arc<RequestCache>,
    locks: Vec<KeptState>,
    /// Znodes of the last part whose data is null, until a part records that.
    nulls: Vec<NodeIndex>,
}

/// Content of the next part.
enum Stage {
    Begin,
    /// Number of records in earlier parts.
    Access(usize),
    Sessions,
    Silences,
    Certificates,
    Endings,
    EndedSessions,
    Leases,
    Quotas,
    /// Number of records in earlier parts.
    Requests(usize),
    Znodes,
    NullData,
    Locks,
    End,
    Complete,
}

impl SnapshotBuilder {
    /// Begins a snapshot of the current state. The tree is captured from here on.
    pub(crate) fn begin(
        header: Header,
        tree: &mut Tree,
        sessions: &Sessions,
        locks: &Locks,
        access: &Arc<Access>,
    ) -> Self {
        let (silences, endings) = (sessions.silences(), sessions.endings());
        let is_former =
            tree.nulls() == 0 && silences.is_empty() && endings.is_empty() && !access.waits_end_with_rights();
        let leases = sessions.leases();
        let has_leases = !leases.is_empty() || locks.has_bounded() || sessions.sessionless().knows_leases();
        let quotas = tree.namespaces().records();
        tree.begin_capture(header.zxid);
        Self {
            header,
            format: match (has_leases, is_former) {
                _ if quotas.is_some() => FORMAT,
                (true, _) => FORMAT_WITHOUT_QUOTAS,
                (false, false) => FORMAT_WITHOUT_LEASES,
                (false, true) => OLDEST_FORMAT,
            },
            quotas,
            leases,
            access: access.clone(),
            stage: Stage::Begin,
            sessions: sessions.records().into(),
            silences,
            certificates: sessions.certificates(),
            endings,
            ended: sessions.ended().collect(),
            sessionless: sessions.sessionless().clone(),
            locks: locks.kept_states(),
            nulls: Vec::new(),
        }
    }

    /// Returns the next part, of at most about `budget` znodes, sessions or requests.
    pub(crate) fn next_part(&mut self, tree: &mut Tree, budget: usize) -> SnapshotPart {
        SnapshotPart(self.draw(tree, budget.max(1)))
    }

    /// Returns whether the last part was returned.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete)
    }

    fn after_silences(&self) -> Stage {
        match (self.certificates.is_empty(), self.endings.is_empty()) {
            (false, _) => Stage::Certificates,
            (true, false) => Stage::Endings,
            (true, true) => Stage::EndedSessions,
        }
    }

    fn after_leases(&self) -> Stage {
        match &self.quotas {
            None => Stage::Requests(0),
            Some(_) => Stage::Quotas,
        }
    }

    fn draw(&mut self, tree: &mut Tree, budget: usize) -> Part {
        match self.stage {
            Stage::Begin => {
                self.stage = match self.access.is_secured() {
                    true => Stage::Access(0),
                    false => Stage::Sessions,
                };
                Part::Begin {
                    format: self.format,
                    zxid: self.header.zxid,
                    time_ms: self.header.time_ms,
                    limits: self.header.limits,
                }
            }
            Stage::Access(drawn) => {
                let mut records = self.access.records().skip(drawn);
                let some: Vec<_> = records.by_ref().take(budget).collect();
                let is_all = records.next().is_none();
                self.stage = match is_all {
                    true => Stage::Sessions,
                    false => Stage::Access(drawn + some.len()),
                };
                Part::Access(some)
            }
            Stage::Sessions => {
                let sessions = self.draw_sessions(budget);
                if self.sessions.is_empty() {
                    self.stage = match self.silences.is_empty() {
                        true => self.after_silences(),
                        false => Stage::Silences,
                    };
                }
                Part::Sessions(sessions)
            }
            Stage::Silences => {
                self.stage = self.after_silences();
                Part::Silences(core::mem::take(&mut self.silences))
            }
            Stage::Certificates => {
                let some = budget.min(self.certificates.len());
                let some = self.certificates.drain(..some).collect();
                self.stage = self.after_silences();
                Part::Certificates(some)
            }
            Stage::Endings => {
                self.stage = Stage::EndedSessions;
                Part::Endings(core::mem::take(&mut self.endings))
            }
            Stage::EndedSessions => {
                self.stage = match self.leases.is_empty() {
                    true => self.after_leases(),
                    false => Stage::Leases,
                };
                Part::EndedSessions(core::mem::take(&mut self.ended))
            }
            Stage::Leases => {
                self.stage = self.after_leases();
                Part::Leases(core::mem::take(&mut self.leases))
            }
            Stage::Quotas => {
                self.stage = Stage::Requests(0);
                Part::Quotas(self.quotas.take().unwrap_or_default())
            }
            Stage::Requests(drawn) => {
                let next = self.sessionless.next();
                let some = self.sessionless.answered().skip(drawn).take(budget);
                let records: Vec<_> = some.map(|(id, record)| (id.clone(), record.clone())).collect();
                self.stage = match records.is_empty() {
                    false => Stage::Requests(drawn + records.len()),
                    true => {
                        // From here on the cache may change without being copied first.
                        self.sessionless = Arc::new(RequestCache::sessionless());
                        Stage::Znodes
                    }
                };
                Part::Requests(CachedRequests { next, records })
            }
            Stage::Znodes => {
                let znodes = self.draw_znodes(tree, budget);
                self.stage = match (self.nulls.is_empty(), tree.is_captured()) {
                    (false, _) => Stage::NullData,
                    (true, false) => Stage::Znodes,
                    (true, true) => Stage::Locks,
                };
                Part::Znodes(znodes)
            }
            Stage::NullData => {
                self.stage = match tree.is_captured() {
                    false => Stage::Znodes,
                    true => Stage::Locks,
                };
                Part::NullData(core::mem::take(&mut self.nulls))
            }
            Stage::Locks => {
                self.stage = Stage::End;
                Part::Locks(core::mem::take(&mut self.locks))
            }
            Stage::End => {
                self.stage = Stage::Complete;
                Part::End {
                    digest: self.header.digest.with_tree(tree.captured_digest()),
                }
            }
            Stage::Complete => unreachable!("no part follows the last one"),
        }
    }

    fn draw_sessions(&mut self, budget: usize) -> Vec<SessionRecord> {
        let mut sessions = Vec::new();
        let mut cost = 0;
        while cost < budget
            && let Some((mut record, remembered)) = self.sessions.pop_front()
        {
            record.requests = remembered.kept();
            cost += 1 + record.requests.records.len();
            sessions.push(record);
        }
        sessions
    }

    fn draw_znodes(&mut self, tree: &mut Tree, budget: usize) -> Vec<ZnodeRecord> {
        let mut znodes = Vec::new();
        let (mut visited, mut bytes) = (0, 0);
        while !tree.is_captured() && visited < budget && bytes < PART_DATA_BYTES {
            visited += 1;
            if let Some(record) = tree.capture_next() {
                bytes += record.data.len();
                if record.data.is_null() {
                    self.nulls.push(record.index);
                }
                znodes.push(record);
            }
        }
        znodes
    }
}
