//! Arbitrary bytes as requests to a secured cluster, by callers with few permissions: see
//! `decoder_fuzz::doors`.
#![no_main]

use decoder_fuzz::{doors, mutate};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|bytes: &[u8]| {
    doors::run(bytes);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::http(&mut data[..max_size], size, seed, &mut |data: &mut [u8], size| {
        let room = data.len();
        fuzzer_mutate(data, size, room)
    })
});
