//! Certificates, keys and authorities in PEM files: read as a whole, or refused with the file's name.

use std::path::Path;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::TlsError;
use crate::files::{contents, refuse_exposed};
use crate::parsed;

/// This side's certificates and key, as they were read.
pub(crate) struct Own {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub not_after: SystemTime,
}

pub(crate) fn own(certificate: &Path, key: &Path) -> Result<Own, TlsError> {
    let chain = certificates(certificate)?;
    let not_after = parsed::not_after(&chain).ok_or_else(|| TlsError::Malformed {
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

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (text, mode) = contents(path)?;
    refuse_exposed(path, mode, "private key")?;
    // What is wrong is not repeated: it is a key.
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::Malformed {
        path: path.to_owned(),
        fact: "there is no private key in it".to_owned(),
    })
}
