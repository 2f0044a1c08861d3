//! Callers of a measurement: the well-behaved ones, and those that attack. In a secured cluster each has a token of its own, which exists
//! while the measurement runs.

use std::time::Duration;

use anyhow::Context;
use cli_support::credentials::Credentials;
use local_cluster::{CLIENT_SUBJECT, LocalCluster};
use lock_client::{Access, AccessGrant, LockClient, Token};
use serde::Serialize;

use crate::nodes::Nodes;

/// Prefix of the locks, and name of the znode, at which attackers with rights have them.
pub const PREFIX: &str = "attack";

/// Time after which the tokens expire, if the measurement could not delete them. No measurement takes longer.
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Attacker of a secured cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caller {
    /// Caller without a token.
    Stranger,
    /// Caller with a token whose role has no rights.
    NoRights,
    /// Caller with a token whose role may lock, and read and write znodes, below [`PREFIX`].
    Prefix,
}

impl Caller {
    /// All attackers.
    pub const ALL: [Self; 3] = [Self::Stranger, Self::NoRights, Self::Prefix];

    /// Returns the name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stranger => "stranger",
            Self::NoRights => "no-rights",
            Self::Prefix => "prefix",
        }
    }
}

/// Role that the measurement creates, with the rights of its one token.
struct BenchRole {
    name: &'static str,
    grants: &'static [&'static str],
}

const HONEST: BenchRole = BenchRole {
    name: "bench-honest",
    grants: &["read,lock:bench"],
};
const NO_RIGHTS: BenchRole = BenchRole {
    name: "bench-no-rights",
    grants: &[],
};
const PREFIX_ROLE: BenchRole = BenchRole {
    name: "bench-prefix",
    grants: &["read,lock:attack", "read,write:/attack"],
};

/// Callers of a measurement, with their credentials.
pub struct Callers {
    /// The well-behaved callers.
    pub honest: Nodes,
    /// The administrator, who prepares attacks and removes their sessions. In a secured cluster it presents a token and no certificate,
    /// because a request with both has only the rights that both have.
    pub admin: Nodes,
    /// Caller without a token and without a certificate.
    stranger: Nodes,
    /// Tokens of a secured cluster; `None` if the cluster is open to everybody.
    tokens: Option<Tokens>,
}

struct Tokens {
    access: Access,
    ids: Vec<String>,
    /// True if the client certificate of the cluster has the role of the caller with rights.
    has_certificate: bool,
    no_rights: Nodes,
    prefix: Nodes,
}

impl Callers {
    /// Creates the roles and tokens, if the administrator has a token.
    pub async fn create(cluster: &LocalCluster, admin: Nodes) -> anyhow::Result<Self> {
        let addresses = cluster.http_addresses();
        let stranger = Credentials {
            tls: cluster.tls_without_certificate()?,
            ..Credentials::default()
        };
        let with = |token: Option<Token>| {
            let credentials = Credentials {
                token,
                ..stranger.clone()
            };
            Nodes::new(addresses.clone(), credentials)
        };
        let Some(token) = admin.credentials().token.clone() else {
            return Ok(Self {
                honest: admin.clone(),
                stranger: with(None),
                admin,
                tokens: None,
            });
        };
        let admin = with(Some(token.clone()));
        let mut client = LockClient::builder(&addresses).token(token);
        if let Some(tls) = stranger.tls.clone() {
            client = client.tls(tls);
        }
        let access = client.build()?.access();
        let mut ids = Vec::new();
        let created = async {
            let honest = with(Some(create(&access, HONEST, &mut ids).await?));
            let no_rights = with(Some(create(&access, NO_RIGHTS, &mut ids).await?));
            let token = create(&access, PREFIX_ROLE, &mut ids).await?;
            let certificates = access.certificates().await?;
            let has_certificate =
                cluster.is_secured() && !certificates.iter().any(|found| found.subject == CLIENT_SUBJECT);
            if has_certificate {
                access.set_certificate(CLIENT_SUBJECT, PREFIX_ROLE.name).await?;
            }
            // A ZooKeeper client opens its session before it presents a token, so it needs a certificate.
            let prefix = Credentials {
                tls: cluster.tls().cloned(),
                token: Some(token),
                insecure: false,
            };
            anyhow::Ok((
                honest,
                no_rights,
                Nodes::new(addresses.clone(), prefix),
                has_certificate,
            ))
        };
        let created = created.await;
        let (honest, no_rights, prefix, has_certificate) =
            created.context("creating tokens for the callers, which needs the token of an administrator")?;
        Ok(Self {
            honest,
            admin,
            stranger: with(None),
            tokens: Some(Tokens {
                access,
                ids,
                has_certificate,
                no_rights,
                prefix,
            }),
        })
    }

    /// Returns the attackers among `callers`, with their credentials. In an open cluster all are the same unknown caller.
    pub fn attackers(&self, callers: &[Caller]) -> Vec<(Option<Caller>, Nodes)> {
        let Some(tokens) = &self.tokens else {
            return vec![(None, self.stranger.clone())];
        };
        let nodes = |caller: &Caller| match caller {
            Caller::Stranger => &self.stranger,
            Caller::NoRights => &tokens.no_rights,
            Caller::Prefix => &tokens.prefix,
        };
        callers
            .iter()
            .map(|caller| (Some(*caller), nodes(caller).clone()))
            .collect()
    }

    /// Deletes the tokens and roles.
    pub async fn delete(self) -> anyhow::Result<()> {
        let Some(tokens) = self.tokens else {
            return Ok(());
        };
        if tokens.has_certificate {
            tokens.access.delete_certificate(CLIENT_SUBJECT).await?;
        }
        for id in &tokens.ids {
            tokens.access.revoke_token(id).await?;
        }
        for role in [HONEST, NO_RIGHTS, PREFIX_ROLE] {
            tokens.access.delete_role(role.name).await?;
        }
        Ok(())
    }
}

/// Creates a role with a token, which it returns.
async fn create(access: &Access, role: BenchRole, ids: &mut Vec<String>) -> anyhow::Result<Token> {
    let grants = role.grants.iter().map(|grant| grant.parse());
    let grants = grants.collect::<Result<Vec<AccessGrant>, _>>()?;
    access.set_role(role.name, &grants).await?;
    let created = access.create_token(role.name, "lockgate bench attack", Some(TOKEN_LIFETIME));
    let created = created.await?;
    ids.push(created.id);
    Ok(created.token)
}
