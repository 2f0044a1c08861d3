//! The program `lockgate` with fail points and planted bugs compiled in: the program under test of this crate's suites, of
//! `lockgate-jepsen --mutants`, and of nobody who runs a cluster. Each fault is a switch of the running process and is off until a test
//! sets it.

use std::process::ExitCode;

/// As the product has it, so that tests run with the same allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    lockgate::cli::main()
}
