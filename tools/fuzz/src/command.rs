//! The target `command`: arbitrary bytes as the commands of a log entry, which every replica reads from its
//! log.

use bytes::Bytes;
use lock_node::fuzz::{CommandBatch, Envelope, decode, encode};
use znode_store::EntryContext;

use crate::material;
use crate::read_all::read_all;
use crate::replicas::{Replicas, restore};

/// Decodes the commands and applies them to two replicas of a state with sessions, locks and znodes. Returns
/// the number of commands applied.
///
/// The batch around the commands has a single encoding. A command itself has several: a number may be longer
/// than necessary, and the open access control list may be written out. So decoding the encoded command must
/// yield the same value; its bytes must be equal only from the second encoding on.
pub fn run(bytes: &[u8]) -> usize {
    let Ok(batch) = CommandBatch::decode(Bytes::copy_from_slice(bytes)) else {
        return 0;
    };
    assert_eq!(batch.encode(), bytes, "a batch has a single encoding");
    let entry = EntryContext {
        time_ms: batch.time_ms,
        term: material::TERM,
    };
    let base = || restore(material::base_parts());
    let mut replicas = Replicas::new(base(), base(), batch.time_ms);
    let mut applied = 0;
    for bytes in &batch.envelopes {
        // A node stops here: an unreadable entry is damage.
        let Ok(envelope) = decode::<Envelope>(bytes) else {
            break;
        };
        check_encoding(&envelope);
        replicas.apply(&entry, &envelope.request);
        applied += 1;
    }
    read_all(&replicas.finish());
    applied
}

fn check_encoding(envelope: &Envelope) {
    let ours = encode(envelope);
    let again: Envelope = decode(&ours).expect("an encoded command can be decoded");
    assert_eq!(&again, envelope, "encoding and decoding changed a command");
    assert_eq!(encode(&again), ours, "encoding twice yields different bytes");
}
