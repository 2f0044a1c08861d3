//! Certificates, keys and authorities in files: read as a whole, or refused with the file's name.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate;
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

/// This side's certificates and key, as they were read.
pub(crate) struct Own {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub not_after: SystemTime,
}

pub(crate) fn own(certificate: &Path, key: &Path) -> Result<Own, TlsError> {
    let chain = certificates(certificate)?;
    let not_after = certificate::not_after(&chain).ok_or_else(|| TlsError::Malformed {
        path: certificate.to_owned(),
        fact: "a certificate in it cannot be read".to_owned(),
    })?;
    Ok(Own {
        chain,
        key: private_key(key)?,
        not_after,
    })
}

/// The authorities in a file; there is one at least.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::Malformed {
            path: path.to_owned(),
            fact: format!("it is no authority: {error}"),
        })?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (text, _) = contents(path)?;
    let malformed = |fact: String| TlsError::Malformed {
        path: path.to_owned(),
        fact,
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| malformed(format!("not PEM: {error}")))?;
    match found.is_empty() {
        true => Err(malformed("there is no certificate in it".to_owned())),
        false => Ok(found),
    }
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

fn refuse_exposed(path: &Path, mode: u32, what: &'static str) -> Result<(), TlsError> {
    match mode & EXPOSED {
        0 => Ok(()),
        _ => Err(TlsError::KeyExposed {
            path: path.to_owned(),
            what,
            mode: mode & 0o777,
        }),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (text, mode) = contents(path)?;
    refuse_exposed(path, mode, "private key")?;
    // What is wrong is not repeated: it is a key.
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::Malformed {
        path: path.to_owned(),
        fact: "there is no private key in it".to_owned(),
    })
}

/// What a file has, and its permissions: of the file that was read, not of whatever has its name later.
fn contents(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
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
