//! What a caller of nodes has: by what it knows them, and what it shows to them.

use std::io;

use lock_client::{Token, is_on_this_machine};
use transport_security::ClientTls;

/// What a caller of nodes has. The default has nothing: neither TLS nor a token.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// By what nodes are known, and which certificate they are shown; none: nothing is protected.
    pub tls: Option<ClientTls>,
    /// Says who calls, to clusters that are secured.
    pub token: Option<Token>,
    /// Whether the token goes to other machines without TLS as well.
    pub insecure: bool,
}

impl Credentials {
    /// TLS, if there is something for it, and no token.
    pub fn of_tls(tls: Option<&ClientTls>) -> Self {
        Self {
            tls: tls.cloned(),
            ..Self::default()
        }
    }

    /// What is given here, and what is not from `other`.
    pub fn or(self, other: &Self) -> Self {
        Self {
            tls: self.tls.or_else(|| other.tls.clone()),
            token: self.token.or_else(|| other.token.clone()),
            insecure: self.insecure,
        }
    }

    /// The token to show to the node at `host:port`. An error if whoever listens on the way could use it.
    pub fn token_for(&self, address: &str) -> io::Result<Option<&Token>> {
        match &self.token {
            Some(_) if self.tls.is_none() && !self.insecure && !is_on_this_machine(address) => {
                Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "{address} would be shown the token without TLS, and whoever listens on the way could use it: give the \
                         authority of its certificate (--ca), or say that everybody on the way is trusted (--insecure)"
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
    fn a_token_stays_on_this_machine_unless_it_is_protected() {
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
