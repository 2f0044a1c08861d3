//! What stands in a certificate. Whether it is to be believed is decided elsewhere, before.

/// What a client has proven to be, by a certificate that the authority for clients has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its subject in the form of RFC 2253 (`CN=orders,O=Example`); may be empty.
    pub subject: String,
    /// Its alternative names, with their kinds: `DNS:host`, `IP:192.0.2.1`, `URI:lockgate://…`, `EMAIL:…`.
    pub names: Vec<String>,
}

impl ClientCertificate {
    /// What stands for this client in access control lists: its subject; if that is empty, its first alternative name.
    pub fn identity(&self) -> Option<&str> {
        match self.subject.as_str() {
            "" => self.names.first().map(String::as_str),
            subject => Some(subject),
        }
    }
}
