//! Who may do what in a cluster: securing it, tokens, roles, and certificates that have a role. What it means stands in
//! docs/security.md. Almost all of it needs the right to administer at `/`.

use std::time::Duration;

use hyper::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::access_grant::Grant;
use crate::client::LockClient;
use crate::encode::{self, millis};
use crate::error::Error;
use crate::http::Call;
use crate::servers::request_id;
use crate::token::Token;

/// Who may do what; see [`LockClient::access`].
#[derive(Debug, Clone)]
pub struct Access {
    client: LockClient,
}

/// Whether it counts who may do what, and who asks.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct AccessView {
    /// Whether the cluster is secured.
    pub secured: bool,
    /// What the caller is known as.
    pub you: Caller,
    /// What else was said.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// What a caller is known as.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Caller {
    /// What it has proven to be: `nobody`, `token`, `certificate` or `operator`.
    pub kind: String,
    /// The token's id, or the certificate's subject.
    pub name: Option<String>,
    /// The role that it has by that.
    pub role: Option<String>,
    /// What else was said.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A token that was just made. Its text is told this one time.
#[derive(Debug, Clone, Deserialize)]
pub struct NewToken {
    /// Its name.
    pub id: String,
    /// What it stands for.
    pub role: String,
    /// Until when it counts (RFC 3339); `None`: until it is revoked.
    #[serde(default)]
    pub expires_at: Option<String>,
    /// The secret.
    #[serde(deserialize_with = "secret")]
    pub token: Token,
}

/// A token as everybody may see it who administers.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct TokenView {
    /// Its name.
    pub id: String,
    /// What it stands for.
    pub role: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// When it was made (RFC 3339).
    #[serde(default)]
    pub created_at: Option<String>,
    /// Until when it counts; `None`: until it is revoked.
    pub expires_at: Option<String>,
    /// What else was said.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A role.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct RoleView {
    /// Its name.
    pub role: String,
    /// What it allows.
    pub grants: Vec<Grant>,
    /// What else was said.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A certificate that has a role.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct CertificateView {
    /// Its subject, as RFC 2253 writes it.
    pub subject: String,
    /// What it stands for.
    pub role: String,
}

impl NewToken {
    /// All of it, with the secret: for whoever stores it.
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
    /// Who may do what in the cluster.
    pub fn access(&self) -> Access {
        Access { client: self.clone() }
    }
}

impl Access {
    /// Whether the cluster is secured, and as whom it knows this client.
    pub async fn look(&self) -> Result<AccessView, Error> {
        self.client
            .servers
            .ask(&Call::get("/v1/access?linearizable=true".to_owned()))
            .await
    }

    /// Secures the cluster, for good, and makes the first administrator's token. Only the operator may, at its own node.
    /// `anonymous` is what everybody may from then on; `None`: who proves nothing is not let in.
    ///
    /// It is sent once. After [`Error::Unknown`] look whether the cluster is secured, and if it is, have another token made:
    /// the operator may that, too.
    pub async fn secure(&self, description: &str, anonymous: Option<&[Grant]>) -> Result<NewToken, Error> {
        let mut body = json!({ "description": description });
        if let Some(grants) = anonymous {
            body["anonymous"] = json!(grants);
        }
        let call = Call::with(Method::POST, "/v1/access/secure".to_owned(), &body);
        self.client.servers.ask_once(&call).await
    }

    /// Makes a token for a role. It is sent once: after [`Error::Unknown`] there may be one that nobody has.
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
        let call = Call::with(Method::POST, "/v1/tokens".to_owned(), &body);
        self.client.servers.ask_once(&call).await
    }

    /// All tokens, by id.
    pub async fn tokens(&self) -> Result<Vec<TokenView>, Error> {
        self.all("/v1/tokens").await
    }

    /// Revokes a token: from now on it counts for nothing.
    pub async fn revoke_token(&self, id: &str) -> Result<(), Error> {
        self.delete(format!("/v1/tokens/{}?", encode::segment(id))).await
    }

    /// All roles but `admin`, which has all rights everywhere.
    pub async fn roles(&self) -> Result<Vec<RoleView>, Error> {
        self.all("/v1/roles").await
    }

    /// One role.
    pub async fn role(&self, role: &str) -> Result<RoleView, Error> {
        let path = format!("/v1/roles/{}", encode::segment(role));
        self.client.servers.ask(&Call::get(path)).await
    }

    /// Makes a role, or replaces what it allows.
    pub async fn set_role(&self, role: &str, grants: &[Grant]) -> Result<(), Error> {
        let path = format!("/v1/roles/{}", encode::segment(role));
        let body = json!({ "grants": grants, "request_id": request_id() });
        self.put(path, &body).await
    }

    /// Unmakes a role that nobody has.
    pub async fn delete_role(&self, role: &str) -> Result<(), Error> {
        self.delete(format!("/v1/roles/{}?", encode::segment(role))).await
    }

    /// All certificates that have a role.
    pub async fn certificates(&self) -> Result<Vec<CertificateView>, Error> {
        self.all("/v1/certificates").await
    }

    /// Gives whoever shows a certificate with this subject a role.
    pub async fn set_certificate(&self, subject: &str, role: &str) -> Result<(), Error> {
        let body = json!({ "subject": subject, "role": role, "request_id": request_id() });
        self.put("/v1/certificates".to_owned(), &body).await
    }

    /// Takes a certificate's role away.
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
            .call(&Call::with(Method::PUT, path, body))
            .await
            .map(drop)
    }

    /// `path` ends with `?` or `&`.
    async fn delete(&self, path: String) -> Result<(), Error> {
        let call = Call {
            method: Method::DELETE,
            path: format!("{path}request_id={}", request_id()),
            body: Default::default(),
        };
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
