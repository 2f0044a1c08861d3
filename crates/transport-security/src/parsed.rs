//! Parsing of certificates.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::error::{PeerFault, quoted};
use crate::names::{PeerName, SCHEME};
use crate::subject::rfc2253;

/// Fields of a certificate.
pub(crate) struct Read {
    pub subject: String,
    pub names: Vec<String>,
    pub not_after: SystemTime,
}

/// Parses a certificate; `None` if it is malformed.
pub(crate) fn read(certificate: &CertificateDer<'_>) -> Option<Read> {
    let (rest, parsed) = X509Certificate::from_der(certificate).ok()?;
    if !rest.is_empty() {
        return None;
    }
    // A duplicate or malformed extension makes the whole certificate unreadable; it is not treated as a
    // missing name.
    let names = match parsed.subject_alternative_name().ok()? {
        Some(names) => names
            .value
            .general_names
            .iter()
            .map(name)
            .collect::<Option<_>>()?,
        None => Vec::new(),
    };
    let not_after = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
    Some(Read {
        subject: rfc2253(parsed.subject()),
        names,
        not_after: UNIX_EPOCH + Duration::from_secs(not_after),
    })
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    Some(match name {
        GeneralName::DNSName(host) => format!("DNS:{host}"),
        GeneralName::URI(uri) => format!("URI:{uri}"),
        GeneralName::RFC822Name(mail) => format!("EMAIL:{mail}"),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(bytes), _) => format!("IP:{}", Ipv4Addr::from(bytes)),
            (_, Ok(bytes)) => format!("IP:{}", Ipv6Addr::from(bytes)),
            _ => return None,
        },
        GeneralName::DirectoryName(name) => format!("DIR:{}", rfc2253(name)),
        GeneralName::Invalid(..) => return None,
        // Other kinds do not name hosts, persons or programs.
        _ => "OTHER".to_owned(),
    })
}

impl Read {
    /// Returns the one node that the certificate names.
    pub fn peer(&self) -> Result<PeerName, PeerFault> {
        let uris = self.names.iter().filter_map(|name| name.strip_prefix("URI:"));
        // The scheme is compared case-insensitively: every name that somebody may take for the name of a node
        // must be one.
        let ours = |uri: &&str| {
            uri.get(..SCHEME.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(SCHEME))
        };
        let mut ours = uris.filter(ours);
        match (ours.next(), ours.next()) {
            (None, _) => Err(PeerFault::NoName),
            (Some(name), None) => name.parse().map_err(PeerFault::MalformedName),
            (Some(_), Some(_)) => Err(PeerFault::SeveralNames),
        }
    }

    /// Identity for a message: the alternative names, or the subject if there are none.
    pub fn described(&self) -> String {
        match (self.names.is_empty(), self.subject.is_empty()) {
            (false, _) => quoted(&self.names.join(", ")),
            (true, false) => quoted(&self.subject),
            (true, true) => "a certificate without any name".to_owned(),
        }
    }
}

/// End of the period in which all certificates of a chain are valid.
pub(crate) fn not_after(chain: &[CertificateDer<'_>]) -> Option<SystemTime> {
    let ends: Option<Vec<_>> = chain
        .iter()
        .map(|certificate| read(certificate).map(|read| read.not_after))
        .collect();
    ends?.into_iter().min()
}
