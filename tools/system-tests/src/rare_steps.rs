//! `lockgate-with-faults` with rare steps made frequent: tiny log segments, and snapshots for every follower
//! that was away. The program of the fail point suite.

use std::process::ExitCode;

/// Allocator of the product, so that tests run with the same one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    lockgate::lock_node::fail_points::make_rare_steps_frequent();
    lockgate::cli::main()
}
