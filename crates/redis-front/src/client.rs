//! State of one connection: identities, protocol, name, and the commands of an open transaction.

use std::net::SocketAddr;

use access_token::{Secret, Standing, TokenText};
use bytes::Bytes;
use transport_security::ClientCertificate;
use znode_store::{Identities, Identity, TokenId};

use crate::config::{MAX_NAME_BYTES, Protection, RedisConfig};
use crate::front::Front;
use crate::keys::{Failure, Keys};
use crate::reply::{Protocol, Reply};
use crate::request::Request;
use crate::wakes::{Subscribing, Subscriptions, Wake};

/// A connected client.
pub(crate) struct Client {
    pub front: Front,
    pub id: i64,
    /// Address and port as text, for each command.
    pub address: Box<str>,
    pub protocol: Protocol,
    /// Name that the client gave itself by `CLIENT SETNAME`.
    pub name: Bytes,
    /// Identities by the network: the address, and the subject of the certificate.
    network: Identities,
    /// The same, and the token of the last successful `AUTH`.
    caller: Identities,
    /// True if others may be able to read what this client sends.
    is_exposed: bool,
    /// Commands since `MULTI`; `None` outside of a transaction.
    pub transaction: Option<Transaction>,
    pub subscriptions: Subscriptions,
}

/// Commands between `MULTI` and `EXEC`.
#[derive(Default)]
pub(crate) struct Transaction {
    pub commands: Vec<Request>,
    /// Estimated memory of the commands.
    pub bytes: usize,
    /// True if a command was refused when it was queued. `EXEC` then executes none.
    pub is_refused: bool,
}

/// Reason for which `AUTH` was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The password is no valid token.
    Invalid,
    /// The token was sent without TLS where others may read it.
    Exposed,
}

impl Client {
    pub fn new(
        front: Front,
        address: SocketAddr,
        certificate: Option<&ClientCertificate>,
        protection: &Protection,
    ) -> Self {
        let ip = [Identity::Ip(address.ip().to_canonical())];
        let subject = certificate.and_then(ClientCertificate::identity);
        let subject = subject.map(|subject| Identity::X509(subject.into()));
        let network = Identities::new(ip.into_iter().chain(subject));
        Self {
            id: front.next_client_id(),
            front,
            address: address.to_string().into(),
            protocol: Protocol::default(),
            name: Bytes::new(),
            caller: network.clone(),
            network,
            is_exposed: matches!(protection, Protection::Exposed),
            transaction: None,
            subscriptions: Subscriptions::default(),
        }
    }

    /// Executes a command about subscriptions. Returns the reply for each channel.
    pub fn subscribe(&mut self, how: Subscribing, channels: &[Bytes]) -> Result<Vec<Reply>, Failure> {
        let (front, config) = (self.front.clone(), self.front.config());
        let mut subscriptions = std::mem::take(&mut self.subscriptions);
        let changed = subscriptions.change(how, channels, front.wakes(), &self.keys(&config));
        self.subscriptions = subscriptions;
        changed
    }

    /// Returns the messages for an end of a hold.
    pub fn messages(&self, wake: &Wake) -> Vec<Reply> {
        let config = self.front.config();
        self.subscriptions.messages(wake, &self.keys(&config))
    }

    /// Returns the keys as this client uses them.
    pub fn keys<'c>(&'c self, config: &'c RedisConfig) -> Keys<'c> {
        Keys {
            node: self.front.node(),
            caller: &self.caller,
            address: &self.address,
            prefix: &config.prefix,
            answers: self.front.answers(),
            scripts: self.front.scripts(),
        }
    }

    /// Takes a name, which is only shown.
    pub fn set_name(&mut self, name: &[u8]) -> Result<(), Failure> {
        if name.len() > MAX_NAME_BYTES || name.iter().any(|byte| !byte.is_ascii_graphic()) {
            return Err(Failure::error(
                "ERR Client names cannot contain spaces, newlines or special characters.",
            ));
        }
        self.name = Bytes::copy_from_slice(name);
        Ok(())
    }

    /// Waits until a refused command may be answered: at once, unless this client has many of them.
    pub async fn pace_refusal(&self) {
        self.front.node().pace_refusal(&self.caller).await;
    }

    /// Takes a token as the client's identity, in place of an earlier one.
    pub fn authenticate(&mut self, password: &[u8]) -> Result<(), AuthError> {
        if self.is_exposed {
            return Err(AuthError::Exposed);
        }
        let token = std::str::from_utf8(password).ok().and_then(TokenText::parse);
        match token {
            Some(TokenText::Of(id, secret)) if self.is_good(id, &secret) => {
                self.caller = Identities::new(self.network.iter().cloned().chain([Identity::Token(id)]));
                Ok(())
            }
            // Operators use the HTTP API of their node.
            _ => Err(AuthError::Invalid),
        }
    }

    fn is_good(&self, id: TokenId, secret: &Secret) -> bool {
        let node = self.front.node();
        let standing = node.read_facts(|store| Standing::of(store, id, secret, node.now_ms()));
        matches!(standing, Standing::Good { .. })
    }

    /// Returns to the state of a new connection: `RESET`.
    pub fn reset(&mut self) {
        self.caller = self.network.clone();
        self.protocol = Protocol::default();
        self.name = Bytes::new();
        self.transaction = None;
        self.subscriptions = Subscriptions::default();
    }
}
