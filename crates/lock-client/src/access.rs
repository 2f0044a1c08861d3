//! Access control of a cluster: tokens, roles, and certificates with a role. docs/reference/security.md explains them. Almost all calls
//! need the right to administer at `/`.

use std::time::Duration;

use hyper::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::access_grant::AccessGrant;
use crate::client::LockClient;
use crate::encode::{self, millis};
use crate::error::Error;
use crate::http::ApiRequest;
use crate::servers::request_id;
use crate::token::Token;
use crate::words::words;

/// Access control of a cluster; see [`LockClient::access`].
#[derive(Debug, Clone)]
pub struct Access {
    client: LockClient,
}

/// Access control status of a cluster, as one caller sees it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct AccessView {
    /// `true` if the cluster is secured.
    pub secured: bool,
    /// Identity of the caller.
    pub you: Caller,
    /// Other fields of the answer.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

words! {
    /// Proof of identity of a caller.
    CallerKind {
        /// None.
        Nobody = "nobody";
        /// A token.
        Token = "token";
        /// A client certificate.
        Certificate = "certificate";
        /// The operator's token of the node that answers.
        Operator = "operator";
    }
}

/// Identity of a caller.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Caller {
    /// Proof of identity that it has shown.
    pub kind: CallerKind,
    /// The token's id, or the certificate's subject.
    pub name: Option<String>,
    /// Role of the identity.
    pub role: Option<String>,
    /// Other fields of the answer.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Token that was just created. The cluster returns its text this one time.
#[derive(Debug, Clone, Deserialize)]
pub struct NewToken {
    /// Public id.
    pub id: String,
    /// Role that it proves.
    pub role: String,
    /// Time of expiry (RFC 3339); `None` if it is valid until it is revoked.
    #[serde(default)]
    pub expires_at: Option<String>,
    /// The secret.
    #[serde(deserialize_with = "secret")]
    pub token: Token,
}

/// Token, as the list of tokens shows it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct TokenView {
    /// Public id.
    pub id: String,
    /// Role that it proves.
    pub role: String,
    /// Description for people.
    #[serde(default)]
    pub description: String,
    /// Time of creation (RFC 3339).
    #[serde(default)]
    pub created_at: Option<String>,
    /// Time of expiry; `None` if it is valid until it is revoked.
    pub expires_at: Option<String>,
    /// Other fields of the answer.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Role with its access grants.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct RoleView {
    /// Name.
    pub role: String,
    /// Access grants.
    pub grants: Vec<AccessGrant>,
    /// Other fields of the answer.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Certificate with a role.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct CertificateView {
    /// Subject, as RFC 2253 writes it.
    pub subject: String,
    /// Role that it proves.
    pub role: String,
}

impl NewToken {
    /// Returns the token with its secret, for storage.
    pub fn with_secret(&self) -> impl Serialize + use<> {
        json!({
            "id": self.id,
            "role": self.role,
            "expires_at": self.expires_at,
            "token": self.token.expose(),
        })
    }
}

fn secret<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
    let text = String::deserialize(deserializer)?;
    Token::parse(&text).map_err(serde::de::Error::custom)
}

impl LockClient {
    /// Access control of the cluster.
    pub fn access(&self) -> Access {
        Access { client: self.clone() }
    }
}

impl Access {
    /// Returns whether the cluster is secured, and the identity of this client.
    pub async fn status(&self) -> Result<AccessView, Error> {
        self.client
            .servers
            .ask(&ApiRequest::get("/v1/access?linearizable=true".to_owned()))
            .await
    }

    /// Secures the cluster, which cannot be undone, and creates the first administrator's token. Only the operator of a node may call this,
    /// at that node. `anonymous` are the access grants of callers without proof; with `None` the cluster refuses them.
    ///
    /// The client sends this once. After [`Error::Unknown`] read [`Access::status`]: if the cluster is secured, create another token,
    /// which the operator may do too.
    pub async fn secure(
        &self,
        description: &str,
        anonymous: Option<&[AccessGrant]>,
    ) -> Result<NewToken, Error> {
        let mut body = json!({ "description": description });
        if let Some(grants) = anonymous {
            body["anonymous"] = json!(grants);
        }
        let call = ApiRequest::with(Method::POST, "/v1/access/secure".to_owned(), &body);
        self.client.servers.ask_once(&call).await
    }

    /// Creates a token for a role. The client sends this once: after [`Error::Unknown`] a token may exist whose text is lost.
    pub async fn create_token(
        &self,
        role: &str,
        description: &str,
        expires_in: Option<Duration>,
    ) -> Result<NewToken, Error> {
        let body = json!({
            "role": role,
            "description": description,
            "expires_in_ms": expires_in.map(millis),
            "request_id": request_id(),
        });
        let call = ApiRequest::with(Method::POST, "/v1/tokens".to_owned(), &body);
        self.client.servers.ask_once(&call).await
    }

    /// Returns all tokens, by id.
    pub async fn tokens(&self) -> Result<Vec<TokenView>, Error> {
        self.all("/v1/tokens").await
    }

    /// Revokes a token, from now on.
    pub async fn revoke_token(&self, id: &str) -> Result<(), Error> {
        self.delete(format!("/v1/tokens/{}?", encode::segment(id))).await
    }

    /// Returns all roles but `admin`, which has all rights everywhere.
    pub async fn roles(&self) -> Result<Vec<RoleView>, Error> {
        self.all("/v1/roles").await
    }

    /// Returns one role.
    pub async fn role(&self, role: &str) -> Result<RoleView, Error> {
        let path = format!("/v1/roles/{}", encode::segment(role));
        self.client.servers.ask(&ApiRequest::get(path)).await
    }

    /// Creates a role, or replaces its access grants.
    pub async fn set_role(&self, role: &str, grants: &[AccessGrant]) -> Result<(), Error> {
        let path = format!("/v1/roles/{}", encode::segment(role));
        let body = json!({ "grants": grants, "request_id": request_id() });
        self.put(path, &body).await
    }

    /// Deletes a role that no token and no certificate has.
    pub async fn delete_role(&self, role: &str) -> Result<(), Error> {
        self.delete(format!("/v1/roles/{}?", encode::segment(role))).await
    }

    /// Returns all certificates that have a role.
    pub async fn certificates(&self) -> Result<Vec<CertificateView>, Error> {
        self.all("/v1/certificates").await
    }

    /// Gives certificates with this subject a role.
    pub async fn set_certificate(&self, subject: &str, role: &str) -> Result<(), Error> {
        let body = json!({ "subject": subject, "role": role, "request_id": request_id() });
        self.put("/v1/certificates".to_owned(), &body).await
    }

    /// Removes the role of a certificate.
    pub async fn delete_certificate(&self, subject: &str) -> Result<(), Error> {
        self.delete(format!("/v1/certificates?subject={}&", encode::segment(subject)))
            .await
    }

    async fn all<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Error> {
        self.client.all(&format!("{path}?")).await
    }

    async fn put(&self, path: String, body: &Value) -> Result<(), Error> {
        self.client
            .servers
            .call(&ApiRequest::with(Method::PUT, path, body))
            .await
            .map(drop)
    }

    /// `path` ends with `?` or `&`.
    async fn delete(&self, path: String) -> Result<(), Error> {
        let call = ApiRequest::delete(format!("{path}request_id={}", request_id()));
        self.client.servers.call(&call).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_a_new_token_is_in_what_is_stored_and_nowhere_else() {
        let text = r#"{"id": "ab", "role": "admin", "token": "lg_ab_secret"}"#;
        let new: NewToken = serde_json::from_str(text).unwrap();
        assert!(!format!("{new:?}").contains("secret_") && !format!("{new:?}").contains("lg_ab"));
        let stored = serde_json::to_value(new.with_secret()).unwrap();
        assert_eq!(stored["token"], "lg_ab_secret");
        let bad = serde_json::from_str::<NewToken>(r#"{"id": "a", "role": "b", "token": "lg x"}"#);
        assert!(!bad.unwrap_err().to_string().contains("lg x"));
    }
}
