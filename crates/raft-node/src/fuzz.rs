//! Re-exports for fuzz targets (`tools/fuzz`): the functions that decode bytes from another node or from a
//! disk. Not part of the API; the functions here only call those that have these names.

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

/// Converts an append to openraft's types and back.
pub fn append_through_raft(append: WireAppend) -> WireAppend {
    AppendEntriesRequest::<TypeConfig>::from(append).into()
}

/// Converts a snapshot's coverage to openraft's types and back.
pub fn snapshot_meta_through_raft(meta: WireSnapshotMeta) -> WireSnapshotMeta {
    (&SnapshotMeta::from(meta)).into()
}
