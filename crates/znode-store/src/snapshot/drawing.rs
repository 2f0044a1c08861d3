//! Drawing a snapshot part by part while the state moves on.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::access::table::Access;
use crate::locks::table::KeptState;
use crate::model::ids::{SessionId, Zxid};
use crate::model::limits::Limits;
use crate::model::session::Silence;
use crate::sessions::request_cache::{Kept, Remembered};
use crate::sessions::{Ending, SessionRecord};
use crate::snapshot::{FORMAT, OLDEST_FORMAT, Part, SnapshotPart};
use crate::store::Store;
use crate::tree::index::NodeIndex;
use crate::tree::{Acls, Node, Tree, ZnodeRecord};

/// A part ends when its data reaches this, however few znodes it holds: the largest ones have a mebibyte
/// each, and a part is one allocation and one frame for whoever carries it.
const PART_DATA_BYTES: usize = 1024 * 1024;

/// A snapshot that is being drawn.
pub(crate) struct Drawing {
    /// Nodes created later are not in it.
    zxid: Zxid,
    time_ms: u64,
    limits: Limits,
    digest: u64,
    format: u32,
    access: Arc<Access>,
    stage: Stage,
    /// As they were at the beginning. Their memories are shared with the live sessions until those change.
    sessions: VecDeque<(SessionRecord, Arc<Remembered>)>,
    silences: Vec<(SessionId, Silence)>,
    certificates: VecDeque<(SessionId, Arc<str>)>,
    endings: Vec<(SessionId, Ending)>,
    ended: Vec<SessionId>,
    sessionless: Arc<Remembered>,
    locks: Vec<KeptState>,
    /// The place in the slab that is visited next.
    cursor: NodeIndex,
    /// Of the znodes of the last part, those whose data is null, until a part tells so.
    nulls: Vec<NodeIndex>,
    /// The places that existed at the beginning.
    slots: u32,
    /// Nodes at or behind the cursor that have changed or gone, as they were at the beginning.
    /// A tree and not a table, which would stop everybody while it grows.
    before: BTreeMap<NodeIndex, Box<ZnodeRecord>>,
}

/// What the next part is about.
enum Stage {
    Begin,
    /// So many records were drawn.
    Access(usize),
    Sessions,
    Silences,
    Certificates,
    Endings,
    EndedSessions,
    /// So many records were drawn.
    Requests(usize),
    Znodes,
    NullData,
    Locks,
    End,
}

impl Drawing {
    /// Gets to know a node that is about to change.
    pub(crate) fn before_change(&mut self, index: NodeIndex, node: &Node, acls: &Acls) {
        if node.czxid <= self.zxid && index >= self.cursor {
            self.before
                .entry(index)
                .or_insert_with(|| Box::new(ZnodeRecord::of(index, node, acls)));
        }
    }

    fn after_silences(&self) -> Stage {
        match (self.certificates.is_empty(), self.endings.is_empty()) {
            (false, _) => Stage::Certificates,
            (true, false) => Stage::Endings,
            (true, true) => Stage::EndedSessions,
        }
    }

    /// The node that lay at `index` at the beginning.
    fn visit(&mut self, index: NodeIndex, tree: &Tree) -> Option<ZnodeRecord> {
        let now = tree.slab().get(index);
        match (self.before.remove(&index), now) {
            (Some(record), _) => Some(*record),
            // Never changed, for else it would have been put aside; but perhaps it is newer.
            (None, Some(node)) if node.czxid <= self.zxid => Some(ZnodeRecord::of(index, node, tree.acls())),
            (None, _) => None,
        }
    }
}

impl Store {
    /// Begins a snapshot of the state as it is now; one that is being drawn is abandoned. Costs a look at
    /// each session.
    pub fn begin_snapshot(&mut self) {
        let (silences, endings) = (self.sessions.silences(), self.sessions.endings());
        let is_former = self.tree.nulls() == 0
            && silences.is_empty()
            && endings.is_empty()
            && !self.access.waits_end_with_rights();
        self.tree.drawing = Some(Drawing {
            zxid: self.zxid,
            time_ms: self.time_ms,
            limits: self.limits,
            digest: self.digest(),
            format: match is_former {
                true => OLDEST_FORMAT,
                false => FORMAT,
            },
            access: self.access.clone(),
            stage: Stage::Begin,
            sessions: self.sessions.records().into(),
            silences,
            certificates: self.sessions.certificates(),
            endings,
            ended: self.sessions.ended().collect(),
            sessionless: self.remembered.clone(),
            locks: self.locks.kept_states(self.sessions.are_ending()),
            cursor: NodeIndex::ROOT,
            nulls: Vec::new(),
            slots: self.tree.slab().slots(),
            before: BTreeMap::new(),
        });
    }

    /// Draws the next part of the snapshot that was begun, of at most about `znodes` znodes (or sessions, or
    /// remembered requests). `None`: it is complete, or none was begun.
    pub fn next_snapshot_part(&mut self, znodes: usize) -> Option<SnapshotPart> {
        let mut drawing = self.tree.drawing.take()?;
        let part = self.draw(&mut drawing, znodes.max(1));
        if !matches!(part, Part::End { .. }) {
            self.tree.drawing = Some(drawing);
        }
        Some(SnapshotPart(part))
    }

    /// Gives up the snapshot that is being drawn, if there is one.
    pub fn abandon_snapshot(&mut self) {
        self.tree.drawing = None;
    }

    fn draw(&self, drawing: &mut Drawing, budget: usize) -> Part {
        match drawing.stage {
            Stage::Begin => {
                drawing.stage = match drawing.access.is_secured() {
                    true => Stage::Access(0),
                    false => Stage::Sessions,
                };
                Part::Begin {
                    format: drawing.format,
                    zxid: drawing.zxid,
                    time_ms: drawing.time_ms,
                    limits: drawing.limits,
                }
            }
            Stage::Access(drawn) => {
                let mut records = drawing.access.records().skip(drawn);
                let some: Vec<_> = records.by_ref().take(budget).collect();
                let is_all = records.next().is_none();
                drawing.stage = match is_all {
                    true => Stage::Sessions,
                    false => Stage::Access(drawn + some.len()),
                };
                Part::Access(some)
            }
            Stage::Sessions => {
                let mut sessions = Vec::new();
                let mut cost = 0;
                while cost < budget
                    && let Some((mut record, remembered)) = drawing.sessions.pop_front()
                {
                    record.requests = remembered.kept();
                    cost += 1 + record.requests.records.len();
                    sessions.push(record);
                }
                if drawing.sessions.is_empty() {
                    drawing.stage = match drawing.silences.is_empty() {
                        true => drawing.after_silences(),
                        false => Stage::Silences,
                    };
                }
                Part::Sessions(sessions)
            }
            Stage::Silences => {
                drawing.stage = drawing.after_silences();
                Part::Silences(core::mem::take(&mut drawing.silences))
            }
            Stage::Certificates => {
                let some = budget.min(drawing.certificates.len());
                let some = drawing.certificates.drain(..some).collect();
                drawing.stage = drawing.after_silences();
                Part::Certificates(some)
            }
            Stage::Endings => {
                drawing.stage = Stage::EndedSessions;
                Part::Endings(core::mem::take(&mut drawing.endings))
            }
            Stage::EndedSessions => {
                drawing.stage = Stage::Requests(0);
                Part::EndedSessions(core::mem::take(&mut drawing.ended))
            }
            Stage::Requests(drawn) => {
                let next = drawing.sessionless.next();
                let some = drawing.sessionless.answered().skip(drawn).take(budget);
                let records: Vec<_> = some.map(|(id, record)| (id.clone(), record.clone())).collect();
                drawing.stage = match records.is_empty() {
                    false => Stage::Requests(drawn + records.len()),
                    true => {
                        // From here on the memory may change without being copied first.
                        drawing.sessionless = Arc::new(Remembered::sessionless());
                        Stage::Znodes
                    }
                };
                Part::Requests(Kept { next, records })
            }
            Stage::Znodes => {
                let mut znodes = Vec::new();
                let (mut visited, mut bytes) = (0, 0);
                while drawing.cursor.0 < drawing.slots && visited < budget && bytes < PART_DATA_BYTES {
                    let index = drawing.cursor;
                    drawing.cursor.0 += 1;
                    visited += 1;
                    if let Some(record) = drawing.visit(index, &self.tree) {
                        bytes += record.data.len();
                        if record.data.is_null() {
                            drawing.nulls.push(index);
                        }
                        znodes.push(record);
                    }
                }
                drawing.stage = match (drawing.nulls.is_empty(), drawing.cursor.0 == drawing.slots) {
                    (false, _) => Stage::NullData,
                    (true, false) => Stage::Znodes,
                    (true, true) => Stage::Locks,
                };
                Part::Znodes(znodes)
            }
            Stage::NullData => {
                drawing.stage = match drawing.cursor.0 == drawing.slots {
                    false => Stage::Znodes,
                    true => Stage::Locks,
                };
                Part::NullData(core::mem::take(&mut drawing.nulls))
            }
            Stage::Locks => {
                drawing.stage = Stage::End;
                Part::Locks(core::mem::take(&mut drawing.locks))
            }
            Stage::End => Part::End {
                digest: drawing.digest,
            },
        }
    }
}
