//! TLS files of a configuration: all of them, or none.

use std::path::PathBuf;

use transport_security::TlsFiles;

/// Paths in a configuration.
#[derive(Debug, Default)]
pub(crate) struct TlsFilePaths {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub ca: Option<PathBuf>,
}

impl TlsFilePaths {
    /// Returns all three, or `None`; an error names the missing ones.
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
