//! Bytes of former programs, read by today's code. The directories beside this file contain examples of everything that
//! reaches a disk or a wire: each must be read with the same meaning, and today's program must write the same bytes for
//! the same version.
//!
//! A failure means that a layout has changed. If that is intended, increment its version (docs/internals/format.md,
//! "Upgrading"), keep the decoder of the former version and its files, and write new files beside them:
//!
//! ```sh
//! UPDATE_GOLDENFILES=1 cargo test -p lock-node golden
//! ```

mod commands;
mod data_dir;
mod material;

use std::path::{Path, PathBuf};

/// Returns the path of a golden file.
fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// Returns the content of the golden file `name`, and compares it with `written`, the output of today's program.
#[track_caller]
fn golden(name: &str, written: &[u8]) -> Vec<u8> {
    let path = place(name);
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, written).unwrap();
    }
    let golden = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let differs = golden.iter().zip(written).position(|(one, other)| one != other);
    assert!(
        golden == written,
        "{name} has other bytes than before: {} bytes instead of {}, with the first difference at byte {}. crates/lock-node/\
         tests/golden/mod.rs explains what to do",
        written.len(),
        golden.len(),
        differs.unwrap_or(golden.len().min(written.len())),
    );
    golden
}
