//! The program `lockgate`; all of it is in [`lockgate::cli`].

use std::process::ExitCode;

/// A state is millions of small pieces of memory: with glibc's allocator a restart of three nodes takes half as long again
/// (docs/internals/benchmarks/lab-notes.md). It is the program's choice; who embeds the library makes another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    lockgate::cli::main()
}
