//! Protection of the connections of a port.

use transport_security::ServerTls;

/// Protection of the connections of a port.
#[derive(Debug, Clone)]
pub enum Protection {
    /// TLS only. A client also has the identity in its certificate.
    Tls(ServerTls),
    /// No TLS, because everyone who can read the connections is trusted.
    Trusted,
    /// No TLS, although others may read the connections. Tokens and the superuser's password are rejected.
    Exposed,
}
