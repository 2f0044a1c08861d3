//! Arbitrary bytes as requests of a Redis client: see `decoder_fuzz::redis`.
#![no_main]

use decoder_fuzz::redis;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    redis::run(bytes);
});
