//! Certificates, keys and authorities in PEM files. A file is read completely, and errors name it.

use std::path::Path;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::TlsError;
use crate::files::{contents, reject_exposed};
use crate::parsed;

/// Certificate chain and key of this side.
pub(crate) struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub not_after: SystemTime,
}

pub(crate) fn own(certificate: &Path, key: &Path) -> Result<Identity, TlsError> {
    let chain = certificates(certificate)?;
    let not_after = parsed::not_after(&chain).ok_or_else(|| TlsError::Malformed {
        path: certificate.to_owned(),
        fact: "a certificate in it cannot be read".to_owned(),
    })?;
    Ok(Identity {
        chain,
        key: private_key(key)?,
        not_after,
    })
}

/// Reads the authorities in a file; the result has at least one.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::Malformed {
            path: path.to_owned(),
            fact: format!("a certificate in it is not a usable authority: {error}"),
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

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (text, mode) = contents(path)?;
    reject_exposed(path, mode, "private key")?;
    // The error does not repeat the content, because it is a key.
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::Malformed {
        path: path.to_owned(),
        fact: "there is no private key in it".to_owned(),
    })
}
