//! Makes a small authority and certificates: for a try-out, for tests, and for clusters that have no authority of their own.
//! It writes no files.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;

use crate::names::PeerName;

/// A certificate begins so long before it is made: clocks differ.
const BEGIN_BEFORE: Duration = Duration::from_secs(3600);

/// Why nothing could be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// It cannot be written in a certificate.
    #[error("{0:?} cannot be written in a certificate")]
    Unwritable(String),
    /// The authority's files are none.
    #[error("this is no certificate of an authority with its key: {0}")]
    NoAuthority(String),
    /// Something else.
    #[error(transparent)]
    Library(#[from] rcgen::Error),
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// An authority: what it has signed is believed by those who have its certificate.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// What a certificate is to say.
#[derive(Debug, Clone)]
pub struct Wanted {
    common_name: String,
    uris: Vec<String>,
    hosts: Vec<String>,
    serves: bool,
    calls: bool,
    from: SystemTime,
    to: SystemTime,
}

impl Wanted {
    /// A certificate of a node: for its peers in both directions, and for clients that call one of `hosts` (names or addresses).
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

    /// A certificate of a client, which is known by the subject `CN=name`.
    pub fn client(name: &str, valid_for: Duration) -> Self {
        let now = SystemTime::now();
        Self {
            common_name: name.to_owned(),
            uris: Vec::new(),
            hosts: Vec::new(),
            serves: false,
            calls: true,
            from: now - BEGIN_BEFORE,
            to: now + valid_for,
        }
    }

    /// Adds an alternative name of the kind URI.
    pub fn uri(mut self, uri: &str) -> Self {
        self.uris.push(uri.to_owned());
        self
    }

    /// Valid in this time instead.
    pub fn valid(mut self, from: SystemTime, to: SystemTime) -> Self {
        (self.from, self.to) = (from, to);
        self
    }

    /// Whether it is for servers, and for clients (extended key usage).
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
    /// A new authority, with what stands for it.
    pub fn new(name: &str, valid_for: Duration) -> Result<(Self, Issued), IssueError> {
        let now = SystemTime::now();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = named(name);
        parameters.not_before = OffsetDateTime::from(now - BEGIN_BEFORE);
        parameters.not_after = OffsetDateTime::from(now + valid_for);
        // It signs certificates of nodes and clients, not of further authorities.
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

    /// The authority that was made before.
    pub fn read(issued: &Issued) -> Result<Self, IssueError> {
        let no_authority = |error: rcgen::Error| IssueError::NoAuthority(error.to_string());
        let key = KeyPair::from_pem(&issued.key).map_err(no_authority)?;
        let issuer = Issuer::from_ca_cert_pem(&issued.certificate, key).map_err(no_authority)?;
        Ok(Self { issuer })
    }

    /// Signs a certificate for a new key.
    pub fn issue(&self, wanted: &Wanted) -> Result<Issued, IssueError> {
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
