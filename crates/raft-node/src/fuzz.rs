//! The door for fuzz targets (`tools/fuzz`): names of what decodes bytes that another node has sent or a disk
//! has kept. It is no part of the API, and nothing here does anything beside calling what has these names.

use openraft::raft::AppendEntriesRequest;

pub use crate::codec::{BadBytes, decode, decode_start, encode};
pub use crate::command_batch::CommandBatch;
pub use crate::ids::{ClusterId, DiskId, Member};
pub use crate::peers::PeerRegistry;
pub use crate::peers::wire::{
    FrameReader, Hello, HelloReply, HelloStart, PeerRequest, PeerResponse, Purpose, SnapshotHead,
    SnapshotResume, SnapshotTail, WireAppend, WireAppendResult, WireSnapshotMeta, put_frame,
};

pub use crate::storage::log_entry::{decode_entry, decode_membership, encode_membership};
pub use crate::types::{Entry, Membership, Payload, StoredMembership, log_id};
use crate::types::{SnapshotMeta, TypeConfig};
pub use crate::versions::WIRE_VERSION;
pub use crate::witness::Shown;
pub use raft_log::wal::{MAX_POSITION, record_start};

/// Entries as Raft gets them, and as it would send them on.
pub fn append_through_raft(append: WireAppend) -> WireAppend {
    AppendEntriesRequest::<TypeConfig>::from(append).into()
}

/// What a snapshot covers, as Raft gets it, and as it would send it on.
pub fn snapshot_meta_through_raft(meta: WireSnapshotMeta) -> WireSnapshotMeta {
    (&SnapshotMeta::from(meta)).into()
}
