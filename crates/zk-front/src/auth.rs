//! Authentication of clients: the identities of a connection. The state machine decides what they allow.

use access_token::{Secret, TokenText};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};
use std::net::IpAddr;
use transport_security::ClientCertificate;
use znode_store::{Identities, Identity, TokenId};

use crate::protection::Protection;

/// Maximum number of identities of one connection. Each is compared with each entry of an access control
/// list.
const MAX_IDENTITIES: usize = 32;

/// Identities that the client of a connection has proven so far. Clones of the set share its memory.
pub(crate) struct ClientIdentities {
    all: Identities,
    /// True if others may be able to read what this client sends.
    exposed: bool,
}

/// Reason why credentials were rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The credentials are invalid.
    Invalid,
    /// The credentials are a secret that was sent without TLS where others may read it.
    Exposed,
}

impl ClientIdentities {
    /// Creates the identities of a new connection: its address, and the subject of its certificate if it has
    /// one.
    pub fn new(address: IpAddr, certificate: Option<&ClientCertificate>, protection: &Protection) -> Self {
        let address = [Identity::Ip(address.to_canonical())];
        let subject = certificate.and_then(ClientCertificate::identity);
        let subject = subject.map(|subject| Identity::X509(subject.into()));
        let all = Identities::new(address.into_iter().chain(subject));
        Self {
            all,
            exposed: matches!(protection, Protection::Exposed),
        }
    }

    pub fn all(&self) -> &Identities {
        &self.all
    }

    /// Adds the identity that the credentials prove, by scheme:
    ///
    /// - `digest` and `ip`, which ZooKeeper knows without configuration; `ip` needs no credentials.
    /// - `x509`, which succeeds if the TLS handshake presented a certificate.
    /// - `token`, an access token of Lockgate: `is_good` returns whether the cluster has a token with this id
    ///   and secret.
    ///
    /// Where others may read the connection, tokens are rejected whether they are valid or not, and so is the
    /// superuser's password: an eavesdropper could use them at every other port.
    pub fn add_credentials(
        &mut self,
        scheme: &str,
        shown: Option<&[u8]>,
        super_digest: Option<&str>,
        is_good: impl FnOnce(TokenId, &Secret) -> bool,
    ) -> Result<(), AuthError> {
        match scheme {
            "ip" => Ok(()),
            "token" if self.exposed => Err(AuthError::Exposed),
            "token" => match shown.and_then(token) {
                Some(TokenText::Of(id, secret)) if is_good(id, &secret) => self.add(Identity::Token(id)),
                // Operators use the HTTP API of their node.
                _ => Err(AuthError::Invalid),
            },
            "digest" => {
                let id = shown.and_then(digest).ok_or(AuthError::Invalid)?;
                if super_digest == Some(id.as_str()) {
                    if self.exposed {
                        return Err(AuthError::Exposed);
                    }
                    self.add(Identity::Super)?;
                }
                self.add(Identity::Digest(id.into()))
            }
            "x509" if self.all.iter().any(|known| matches!(known, Identity::X509(_))) => Ok(()),
            _ => Err(AuthError::Invalid),
        }
    }

    fn add(&mut self, identity: Identity) -> Result<(), AuthError> {
        if self.all.iter().any(|known| *known == identity) {
            return Ok(());
        }
        if self.all.iter().count() >= MAX_IDENTITIES {
            return Err(AuthError::Invalid);
        }
        self.all = Identities::new(self.all.iter().cloned().chain([identity]));
        Ok(())
    }
}

fn token(shown: &[u8]) -> Option<TokenText> {
    TokenText::parse(std::str::from_utf8(shown).ok()?)
}

/// Returns `user:base64(sha1(user:password))` of `user:password`; `None` if it is not UTF-8. Without a colon
/// the whole text is the name, as in ZooKeeper.
pub(crate) fn digest(shown: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(shown).ok()?;
    let user = text.split(':').next().unwrap_or_default();
    Some(format!("{user}:{}", STANDARD.encode(Sha1::digest(shown))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: TokenId, _: &Secret) -> bool {
        false
    }

    #[test]
    fn digest_equals_zookeepers() {
        // The output of `org.apache.zookeeper.server.auth.DigestAuthenticationProvider`.
        assert_eq!(
            digest(b"super:test").as_deref(),
            Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=")
        );
    }

    #[test]
    fn super_password_proves_the_super_identity() {
        let mut client = ClientIdentities::new([127, 0, 0, 1].into(), None, &Protection::Trusted);
        let known = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(
            client.add_credentials("digest", Some(b"super:other"), known, nobody),
            Ok(())
        );
        assert!(!client.all.iter().any(|known| *known == Identity::Super));
        assert_eq!(
            client.add_credentials("digest", Some(b"super:test"), known, nobody),
            Ok(())
        );
        assert!(client.all.iter().any(|known| *known == Identity::Super));
    }

    #[test]
    fn certificate_alone_decides_the_x509_identity() {
        let certificate = ClientCertificate {
            subject: "CN=orders".to_owned(),
            names: Vec::new(),
        };
        let mut client =
            ClientIdentities::new([127, 0, 0, 1].into(), Some(&certificate), &Protection::Trusted);
        let shown: Vec<_> = client.all.iter().skip(1).cloned().collect();
        assert_eq!(shown, [Identity::X509("CN=orders".into())]);
        assert_eq!(
            client.add_credentials("x509", Some(b"CN=other"), None, nobody),
            Ok(())
        );
        assert_eq!(
            client.all.iter().count(),
            2,
            "the id in the auth request proves nothing"
        );
        let mut without = ClientIdentities::new([127, 0, 0, 1].into(), None, &Protection::Trusted);
        assert_eq!(
            without.add_credentials("x509", None, None, nobody),
            Err(AuthError::Invalid)
        );
    }

    #[test]
    fn identities_of_one_client_are_bounded() {
        let mut client = ClientIdentities::new([127, 0, 0, 1].into(), None, &Protection::Trusted);
        for number in 1..MAX_IDENTITIES {
            let shown = format!("user{number}:x");
            assert_eq!(
                client.add_credentials("digest", Some(shown.as_bytes()), None, nobody),
                Ok(())
            );
        }
        assert_eq!(
            client.add_credentials("digest", Some(b"user1:x"), None, nobody),
            Ok(()),
            "the identity is known"
        );
        assert_eq!(
            client.add_credentials("digest", Some(b"one:more"), None, nobody),
            Err(AuthError::Invalid)
        );
        assert_eq!(
            client.add_credentials("kerberos", Some(b""), None, nobody),
            Err(AuthError::Invalid)
        );
    }

    #[test]
    fn token_is_accepted_with_its_secret_only() {
        let (id, hash, text) = TokenText::draw();
        let is_good = |shown: TokenId, secret: &Secret| shown == id && secret.has(&hash);
        let mut client = ClientIdentities::new([127, 0, 0, 1].into(), None, &Protection::Trusted);
        let mut show = |text: &str| client.add_credentials("token", Some(text.as_bytes()), None, is_good);
        let (_, operator) = access_token::OperatorToken::draw();
        let (_, _, other) = TokenText::draw();
        for bad in ["", "lg_", &text[1..], &other, &operator] {
            assert_eq!(show(bad), Err(AuthError::Invalid), "{bad:?}");
        }
        assert_eq!(show(&text), Ok(()));
        let shown: Vec<_> = client.all.iter().skip(1).cloned().collect();
        assert_eq!(shown, [Identity::Token(id)]);
    }

    #[test]
    fn secrets_are_rejected_on_exposed_connections() {
        let (id, hash, token) = TokenText::draw();
        let is_good = |shown: TokenId, secret: &Secret| shown == id && secret.has(&hash);
        let known = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        for (protection, counts) in [
            (Protection::Trusted, Ok(())),
            (Protection::Exposed, Err(AuthError::Exposed)),
        ] {
            let mut client = ClientIdentities::new([192, 0, 2, 1].into(), None, &protection);
            assert_eq!(
                client.add_credentials("token", Some(token.as_bytes()), known, is_good),
                counts
            );
            assert_eq!(
                client.add_credentials("digest", Some(b"super:test"), known, is_good),
                counts
            );
            // Accepted as in ZooKeeper: the owner has chosen a scheme that sends the password as it is.
            assert_eq!(
                client.add_credentials("digest", Some(b"user:test"), known, is_good),
                Ok(())
            );
            let identities = if counts.is_ok() { 5 } else { 2 };
            assert_eq!(client.all.iter().count(), identities, "{protection:?}");
        }
    }
}
