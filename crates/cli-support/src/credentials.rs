//! Credentials of a client of nodes.

use std::io;

use lock_client::{Token, is_on_this_machine};
use transport_security::ClientTls;

/// Credentials of a client of nodes. By default neither TLS nor a token.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Trusted authority and the client's own certificate; `None` disables TLS.
    pub tls: Option<ClientTls>,
    /// Access token for secured clusters.
    pub token: Option<Token>,
    /// Send the token to other machines without TLS, too.
    pub insecure: bool,
}

impl Credentials {
    /// Returns credentials with this TLS configuration and without a token.
    pub fn of_tls(tls: Option<&ClientTls>) -> Self {
        Self {
            tls: tls.cloned(),
            ..Self::default()
        }
    }

    /// Returns these credentials, with missing parts taken from `other`.
    pub fn or(self, other: &Self) -> Self {
        Self {
            tls: self.tls.or_else(|| other.tls.clone()),
            token: self.token.or_else(|| other.token.clone()),
            insecure: self.insecure,
        }
    }

    /// Returns the token to present to the node at `host:port`.
    ///
    /// # Errors
    ///
    /// If the token would be sent to another machine without TLS, where anyone on the network path could use
    /// it.
    pub fn token_for(&self, address: &str) -> io::Result<Option<&Token>> {
        match &self.token {
            Some(_) if self.tls.is_none() && !self.insecure && !is_on_this_machine(address) => {
                Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "{address}: the token would be sent without TLS, and anyone on the network path could use it: name the \
                         authority of the node's certificate (--ca), or trust the network (--insecure)"
                    ),
                ))
            }
            token => Ok(token.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_leaves_this_machine_only_over_tls_or_if_insecure() {
        let token = Token::parse("lg_hidden").unwrap();
        let mut with = Credentials {
            token: Some(token),
            ..Credentials::default()
        };
        assert!(with.token_for("127.0.0.1:7401").unwrap().is_some());
        let refused = with.token_for("192.0.2.1:7401").unwrap_err().to_string();
        assert!(
            refused.contains("--ca") && !refused.contains("hidden"),
            "{refused}"
        );
        with.insecure = true;
        assert!(with.token_for("192.0.2.1:7401").unwrap().is_some());
        assert!(!format!("{with:?}").contains("hidden"));
        let nothing = Credentials::default();
        assert!(nothing.token_for("192.0.2.1:7401").unwrap().is_none());
    }
}
