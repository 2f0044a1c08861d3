//! What a client proves to be. What that allows is decided by the state machine.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};
use std::net::IpAddr;
use znode_store::{Identities, Identity};

/// The most that one connection may prove to be. Each is compared with each entry of a list.
const MAX_IDENTITIES: usize = 32;

/// What the client of a connection has proven so far.
pub(crate) struct Proven {
    all: Vec<Identity>,
}

/// The client has not proven what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuthFailed;

impl Proven {
    /// It calls from somewhere.
    pub fn new(address: IpAddr) -> Self {
        Self {
            all: vec![Identity::Ip(address.to_canonical())],
        }
    }

    pub fn identities(&self) -> Identities {
        Identities::new(self.all.iter().cloned())
    }

    /// The client shows what it has by a scheme. Those of ZooKeeper without configuration are known: `digest`, and `ip`, for
    /// which there is nothing to show.
    pub fn show(
        &mut self,
        scheme: &str,
        shown: Option<&[u8]>,
        super_digest: Option<&str>,
    ) -> Result<(), AuthFailed> {
        match scheme {
            "ip" => Ok(()),
            "digest" => {
                let id = shown.and_then(digest).ok_or(AuthFailed)?;
                if super_digest == Some(id.as_str()) {
                    self.add(Identity::Super)?;
                }
                self.add(Identity::Digest(id.into()))
            }
            _ => Err(AuthFailed),
        }
    }

    fn add(&mut self, identity: Identity) -> Result<(), AuthFailed> {
        if self.all.contains(&identity) {
            return Ok(());
        }
        if self.all.len() >= MAX_IDENTITIES {
            return Err(AuthFailed);
        }
        self.all.push(identity);
        Ok(())
    }
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
        let mut proven = Proven::new([127, 0, 0, 1].into());
        let known = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(proven.show("digest", Some(b"super:other"), known), Ok(()));
        assert!(!proven.all.contains(&Identity::Super));
        assert_eq!(proven.show("digest", Some(b"super:test"), known), Ok(()));
        assert!(proven.all.contains(&Identity::Super));
    }

    #[test]
    fn there_is_an_end_to_what_one_client_proves() {
        let mut proven = Proven::new([127, 0, 0, 1].into());
        for number in 1..MAX_IDENTITIES {
            let shown = format!("user{number}:x");
            assert_eq!(proven.show("digest", Some(shown.as_bytes()), None), Ok(()));
        }
        assert_eq!(
            proven.show("digest", Some(b"user1:x"), None),
            Ok(()),
            "it is known"
        );
        assert_eq!(proven.show("digest", Some(b"one:more"), None), Err(AuthFailed));
        assert_eq!(proven.show("kerberos", Some(b""), None), Err(AuthFailed));
    }
}
