//! Re-exports for instruction counts (`tools/hot-paths`): the functions that a command passes on its way into
//! the log and out of it. Not part of the API; the functions here only call those that have these names.

use bytes::Bytes;

pub use crate::codec::{decode, encode};
pub use crate::command_batch::CommandBatch;
pub use crate::state_machine::PORTION;
use crate::storage::log_entry::{decode_entry, encode_entry};
use crate::types::{Entry, Payload, Proposal, log_id};
use raft_log::wal::{WalEntry, entry_of_record, push_entry};

/// Appends an entry with these commands to `buffer`, in the log's encoding.
pub fn write_record(term: u64, index: u64, commands: Bytes, buffer: &mut Vec<u8>) {
    let entry = encode_entry(&Entry {
        log_id: log_id(term, index),
        payload: Payload::Normal(Proposal { term, commands }),
    });
    push_entry(buffer, &entry).expect("it fits into a segment");
}

/// Returns the commands of the record in `bytes`, if it is a valid record.
pub fn read_record(bytes: Bytes) -> Option<Bytes> {
    let entry: WalEntry = entry_of_record(bytes)?;
    match decode_entry(entry).ok()?.payload {
        Payload::Normal(proposal) => Some(proposal.commands),
        Payload::Blank | Payload::Membership(_) => None,
    }
}
