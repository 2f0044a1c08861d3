//! Parts of a snapshot, in the layout in which they are serialized.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::access::access_snapshot::AccessRecord;
use crate::locks::table::KeptState;
use crate::model::ids::{SessionId, Zxid};
use crate::model::limits::Limits;
use crate::model::namespace::{NamespaceName, Quotas};
use crate::model::session::Silence;
use crate::sessions::request_cache::CachedRequests;
use crate::sessions::{Ending, Leases, SessionRecord};
use crate::tree::ZnodeRecord;
use crate::tree::index::NodeIndex;

/// Version of the layout of the parts. It is raised whenever an older build could not read them.
pub(crate) const FORMAT: u32 = 9;

/// Layout without quotas of namespaces: [`Part::Quotas`], and recorded refusals by quotas.
pub(crate) const FORMAT_WITHOUT_QUOTAS: u32 = 8;

/// Layout without leases and bounds of holds: [`Part::Leases`], the bounds in contenders' records, and the replies to leases.
pub(crate) const FORMAT_WITHOUT_LEASES: u32 = 7;

/// Oldest layout that is read. Format 7 added [`Part::NullData`], [`Part::Silences`], [`Part::Certificates`], [`Part::Endings`] and
/// [`AccessRecord::WaitsEndWithRights`].
///
/// A snapshot is written in the oldest layout that can represent the state. The additions of a layout result from commands of the same
/// release, so a state has them only after all members were known to read them.
pub(crate) const OLDEST_FORMAT: u32 = 6;

/// Part of a snapshot. The parts are added to a [`Restorer`](crate::Restorer) in the order in which they were taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotPart(pub(crate) Part);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Part {
    /// First part, always.
    Begin {
        format: u32,
        zxid: Zxid,
        time_ms: u64,
        limits: Limits,
    },
    Sessions(Vec<SessionRecord>),
    /// Ended sessions, the oldest first.
    EndedSessions(Vec<SessionId>),
    /// Outcomes of requests without a session, the oldest first.
    Requests(CachedRequests),
    Znodes(Vec<ZnodeRecord>),
    /// States of the locks that have one, with the numbers of their holders.
    Locks(Vec<KeptState>),
    /// Last part, always, with the digest that the restored state must have.
    End {
        digest: u64,
    },
    /// Access policies: after the first part, and only in a secured state. Declared here, because the encoding counts variants.
    Access(Vec<AccessRecord>),
    /// Znodes of the preceding part whose data is null. Their records contain no bytes. From format 7 on.
    NullData(Vec<NodeIndex>),
    /// Recorded silences of sessions; after the sessions, if there are any. From format 7 on.
    Silences(Vec<(SessionId, Silence)>),
    /// Certificates that owners of sessions showed beside their tokens; after the sessions, if there are any. From format 7 on.
    Certificates(Vec<(SessionId, Arc<str>)>),
    /// Sessions that have ended and still have ephemeral znodes. After the sessions and their other parts, and only if there are any. From format 7
    /// on.
    Endings(Vec<(SessionId, Ending)>),
    /// The sessions that are leases: after the ended sessions, and only if there are any. From format 8 on.
    Leases(Leases),
    /// The quotas of namespaces, by name: after the leases, and only if one was ever set. From format 9 on.
    Quotas(Vec<(NamespaceName, Quotas)>),
}
