//! The files of TLS as a configuration names them: all of them, or none.

use std::path::PathBuf;

use transport_security::TlsFiles;

/// Paths of a configuration, as far as they are given.
#[derive(Debug, Default)]
pub(crate) struct GivenFiles {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub ca: Option<PathBuf>,
}

impl GivenFiles {
    /// All three, or none; else what is missing.
    pub fn complete(self) -> Result<Option<TlsFiles>, &'static str> {
        match (self.certificate, self.key, self.ca) {
            (None, None, None) => Ok(None),
            (Some(certificate), Some(key), Some(ca)) => Ok(Some(TlsFiles { certificate, key, ca })),
            (None, _, _) => Err("certificate"),
            (_, None, _) => Err("key"),
            (_, _, None) => Err("ca"),
        }
    }
}
