//! Caller of a request: its address and its proven identities. The state machine decides what it may do.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderName, Method};
use listener::ReadPacer;
use lock_node::admission::shared_by;
use transport_security::ClientCertificate;
use znode_store::{Identities, Identity, Principal, RequestId};

use super::problem::Problem;

/// Replaces the address for a caller in the program that the node runs in.
const IN_PROCESS: &str = "in process";

/// Header with the meaning of `request_id`, by the name that HTTP clients and gateways know.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Caller of a connection: the address of the socket, and the certificate of its handshake. Forwarding
/// headers are never trusted, because every caller can write them.
///
/// The server adds it to the extensions of every request, and authentication adds the identity of the request's token;
/// handlers take it as an argument. A request that came without a socket has none, and its caller has the rights of
/// `world:anyone`.
#[derive(Debug, Clone)]
pub struct Peer {
    shown: Arc<str>,
    identities: Identities,
    expires_at_ms: Option<u64>,
    /// Value of the header `Idempotency-Key` of the request.
    idempotency_key: Option<RequestId>,
    /// Pacer of the reads of the caller's connection.
    pacer: Option<ReadPacer>,
}

impl Peer {
    /// Creates a caller at `address`. An IPv4-mapped address of an IPv6 socket becomes the IPv4 address, because access
    /// control lists and people name it so.
    pub fn new(address: SocketAddr, certificate: Option<&ClientCertificate>) -> Self {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let subject = certificate.and_then(ClientCertificate::identity);
        let subject = subject.map(|subject| Identity::X509(subject.into()));
        Self {
            shown: SocketAddr::new(ip, port).to_string().into(),
            identities: Identities::new([Identity::Ip(ip)].into_iter().chain(subject)),
            expires_at_ms: None,
            idempotency_key: None,
            pacer: None,
        }
    }

    /// Returns the caller for the program that this node runs in. It can read everything that the node keeps, so it is
    /// the node's operator.
    pub fn in_process() -> Self {
        Self {
            shown: IN_PROCESS.into(),
            identities: Identities::new([Identity::Super]),
            expires_at_ms: None,
            idempotency_key: None,
            pacer: None,
        }
    }

    /// Returns the same caller, on a connection whose reads have this pacer.
    pub(super) fn paced_by(self, pacer: &ReadPacer) -> Self {
        Self {
            pacer: Some(pacer.clone()),
            ..self
        }
    }

    /// Waits until the next request of a batch may begin: it takes the permit of a read, as it would alone.
    pub(super) fn turn(&self) -> impl Future<Output = ()> + Send + use<> {
        let pacer = self.pacer.clone();
        async move {
            match pacer {
                Some(pacer) => pacer.permit().await,
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// Returns the caller of a request with these extensions.
    pub(super) fn of(extensions: &Extensions) -> Self {
        let nobody = || Self {
            shown: "".into(),
            identities: Identities::none(),
            expires_at_ms: None,
            idempotency_key: None,
            pacer: None,
        };
        extensions.get().cloned().unwrap_or_else(nobody)
    }

    /// Adds a proven identity, which expires at `expires_at_ms`.
    pub(super) fn prove(&mut self, proven: Identity, expires_at_ms: Option<u64>) {
        self.identities = Identities::new(self.identities.iter().cloned().chain([proven]));
        self.expires_at_ms = expires_at_ms;
    }

    /// Reads the `Idempotency-Key` of a request that may change something. The value may be in
    /// double quotes, as the IETF's draft of the header has it.
    pub(super) fn read_idempotency_key(&mut self, head: &Parts) -> Result<(), Problem> {
        let mut given = head.headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(first) = given.next().filter(|_| head.method != Method::GET) else {
            return Ok(());
        };
        let wrong = |why: &str| Problem::bad_request(format!("the header Idempotency-Key {why}"));
        if given.next().is_some() {
            return Err(wrong("is there twice"));
        }
        let text = first.to_str().map_err(|_| wrong("is not ASCII"))?;
        let unquoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let key =
            RequestId::parse(unquoted.unwrap_or(text)).map_err(|bad| wrong(&format!("is invalid: {bad}")))?;
        self.idempotency_key = Some(key);
        Ok(())
    }

    /// Returns the id of the request: `given` in its body or query, or else its `Idempotency-Key`.
    pub(super) fn request_id(&self, given: Option<RequestId>) -> Result<Option<RequestId>, Problem> {
        match (given, &self.idempotency_key) {
            (Some(given), Some(key)) if given != *key => Err(Problem::bad_request(
                "request_id and the header Idempotency-Key are different",
            )),
            (given, key) => Ok(given.or_else(|| key.clone())),
        }
    }

    /// Returns whether the request has an `Idempotency-Key`.
    pub(super) fn has_idempotency_key(&self) -> bool {
        self.idempotency_key.is_some()
    }

    /// Returns the address for people: `host:port`, or nothing if it is unknown.
    pub fn shown(&self) -> Arc<str> {
        self.shown.clone()
    }

    /// Returns the proven identities.
    pub fn identities(&self) -> Identities {
        self.identities.clone()
    }

    /// Returns a reference to the proven identities.
    pub(super) fn proven(&self) -> &Identities {
        &self.identities
    }

    /// Returns the principal of the proven identities.
    pub(super) fn principal(&self) -> Principal {
        Principal::of(&self.identities)
    }

    /// Returns the key of callers for shared limits: the proven identity, or else the address.
    pub(super) fn shared_by(&self) -> String {
        shared_by(&self.identities)
    }

    /// Returns whether the caller is this node's operator.
    pub(super) fn is_operator(&self) -> bool {
        self.principal() == Principal::Operator
    }

    /// Returns the time at which the proven identities expire.
    pub(super) fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_an_identity_beside_the_address() {
        let certificate = ClientCertificate {
            subject: "CN=orders".to_owned(),
            names: Vec::new(),
        };
        let peer = Peer::new("127.0.0.2:99".parse().unwrap(), Some(&certificate));
        let ip = Identity::Ip("127.0.0.2".parse().unwrap());
        let proven = Identities::new([ip, Identity::X509("CN=orders".into())]);
        assert_eq!(peer.identities(), proven);
    }

    #[test]
    fn a_mapped_address_is_the_address() {
        for (socket, shown, ip) in [
            ("127.0.0.2:99", "127.0.0.2:99", "127.0.0.2"),
            ("[::ffff:127.0.0.2]:99", "127.0.0.2:99", "127.0.0.2"),
            ("[2001:db8::1]:99", "[2001:db8::1]:99", "2001:db8::1"),
        ] {
            let peer = Peer::new(socket.parse().unwrap(), None);
            assert_eq!(&*peer.shown(), shown);
            let proven = Identities::new([Identity::Ip(ip.parse().unwrap())]);
            assert_eq!(peer.identities(), proven, "{socket}");
        }
    }
}
