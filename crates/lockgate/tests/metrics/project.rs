//! Files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the text of a file, by its path from the root.
pub fn file(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
