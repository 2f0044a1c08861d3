//! The door for those who count instructions (`tools/hot-paths`): names of what a command goes through on its way into the
//! log and out of it. It is no part of the API, and nothing here does anything beside calling what has these names.

use bytes::Bytes;

pub use crate::codec::{decode, encode};
pub use crate::command_batch::CommandBatch;
pub use crate::state_machine::PORTION;
use crate::storage::log_entry::{decode_entry, encode_entry};
use crate::types::{Entry, Payload, Proposal, log_id};
use raft_log::wal::{WalEntry, entry_of_record, push_entry};

/// An entry with these commands, behind what is in `buffer`, as the log writes it.
pub fn write_record(term: u64, index: u64, commands: Bytes, buffer: &mut Vec<u8>) {
    let entry = encode_entry(&Entry {
        log_id: log_id(term, index),
        payload: Payload::Normal(Proposal { term, commands }),
    });
    push_entry(buffer, &entry).expect("it fits into a segment");
}

/// The commands of the record that `bytes` are, if that is what they are.
pub fn read_record(bytes: Bytes) -> Option<Bytes> {
    let entry: WalEntry = entry_of_record(bytes)?;
    match decode_entry(entry).ok()?.payload {
        Payload::Normal(proposal) => Some(proposal.commands),
        Payload::Blank | Payload::Membership(_) => None,
    }
}
