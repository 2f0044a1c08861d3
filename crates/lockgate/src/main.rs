//! The program `lockgate`; all of it is in [`lockgate::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    lockgate::cli::main()
}
