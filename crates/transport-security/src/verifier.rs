//! Verification of peer certificates: signed by the cluster's authority, valid now, for this purpose, and
//! with the name of a node of this cluster; if a node was called, with the name of that node. It serves both
//! directions.

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

use crate::error::{PeerFault, PeerMismatch};
use crate::names::PeerName;
use crate::parsed;
use crate::provider;

/// Expected identity of the other end.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub cluster: Arc<str>,
    /// Expected node; `None`: any. The accepting side then compares the claimed node ID with the certificate.
    pub node: Option<u64>,
}

impl Expected {
    pub fn mismatch(&self, presented: String, fault: PeerFault) -> PeerMismatch {
        PeerMismatch {
            cluster: self.cluster.to_string(),
            node: self.node,
            presented,
            fault,
        }
    }

    /// Returns the name in a certificate if it is the expected one. The signature is not verified.
    pub fn name(&self, certificate: &CertificateDer<'_>) -> Result<PeerName, PeerMismatch> {
        let Some(read) = parsed::read(certificate) else {
            return Err(self.mismatch(String::new(), PeerFault::Unreadable));
        };
        let fault = match read.peer() {
            Err(fault) => fault,
            Ok(name) if name.cluster != *self.cluster => PeerFault::OtherCluster(name),
            Ok(name) if self.node.is_some_and(|node| node != name.node) => PeerFault::OtherNode(name),
            Ok(name) => return Ok(name),
        };
        Err(self.mismatch(read.described(), fault))
    }

    /// Adds the expected and the presented identity to a certificate error of the library.
    fn with_identities(&self, certificate: &CertificateDer<'_>, error: rustls::Error) -> rustls::Error {
        match error {
            rustls::Error::InvalidCertificate(error) => {
                let presented = match parsed::read(certificate) {
                    Some(read) => read.described(),
                    None => return as_error(self.mismatch(String::new(), PeerFault::Unreadable)),
                };
                as_error(self.mismatch(presented, PeerFault::Certificate(error)))
            }
            other => other,
        }
    }
}

fn as_error(refused: PeerMismatch) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refused))))
}

/// Verifier of the calling side, which expects a certain node.
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
        // The address of a node proves nothing; its name does.
        _address: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let signed = ParsedCertificate::try_from(end_entity).and_then(|parsed| {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)
        });
        signed.map_err(|error| self.expected.with_identities(end_entity, error))?;
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

/// Verifier of the called side: any node of the cluster may call.
#[derive(Debug)]
pub(crate) struct CallingPeer {
    expected: Expected,
    chain: Arc<dyn ClientCertVerifier>,
}

impl CallingPeer {
    /// Creates a verifier. `roots` must have at least one authority.
    pub fn new(expected: Expected, roots: Arc<RootCertStore>) -> Self {
        let chain = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .expect("there is an authority, and there are no revocation lists that could be malformed");
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
            .map_err(|error| self.expected.with_identities(end_entity, error))?;
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
