//! Generation of an authority and of certificates: for trials, for tests, and for clusters without an
//! authority of their own. Nothing is written to files.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;

use crate::names::PeerName;

/// Time by which `not_before` precedes the creation, because clocks differ.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(3600);

/// Error while generating a certificate.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The text cannot be encoded in a certificate.
    #[error("{0:?} cannot be written in a certificate")]
    Unwritable(String),
    /// The authority's certificate or key cannot be used.
    #[error("the authority's certificate or key cannot be used: {0}")]
    NoAuthority(String),
    /// Any other error of the library.
    #[error(transparent)]
    Library(#[from] rcgen::Error),
}

/// Certificate and its key, as PEM.
#[derive(Clone)]
pub struct Issued {
    /// Certificate.
    pub certificate: String,
    /// Private key of the certificate.
    pub key: String,
}

/// Authority that signs certificates. Holders of its certificate trust the certificates that it has signed.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// Contents of a certificate to be issued.
#[derive(Debug, Clone)]
pub struct CertificateRequest {
    common_name: String,
    uris: Vec<String>,
    hosts: Vec<String>,
    serves: bool,
    calls: bool,
    from: SystemTime,
    to: SystemTime,
}

impl CertificateRequest {
    /// Certificate of a node: for connections with its peers in both directions, and for clients that call
    /// one of `hosts` (names or addresses).
    pub fn node(name: &PeerName, hosts: &[String], valid_for: Duration) -> Self {
        Self {
            common_name: format!("node {} of {}", name.node, name.cluster),
            uris: vec![name.to_string()],
            hosts: hosts.to_vec(),
            serves: true,
            calls: true,
            ..Self::client("", valid_for)
        }
    }

    /// Certificate of a client with the subject `CN=name`.
    pub fn client(name: &str, valid_for: Duration) -> Self {
        let now = SystemTime::now();
        Self {
            common_name: name.to_owned(),
            uris: Vec::new(),
            hosts: Vec::new(),
            serves: false,
            calls: true,
            from: now - CLOCK_DIFFERENCE,
            to: now + valid_for,
        }
    }

    /// Adds a subject alternative name of the kind URI.
    pub fn uri(mut self, uri: &str) -> Self {
        self.uris.push(uri.to_owned());
        self
    }

    /// Sets the period of validity.
    pub fn valid(mut self, from: SystemTime, to: SystemTime) -> Self {
        (self.from, self.to) = (from, to);
        self
    }

    /// Sets the extended key usage: for servers, and for clients.
    pub fn purposes(mut self, serves: bool, calls: bool) -> Self {
        (self.serves, self.calls) = (serves, calls);
        self
    }

    fn parameters(&self) -> Result<CertificateParams, IssueError> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = named(&self.common_name);
        parameters.not_before = OffsetDateTime::from(self.from);
        parameters.not_after = OffsetDateTime::from(self.to);
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.use_authority_key_identifier_extension = true;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if self.serves {
            parameters
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        if self.calls {
            parameters
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        for uri in &self.uris {
            parameters.subject_alt_names.push(SanType::URI(written(uri)?));
        }
        for host in &self.hosts {
            parameters.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(written(host)?),
            });
        }
        Ok(parameters)
    }
}

impl Authority {
    /// Generates an authority, and returns it with its certificate and key.
    pub fn new(name: &str, valid_for: Duration) -> Result<(Self, Issued), IssueError> {
        let now = SystemTime::now();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = named(name);
        parameters.not_before = OffsetDateTime::from(now - CLOCK_DIFFERENCE);
        parameters.not_after = OffsetDateTime::from(now + valid_for);
        // The authority signs certificates of nodes and clients, but not of intermediate authorities.
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let issued = Issued {
            certificate: parameters.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        };
        let issuer = Issuer::new(parameters, key);
        Ok((Self { issuer }, issued))
    }

    /// Loads an authority from its certificate and key.
    pub fn read(issued: &Issued) -> Result<Self, IssueError> {
        let no_authority = |error: rcgen::Error| IssueError::NoAuthority(error.to_string());
        let key = KeyPair::from_pem(&issued.key).map_err(no_authority)?;
        let issuer = Issuer::from_ca_cert_pem(&issued.certificate, key).map_err(no_authority)?;
        Ok(Self { issuer })
    }

    /// Generates a key and signs a certificate for it.
    pub fn issue(&self, wanted: &CertificateRequest) -> Result<Issued, IssueError> {
        let key = KeyPair::generate()?;
        let certificate = wanted.parameters()?.signed_by(&key, &self.issuer)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if !common_name.is_empty() {
        name.push(DnType::CommonName, common_name);
    }
    name
}

fn written<T: TryFrom<String>>(text: &str) -> Result<T, IssueError> {
    T::try_from(text.to_owned()).map_err(|_| IssueError::Unwritable(text.to_owned()))
}
