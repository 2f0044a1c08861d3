//! Parts of a snapshot, in the layout in which they are serialized.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::access::access_snapshot::AccessRecord;
use crate::locks::table::KeptState;
use crate::model::ids::{SessionId, Zxid};
use crate::model::limits::Limits;
use crate::model::session::Silence;
use crate::sessions::request_cache::CachedRequests;
use crate::sessions::{Ending, SessionRecord};
use crate::tree::ZnodeRecord;
use crate::tree::index::NodeIndex;

/// The layout of the parts. Counted up whenever an older build could not read them.
pub(crate) const FORMAT: u32 = 7;

/// The oldest layout that is read, and written as long as it says all. Format 7 added [`Part::NullData`],
/// [`Part::Silences`], [`Part::Certificates`], [`Part::Endings`] and [`AccessRecord::WaitsEndWithRights`]. They come by commands of the
/// same release, so a state has them only after all members were known to read them.
pub(crate) const OLDEST_FORMAT: u32 = 6;

/// A piece of a snapshot. They are added to a [`Restorer`](crate::Restorer) in the order in which they were drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotPart(pub(crate) Part);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Always the first.
    Begin {
        format: u32,
        zxid: Zxid,
        time_ms: u64,
        limits: Limits,
    },
    Sessions(Vec<SessionRecord>),
    /// The oldest first.
    EndedSessions(Vec<SessionId>),
    /// Outcomes of requests without a session, the oldest first.
    Requests(CachedRequests),
    Znodes(Vec<ZnodeRecord>),
    /// The states of locks that have one, and how many hold them.
    Locks(Vec<KeptState>),
    /// Always the last: what the restored state must come to.
    End {
        digest: u64,
    },
    /// Access policies: after the first part, and only in a secured state. Declared here, because the encoding counts variants.
    Access(Vec<AccessRecord>),
    /// Znodes of the preceding part whose data is null: their records hold no bytes. From format 7 on.
    NullData(Vec<NodeIndex>),
    /// Recorded silences of sessions; after the sessions, if there are any. From format 7 on.
    Silences(Vec<(SessionId, Silence)>),
    /// Certificates that owners of sessions showed beside their tokens; after the sessions, if there are any. From format 7 on.
    Certificates(Vec<(SessionId, Arc<str>)>),
    /// The sessions that have ended and still have ephemeral znodes: after the sessions and what belongs to them, and only if there are
    /// any. From format 7 on.
    Endings(Vec<(SessionId, Ending)>),
}
