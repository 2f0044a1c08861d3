//! Arbitrary bytes as frames of ZooKeeper's protocol: see `decoder_fuzz::wire`.
#![no_main]

use decoder_fuzz::{mutate, wire};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|bytes: &[u8]| {
    wire::run(bytes);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::wire(&mut data[..max_size], size, seed, &mut |data: &mut [u8], size| {
        let room = data.len();
        fuzzer_mutate(data, size, room)
    })
});
