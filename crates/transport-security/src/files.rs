//! Files with certificates, keys and other secrets: read as a whole, or refused with the file's name.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::TlsError;

/// The largest file that is read. Bundles of all public authorities have a quarter of it.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The permissions that nobody beyond the key's owner and its group may have, and writing for the group. A group may read:
/// so secrets are handed to services that run as a user of their own.
const EXPOSED: u32 = 0o027;

/// Where a certificate, its key, and the authority for the other side are. All are PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// This side's certificate first, and those between it and the authority after it.
    pub certificate: PathBuf,
    /// Its private key. Nobody but its owner, and its group for reading, may have access.
    pub key: PathBuf,
    /// The certificates of the authorities that the other side's certificate has to be signed by.
    pub ca: PathBuf,
}

/// The text of a file with a secret that is no key (a token), under the rules of keys: nobody but its owner, and its group for
/// reading, has access.
pub fn secret_text(path: &Path) -> Result<String, TlsError> {
    let (bytes, mode) = contents(path)?;
    refuse_exposed(path, mode, "secret")?;
    // What is wrong is not repeated: it is a secret.
    String::from_utf8(bytes).map_err(|_| TlsError::Malformed {
        path: path.to_owned(),
        fact: "it is no text".to_owned(),
    })
}

pub(crate) fn refuse_exposed(path: &Path, mode: u32, what: &'static str) -> Result<(), TlsError> {
    match mode & EXPOSED {
        0 => Ok(()),
        _ => Err(TlsError::KeyExposed {
            path: path.to_owned(),
            what,
            mode: mode & 0o777,
        }),
    }
}

/// What a file has, and its permissions: of the file that was read, not of whatever has its name later.
pub(crate) fn contents(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let unreadable = |source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    let mut contents = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut contents)
        .map_err(unreadable)?;
    if contents.len() as u64 > MAX_FILE_BYTES {
        return Err(TlsError::Malformed {
            path: path.to_owned(),
            fact: format!("it has more than {MAX_FILE_BYTES} bytes"),
        });
    }
    Ok((contents, about.mode()))
}
