//! Arbitrary bytes as frames from another node: see `decoder_fuzz::peer`.
#![no_main]

use decoder_fuzz::{mutate, peer};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|bytes: &[u8]| {
    peer::run(bytes);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::peer(&mut data[..max_size], size, seed, &mut |data: &mut [u8], size| {
        let room = data.len();
        fuzzer_mutate(data, size, room)
    })
});
