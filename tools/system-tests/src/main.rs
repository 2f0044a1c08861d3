//! The program `lockgate` with fail points and planted bugs compiled in. This crate's suites and
//! `lockgate-jepsen --mutants` test it; it is not for production. Each fault is a switch of the running
//! process and is off until a test sets it.

use std::process::ExitCode;

/// Allocator of the product, so that tests run with the same one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    lockgate::cli::main()
}
