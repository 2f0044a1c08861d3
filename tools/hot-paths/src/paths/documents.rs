//! The documents of the HTTP API in a lock's cycle: parsed and checked, and written.

use std::hint::black_box;

use axum::http::StatusCode;
use lock_api::http::bench_support as api;
use znode_store::{Grant, LockMode, Zxid};

use super::counted;
use super::material::lock;

const ACQUIRE: &[u8] =
    br#"{"session":"00000000000004d2","wait_ms":10000,"owner":"worker-17","lock_delay_ms":0}"#;
const RELEASE: &[u8] =
    br#"{"session":"00000000000004d2","holder":"_c_0123456789abcdef0123456789abcdef-lock-0000000042"}"#;

pub fn acquire(operations: u64) {
    let name = lock(7);
    let grant = Grant {
        lock: name.clone(),
        mode: LockMode::Exclusive,
        holder: "_c_0123456789abcdef0123456789abcdef-lock-0000000042".into(),
        fencing_token: Zxid(0x1_0000_0002),
        holds: 1,
        permits: 1,
    };
    counted(&mut || {
        for _ in 0..operations {
            let wish = api::parse_acquire(name.clone(), black_box(ACQUIRE), "127.0.0.1:50000".into());
            black_box(wish.expect("the document is valid"));
            let answer = black_box(api::serialize_grant(black_box(&grant)));
            assert_eq!(answer.status(), StatusCode::OK);
        }
    });
}

pub fn release(operations: u64) {
    counted(&mut || {
        for _ in 0..operations {
            let asked = api::parse_release(black_box(RELEASE));
            black_box(asked.expect("the document is valid"));
            let answer = black_box(api::serialize_release(black_box(0)));
            assert_eq!(answer.status(), StatusCode::OK);
        }
    });
}
