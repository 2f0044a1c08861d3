//! Arbitrary bytes as damage to the files of a node: see `decoder_fuzz::disk::rot`.
#![no_main]

use decoder_fuzz::disk;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    disk::rot::run(bytes);
});
