//! Files with certificates, keys and other secrets. A file is read completely, and errors name it.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::TlsError;

/// Maximum size of a file in bytes: four times that of a bundle of all public authorities.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Permission bits that make a secret exposed: any access by others, and write access by the group. Read
/// access by the group is allowed, because services that run under their own user receive their secrets that
/// way.
const EXPOSED_BITS: u32 = 0o027;

/// Paths of a certificate, its key, and the authority for the other side. All files are PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of this side, followed by the intermediate certificates up to the authority.
    pub certificate: PathBuf,
    /// Private key of the certificate. Only its owner may have access; its group may read.
    pub key: PathBuf,
    /// Certificates of the authorities that sign the certificates of the other side.
    pub ca: PathBuf,
}

/// Reads a secret that is not a key (a token). The permissions of the file are checked like those of a
/// private key.
pub fn secret_text(path: &Path) -> Result<String, TlsError> {
    let (bytes, mode) = contents(path)?;
    reject_exposed(path, mode, "secret")?;
    // The error does not repeat the content, because it is a secret.
    String::from_utf8(bytes).map_err(|_| TlsError::Malformed {
        path: path.to_owned(),
        fact: "it is not valid UTF-8".to_owned(),
    })
}

pub(crate) fn reject_exposed(path: &Path, mode: u32, what: &'static str) -> Result<(), TlsError> {
    match mode & EXPOSED_BITS {
        0 => Ok(()),
        _ => Err(TlsError::KeyExposed {
            path: path.to_owned(),
            what,
            mode: mode & 0o777,
        }),
    }
}

/// Reads a file and returns its content and permissions. The permissions are those of the opened file, even
/// if another file has its name by then.
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
            fact: format!("it is larger than {MAX_FILE_BYTES} bytes"),
        });
    }
    Ok((contents, about.mode()))
}
