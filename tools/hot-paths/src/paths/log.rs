//! The encoding of a command into the log and back: bytes, batches, records.

use std::hint::black_box;

use bytes::Bytes;
use lock_node::counted::{
    CommandBatch, Envelope, Origin, encode, read_record as read, write_record as written,
};
use znode_store::{Command, Request};

use super::counted;
use super::material::{SESSION, set};

/// Commands that share an entry when 64 clients write.
const BATCH: u64 = 64;

fn envelope(n: u64) -> Envelope {
    let origin = Origin {
        node: 1,
        boot: 0x0123_4567_89ab_cdef,
    };
    let request = Request {
        session: Some(SESSION),
        ..Request::anonymous(Command::Write(set(n)))
    };
    Envelope::new(origin, 1_000_000 + n, request)
}

pub fn encode_command(operations: u64) {
    let envelopes: Vec<_> = (0..operations).map(envelope).collect();
    let mut bytes = 0;
    counted(&mut || {
        for envelope in &envelopes {
            bytes += black_box(encode(envelope)).len();
        }
    });
    assert!(bytes as u64 > operations * 100);
}

pub fn decode_command(operations: u64) {
    let encoded: Vec<_> = (0..operations).map(|n| encode(&envelope(n))).collect();
    counted(&mut || {
        for bytes in &encoded {
            black_box(Envelope::decode(bytes).expect("an encoded command can be decoded"));
        }
    });
}

fn full_batch() -> CommandBatch {
    CommandBatch {
        time_ms: 1_700_000_000_000,
        envelopes: (0..BATCH).map(|n| encode(&envelope(n)).into()).collect(),
    }
}

pub fn batch(operations: u64) {
    let batch = full_batch();
    let mut commands = 0;
    counted(&mut || {
        for _ in 0..operations {
            let bytes = black_box(&batch).encode();
            let decoded = CommandBatch::decode(bytes).expect("an encoded batch can be decoded");
            commands += black_box(decoded).envelopes.len() as u64;
        }
    });
    assert_eq!(commands, operations * BATCH);
}

pub fn write_record(operations: u64) {
    let commands = full_batch().encode();
    // The writer reuses its buffer from write to write.
    let mut buffer = Vec::with_capacity(64 * 1024);
    counted(&mut || {
        for index in 0..operations {
            buffer.clear();
            written(1, index, commands.clone(), &mut buffer);
            black_box(&buffer);
        }
    });
    assert!(buffer.len() > commands.len());
}

pub fn read_record(operations: u64) {
    let commands = full_batch().encode();
    let mut record = Vec::new();
    written(1, 7, commands.clone(), &mut record);
    let record = Bytes::from(record);
    let mut last = None;
    counted(&mut || {
        for _ in 0..operations {
            last = Some(black_box(read(record.clone())));
        }
    });
    assert_eq!(last, Some(Some(commands)));
}
