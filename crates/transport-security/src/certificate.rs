//! Fields of a client's certificate. The handshake has verified the certificate before.

/// Authenticated identity of a client: fields of a certificate signed by the authority for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Subject in the form of RFC 2253 (`CN=orders,O=Example`); may be empty.
    pub subject: String,
    /// Subject alternative names with their kinds: `DNS:host`, `IP:192.0.2.1`, `URI:lockgate://…`, `EMAIL:…`.
    pub names: Vec<String>,
}

impl ClientCertificate {
    /// Identity of this client in access control lists: its subject, or its first alternative name if the
    /// subject is empty.
    pub fn identity(&self) -> Option<&str> {
        match self.subject.as_str() {
            "" => self.names.first().map(String::as_str),
            subject => Some(subject),
        }
    }
}
