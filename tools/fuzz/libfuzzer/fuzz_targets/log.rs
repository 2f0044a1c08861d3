//! Arbitrary bytes as a node's identity and the segments of its log: see `decoder_fuzz::disk::files`.
#![no_main]

use decoder_fuzz::{disk, mutate};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|bytes: &[u8]| {
    disk::files::run(bytes);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::log(&mut data[..max_size], size, seed, &mut |data: &mut [u8], size| {
        let room = data.len();
        fuzzer_mutate(data, size, room)
    })
});
