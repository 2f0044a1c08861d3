//! The program `lockgate`; all of it is in [`lockgate::cli`].

use std::process::ExitCode;

/// Allocator of the program. The state of a node is millions of small allocations: with glibc's allocator a
/// restart of three nodes takes half as long again (docs/internals/benchmarks/lab-notes.md). Programs that
/// embed the library choose their own allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    lockgate::cli::main()
}
