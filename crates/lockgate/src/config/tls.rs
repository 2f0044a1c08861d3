//! TLS settings of a configuration.

use std::path::Path;

use transport_security::{ClientCertificates, HandshakeLimits, OldestVersion};

use super::settings_reader::SettingsReader;
use super::tls_file_paths::TlsFilePaths;
use crate::transport::TlsConfig;

impl SettingsReader<'_> {
    /// Reads the TLS settings; `None` without a certificate.
    pub(super) fn tls(&mut self, base: &Path) -> Option<TlsConfig> {
        let mut path = |key| {
            let path = self.text(key).filter(|path| !path.is_empty());
            path.map(|path| base.join(path))
        };
        let files = TlsFilePaths {
            certificate: path("tls.certificate"),
            key: path("tls.key"),
            ca: path("tls.ca"),
        };
        let peers = TlsFilePaths {
            certificate: path("tls.peer_certificate"),
            key: path("tls.peer_key"),
            ca: path("tls.peer_ca"),
        };
        let client_ca = path("tls.client_ca");
        let mut handshakes = HandshakeLimits::default();
        self.duration("tls.handshake_timeout_ms", &mut handshakes.timeout);
        self.size("tls.handshakes_at_once", &mut handshakes.at_once);
        let requirement = self.text("tls.client_certificates");
        let zookeeper_oldest = match self.text("tls.zookeeper_oldest_version").as_deref() {
            Some("1.2") => OldestVersion::Tls12,
            _ => OldestVersion::Tls13,
        };
        let files = files.complete().unwrap_or_else(|missing| {
            self.error(
                &format!("tls.{missing}"),
                "is required: certificate, key and ca belong together",
            )
        });
        let peers = peers.complete().unwrap_or_else(|missing| {
            let others = "is required: peer_certificate, peer_key and peer_ca belong together";
            self.error(&format!("tls.peer_{missing}"), others)
        });
        let Some(files) = files else {
            let sets_requirement = requirement.is_some_and(|requirement| requirement != "optional");
            let accepts_older = zookeeper_oldest != OldestVersion::default();
            if peers.is_some() || client_ca.is_some() || sets_requirement || accepts_older {
                self.error::<()>(
                    "tls.certificate",
                    "is required if another setting of [tls] is given",
                );
            }
            return None;
        };
        let client_ca = client_ca.unwrap_or_else(|| files.ca.clone());
        let clients = match requirement.as_deref() {
            None | Some("optional") => ClientCertificates::Optional(client_ca),
            Some("required") => ClientCertificates::Required(client_ca),
            Some(_) => ClientCertificates::Ignored,
        };
        Some(TlsConfig {
            files,
            clients,
            peers,
            handshakes,
            zookeeper_oldest,
        })
    }
}
