//! As `lockgate-with-faults`, with rare steps made frequent: tiny segments of the log, and snapshots for every follower that was away. The
//! program of the fail points' suite.

use std::process::ExitCode;

/// As the product has it, so that tests run with the same allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    lockgate::raft_node::fail_points::make_rare_steps_frequent();
    lockgate::cli::main()
}
