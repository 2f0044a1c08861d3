//! Arbitrary bytes as the commands of a log entry: see `decoder_fuzz::command`.
#![no_main]

use decoder_fuzz::{command, mutate};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|bytes: &[u8]| {
    command::run(bytes);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::command(&mut data[..max_size], size, seed, &mut |data: &mut [u8], size| {
        let room = data.len();
        fuzzer_mutate(data, size, room)
    })
});
