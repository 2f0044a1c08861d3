//! Callers: anonymous ones, holders of valid and invalid tokens and certificates, the operator.

use serde_json::{Value, json};
use transport_security::ClientCertificate;

use super::House;
use crate::support::until;

/// Path of the callers' grants.
const OWN: &str = "team/a";

/// All rights.
pub const RIGHTS: [&str; 5] = ["read", "lock", "write", "break", "administer"];

/// A caller and its rights.
#[derive(Debug, Clone)]
pub struct Caller {
    pub name: String,
    /// Value of `Authorization`.
    pub shows: Option<String>,
    pub certificate: Option<ClientCertificate>,
    pub standing: Standing,
}

/// Kind of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Without credentials, or with credentials that prove nothing.
    Unproven,
    /// With an invalid token.
    Refused,
    /// Authenticated, with one right below `team/a`, or with none.
    Has(Option<&'static str>),
    /// May read the state of the cluster.
    Watcher,
    /// With all rights.
    Mighty,
}

impl Caller {
    fn new(name: &str, standing: Standing) -> Self {
        Self {
            name: name.to_owned(),
            shows: None,
            certificate: None,
            standing,
        }
    }

    pub fn nobody() -> Self {
        Self::new("nobody", Standing::Unproven)
    }

    pub fn with_token(name: &str, token: &str) -> Self {
        Self::new(name, Standing::Refused).showing(token)
    }

    fn showing(mut self, token: &str) -> Self {
        self.shows = Some(format!("Bearer {token}"));
        self
    }

    fn with_certificate(mut self, subject: &str) -> Self {
        self.certificate = Some(ClientCertificate {
            subject: subject.to_owned(),
            names: Vec::new(),
        });
        self
    }

    pub fn is_let_in(&self) -> bool {
        !matches!(self.standing, Standing::Unproven | Standing::Refused)
    }
}

/// Secures the cluster, and creates all callers.
pub async fn all_callers(house: &House) -> Vec<Caller> {
    let operator = Caller::new("operator", Standing::Mighty).showing(&house.operator);
    let secured = house
        .must(&operator, "POST", "/v1/access/secure", json!({}), 201)
        .await;
    let admin = secured["token"].as_str().unwrap();
    let admin = Caller::new("administrator", Standing::Mighty).showing(admin);
    let make = async |role: &str, more: Value| {
        let mut body = json!({"role": role});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        house.must(&admin, "POST", "/v1/tokens", body, 201).await
    };
    let role = async |role: &str, grants: Value| {
        let (path, body) = (format!("/v1/roles/{role}"), json!({"grants": grants}));
        house.must(&admin, "PUT", &path, body, 200).await;
    };
    let text = |made: &Value| made["token"].as_str().unwrap().to_owned();

    let mut all = vec![
        Caller::nobody(),
        Caller::new("certificate without a role", Standing::Unproven).with_certificate("CN=stranger"),
        Caller::with_token("made-up token", &format!("lg_{:032x}_{:064x}", 7, 7)),
        Caller::with_token("no token at all", "lg_"),
        Caller::with_token("another node's operator", &format!("lg_operator_{:064x}", 7)),
    ];
    let mut basic = Caller::with_token("another scheme", "");
    basic.shows = Some("Basic dXNlcjpwYXNz".to_owned());
    all.push(basic);

    role("none", json!([])).await;
    all.push(
        Caller::new("token without rights", Standing::Has(None))
            .showing(&text(&make("none", json!({})).await)),
    );
    for right in RIGHTS {
        let grants =
            json!([{"path": format!("/{OWN}"), "rights": [right]}, {"locks": OWN, "rights": [right]}]);
        role(right, grants).await;
        let token = text(&make(right, json!({})).await);
        all.push(Caller::new(&format!("token to {right}"), Standing::Has(Some(right))).showing(&token));
        let subject = format!("CN={right}");
        let mapped = json!({"subject": subject, "role": right});
        house.must(&admin, "PUT", "/v1/certificates", mapped, 200).await;
        let caller = Caller::new(&format!("certificate to {right}"), Standing::Has(Some(right)));
        all.push(caller.with_certificate(&subject));
    }
    role(
        "watcher",
        json!([{"path": "/zookeeper/config", "rights": ["read"]}]),
    )
    .await;
    all.push(Caller::new("watcher", Standing::Watcher).showing(&text(&make("watcher", json!({})).await)));

    // A valid secret with another token's id; a valid certificate beside an invalid token.
    let made = text(&make("admin", json!({})).await);
    let other = text(&make("admin", json!({})).await);
    let mixed = format!("{}{}", &made[..35], &other[35..]);
    all.push(Caller::with_token("another's secret", &mixed));
    all.push(Caller::with_token("bad token, good certificate", &mixed).with_certificate("CN=read"));

    let revoked = make("admin", json!({})).await;
    let path = format!("/v1/tokens/{}", revoked["id"].as_str().unwrap());
    house.must(&admin, "DELETE", &path, Value::Null, 204).await;
    all.push(Caller::with_token("revoked token", &text(&revoked)));

    let expired = make("admin", json!({"expires_in_ms": 300})).await;
    let expired = Caller::with_token("expired token", &text(&expired));
    until("the token has expired", async || {
        house
            .ask(&expired, "GET", "/v1/access", &Value::Null)
            .await
            .status
            == 401
    })
    .await;
    all.push(expired);
    all.push(operator);
    all.push(admin);
    all
}
