//! What a client proves to be. What that allows is decided by the state machine.

use access_token::{Secret, TokenText};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};
use std::net::IpAddr;
use transport_security::ClientCertificate;
use znode_store::{Identities, Identity, TokenId};

use crate::serve::Protection;

/// The most that one connection may prove to be. Each is compared with each entry of a list.
const MAX_IDENTITIES: usize = 32;

/// What the client of a connection has proven so far. Whoever is told of it shares it.
pub(crate) struct Proven {
    all: Identities,
    /// Whether strangers may read what this client sends.
    overheard: bool,
}

/// Why something that a client has shown does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthFailed {
    /// It proves nothing.
    Unproven,
    /// It is a secret that is shown without TLS where strangers may read it.
    Overheard,
}

impl Proven {
    /// It calls from somewhere, and may have shown a certificate.
    pub fn new(address: IpAddr, certificate: Option<&ClientCertificate>, protection: &Protection) -> Self {
        let address = [Identity::Ip(address.to_canonical())];
        let subject = certificate.and_then(ClientCertificate::identity);
        let subject = subject.map(|subject| Identity::X509(subject.into()));
        let all = Identities::new(address.into_iter().chain(subject));
        Self {
            all,
            overheard: matches!(protection, Protection::Exposed),
        }
    }

    pub fn identities(&self) -> &Identities {
        &self.all
    }

    /// The client shows what it has by a scheme. Those of ZooKeeper without configuration are known: `digest`, and `ip`, for
    /// which there is nothing to show. What `x509` asks for was shown when the connection was made. Beside them `token`, with
    /// a token of Lockgate's: `is_good` says whether the cluster has one with this id and this secret.
    ///
    /// Where strangers may listen, a token is refused whether it is good or not, and so is the superuser's password. A stranger who has read
    /// one could use it at every other port.
    pub fn show(
        &mut self,
        scheme: &str,
        shown: Option<&[u8]>,
        super_digest: Option<&str>,
        is_good: impl FnOnce(TokenId, &Secret) -> bool,
    ) -> Result<(), AuthFailed> {
        match scheme {
            "ip" => Ok(()),
            "token" if self.overheard => Err(AuthFailed::Overheard),
            "token" => match shown.and_then(token) {
                Some(TokenText::Of(id, secret)) if is_good(id, &secret) => self.add(Identity::Token(id)),
                // An operator speaks HTTP to its node.
                _ => Err(AuthFailed::Unproven),
            },
            "digest" => {
                let id = shown.and_then(digest).ok_or(AuthFailed::Unproven)?;
                if super_digest == Some(id.as_str()) {
                    if self.overheard {
                        return Err(AuthFailed::Overheard);
                    }
                    self.add(Identity::Super)?;
                }
                self.add(Identity::Digest(id.into()))
            }
            "x509" if self.all.iter().any(|known| matches!(known, Identity::X509(_))) => Ok(()),
            _ => Err(AuthFailed::Unproven),
        }
    }

    fn add(&mut self, identity: Identity) -> Result<(), AuthFailed> {
        if self.all.iter().any(|known| *known == identity) {
            return Ok(());
        }
        if self.all.iter().count() >= MAX_IDENTITIES {
            return Err(AuthFailed::Unproven);
        }
        self.all = Identities::new(self.all.iter().cloned().chain([identity]));
        Ok(())
    }
}

fn token(shown: &[u8]) -> Option<TokenText> {
    TokenText::parse(std::str::from_utf8(shown).ok()?)
}

/// `user:base64(sha1(user:password))` of `user:password`; none if it is no text. Without a colon all of it is the name, as in
/// ZooKeeper.
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
    fn a_digest_is_zookeepers() {
        // As `org.apache.zookeeper.server.auth.DigestAuthenticationProvider` prints it.
        assert_eq!(
            digest(b"super:test").as_deref(),
            Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=")
        );
    }

    #[test]
    fn who_shows_the_super_password_is_super() {
        let mut proven = Proven::new([127, 0, 0, 1].into(), None, &Protection::Trusted);
        let known = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(proven.show("digest", Some(b"super:other"), known, nobody), Ok(()));
        assert!(!proven.all.iter().any(|known| *known == Identity::Super));
        assert_eq!(proven.show("digest", Some(b"super:test"), known, nobody), Ok(()));
        assert!(proven.all.iter().any(|known| *known == Identity::Super));
    }

    #[test]
    fn a_certificate_is_shown_once_and_for_all() {
        let certificate = ClientCertificate {
            subject: "CN=orders".to_owned(),
            names: Vec::new(),
        };
        let mut proven = Proven::new([127, 0, 0, 1].into(), Some(&certificate), &Protection::Trusted);
        let shown: Vec<_> = proven.all.iter().skip(1).cloned().collect();
        assert_eq!(shown, [Identity::X509("CN=orders".into())]);
        assert_eq!(proven.show("x509", Some(b"CN=other"), None, nobody), Ok(()));
        assert_eq!(
            proven.all.iter().count(),
            2,
            "what it says beside it proves nothing"
        );
        let mut without = Proven::new([127, 0, 0, 1].into(), None, &Protection::Trusted);
        assert_eq!(
            without.show("x509", None, None, nobody),
            Err(AuthFailed::Unproven)
        );
    }

    #[test]
    fn there_is_an_end_to_what_one_client_proves() {
        let mut proven = Proven::new([127, 0, 0, 1].into(), None, &Protection::Trusted);
        for number in 1..MAX_IDENTITIES {
            let shown = format!("user{number}:x");
            assert_eq!(
                proven.show("digest", Some(shown.as_bytes()), None, nobody),
                Ok(())
            );
        }
        assert_eq!(
            proven.show("digest", Some(b"user1:x"), None, nobody),
            Ok(()),
            "it is known"
        );
        assert_eq!(
            proven.show("digest", Some(b"one:more"), None, nobody),
            Err(AuthFailed::Unproven)
        );
        assert_eq!(
            proven.show("kerberos", Some(b""), None, nobody),
            Err(AuthFailed::Unproven)
        );
    }

    #[test]
    fn a_token_is_shown_with_its_secret() {
        let (id, hash, text) = TokenText::draw();
        let is_good = |shown: TokenId, secret: &Secret| shown == id && secret.has(&hash);
        let mut proven = Proven::new([127, 0, 0, 1].into(), None, &Protection::Trusted);
        let mut show = |text: &str| proven.show("token", Some(text.as_bytes()), None, is_good);
        let (_, operator) = access_token::OperatorToken::draw();
        let (_, _, other) = TokenText::draw();
        for bad in ["", "lg_", &text[1..], &other, &operator] {
            assert_eq!(show(bad), Err(AuthFailed::Unproven), "{bad:?}");
        }
        assert_eq!(show(&text), Ok(()));
        let shown: Vec<_> = proven.all.iter().skip(1).cloned().collect();
        assert_eq!(shown, [Identity::Token(id)]);
    }

    #[test]
    fn secrets_that_strangers_may_read_do_not_count() {
        let (id, hash, token) = TokenText::draw();
        let is_good = |shown: TokenId, secret: &Secret| shown == id && secret.has(&hash);
        let known = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        for (protection, counts) in [
            (Protection::Trusted, Ok(())),
            (Protection::Exposed, Err(AuthFailed::Overheard)),
        ] {
            let mut proven = Proven::new([192, 0, 2, 1].into(), None, &protection);
            assert_eq!(
                proven.show("token", Some(token.as_bytes()), known, is_good),
                counts
            );
            assert_eq!(proven.show("digest", Some(b"super:test"), known, is_good), counts);
            // As in ZooKeeper: its owner has chosen a password that is sent as it is.
            assert_eq!(proven.show("digest", Some(b"user:test"), known, is_good), Ok(()));
            let identities = if counts.is_ok() { 5 } else { 2 };
            assert_eq!(proven.all.iter().count(), identities, "{protection:?}");
        }
    }
}
