//! The target `command`: any bytes as the commands of a log entry, as every replica takes them from the log.

use bytes::Bytes;
use raft_node::fuzz::{CommandBatch, Envelope, decode, encode};
use znode_store::EntryContext;

use crate::look::look;
use crate::material;
use crate::replicas::{Replicas, restore};

/// Decodes the commands and has two replicas apply them to a state in which there is something to hit. Answers how many
/// commands were applied.
///
/// The batch around the commands has one form only. A command itself has several (numbers can be written longer than
/// they need be, the list of rights that lets everybody in can be spelled out), so what must come back is not the bytes
/// but the value, and from then on the bytes, too.
pub fn run(bytes: &[u8]) -> usize {
    let Ok(batch) = CommandBatch::decode(Bytes::copy_from_slice(bytes)) else {
        return 0;
    };
    assert_eq!(batch.encode(), bytes, "a batch has one form");
    let entry = EntryContext {
        time_ms: batch.time_ms,
        term: material::TERM,
    };
    let base = || restore(material::base_parts());
    let mut replicas = Replicas::new(base(), base(), batch.time_ms);
    let mut applied = 0;
    for bytes in &batch.envelopes {
        // A node ends here: an entry that cannot be read is damage.
        let Ok(envelope) = decode::<Envelope>(bytes) else {
            break;
        };
        check_encoding(&envelope);
        replicas.apply(&entry, &envelope.request);
        applied += 1;
    }
    look(&replicas.finish());
    applied
}

fn check_encoding(envelope: &Envelope) {
    let ours = encode(envelope);
    let again: Envelope = decode(&ours).expect("what was encoded can be decoded");
    assert_eq!(&again, envelope, "an encoded command comes back as another one");
    assert_eq!(encode(&again), ours, "what was encoded once has one form");
}
