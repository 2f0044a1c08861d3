//! Whether a certificate is a peer's: signed by the cluster's authority, in time, for this purpose, and with the name of
//! a node of this cluster, the one that was called if one was. Both directions end here.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore, SignatureScheme,
};

use crate::error::{PeerFault, PeerRefused};
use crate::names::PeerName;
use crate::parsed;
use crate::provider;

/// Who is expected at the other end.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub cluster: Arc<str>,
    /// `None`: any node. Which one it claims to be is then compared with its certificate by who accepts it.
    pub node: Option<u64>,
}

impl Expected {
    pub fn refused(&self, shown: String, fault: PeerFault) -> PeerRefused {
        PeerRefused {
            cluster: self.cluster.to_string(),
            node: self.node,
            shown,
            fault,
        }
    }

    /// The name in a certificate, if it is as expected. Says nothing of who signed it.
    pub fn name(&self, certificate: &CertificateDer<'_>) -> Result<PeerName, PeerRefused> {
        let Some(read) = parsed::read(certificate) else {
            return Err(self.refused(String::new(), PeerFault::Unreadable));
        };
        let fault = match read.peer() {
            Err(fault) => fault,
            Ok(name) if name.cluster != *self.cluster => PeerFault::OtherCluster(name),
            Ok(name) if self.node.is_some_and(|node| node != name.node) => PeerFault::OtherNode(name),
            Ok(name) => return Ok(name),
        };
        Err(self.refused(read.shown(), fault))
    }

    /// Adds to what the library found wrong with a certificate what was expected and shown.
    fn told(&self, certificate: &CertificateDer<'_>, error: rustls::Error) -> rustls::Error {
        match error {
            rustls::Error::InvalidCertificate(error) => {
                let shown = match parsed::read(certificate) {
                    Some(read) => read.shown(),
                    None => return as_error(self.refused(String::new(), PeerFault::Unreadable)),
                };
                as_error(self.refused(shown, PeerFault::Certificate(error)))
            }
            other => other,
        }
    }
}

fn as_error(refused: PeerRefused) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refused))))
}

/// The side that calls: it knows which node it wants.
#[derive(Debug)]
pub(crate) struct CalledPeer {
    pub expected: Expected,
    pub roots: Arc<RootCertStore>,
    pub provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CalledPeer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        // Where a node is found proves nothing: what counts is which node it is.
        _address: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let signed = ParsedCertificate::try_from(end_entity).and_then(|parsed| {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)
        });
        signed.map_err(|error| self.expected.told(end_entity, error))?;
        self.expected.name(end_entity).map_err(as_error)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// The side that is called: any node of the cluster may call, and nobody else.
#[derive(Debug)]
pub(crate) struct CallingPeer {
    expected: Expected,
    chain: Arc<dyn ClientCertVerifier>,
}

impl CallingPeer {
    /// `roots` has one authority at least.
    pub fn new(expected: Expected, roots: Arc<RootCertStore>) -> Self {
        let chain = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .expect("there are authorities, and no revocation lists to be malformed");
        Self { expected, chain }
    }
}

impl ClientCertVerifier for CallingPeer {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .chain
            .verify_client_cert(end_entity, intermediates, now)
            .map_err(|error| self.expected.told(end_entity, error))?;
        self.expected.name(end_entity).map_err(as_error)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
