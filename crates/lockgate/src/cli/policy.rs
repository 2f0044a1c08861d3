//! `lockgate policy`: what roles allow, and which certificates have one.

use clap::{Args, Subcommand};
use cli_support::output::{say, shown};
use lock_client::{AccessGrant, CertificateView, RoleView};
use znode_store::{BadRoleName, RoleName};

use super::exit::Failure;
use super::locks::say_json;
use super::servers::Servers;
use super::table::table;

/// Checks a role's name, as an argument has it.
pub fn role(text: &str) -> Result<String, BadRoleName> {
    RoleName::parse(text).map(|_| text.to_owned())
}

/// What can be done with roles. All of it needs the right to administer at `/`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a role, or replace what it allows
    Set(Set),
    /// List the roles with what they allow
    List(List),
    /// Show what a role allows, a grant on each line
    Show(Show),
    /// Delete a role that no token and no certificate has
    Delete(Delete),
    /// Give client certificates a role
    Certificate {
        #[command(subcommand)]
        command: Certificate,
    },
}

/// `lockgate policy set`
#[derive(Debug, Args)]
pub struct Set {
    /// The role; `anonymous` is everybody's
    #[arg(value_parser = role)]
    role: String,
    /// RIGHTS:PLACE, such as read,lock:orders (locks), read:/config (znodes) or all:/. Rights: read, lock, write, break,
    /// administer
    #[arg(required = true)]
    grants: Vec<AccessGrant>,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate policy list`, `lockgate policy certificate list`
#[derive(Debug, Args)]
pub struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate policy show`
#[derive(Debug, Args)]
pub struct Show {
    /// The role
    #[arg(value_parser = role)]
    role: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate policy delete`
#[derive(Debug, Args)]
pub struct Delete {
    /// The role
    #[arg(value_parser = role)]
    role: String,
    #[command(flatten)]
    servers: Servers,
}

/// What can be done with certificates.
#[derive(Debug, Subcommand)]
pub enum Certificate {
    /// Give whoever shows a certificate with this subject a role
    Set {
        /// The subject, as RFC 2253 writes it: CN=billing,O=Example
        subject: String,
        /// The role
        #[arg(value_parser = role)]
        role: String,
        #[command(flatten)]
        servers: Servers,
    },
    /// List the certificates that have a role
    List(List),
    /// Take a certificate's role away
    Delete {
        /// The subject
        subject: String,
        #[command(flatten)]
        servers: Servers,
    },
}

/// Does one of them.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Set(Set {
            role,
            grants,
            servers,
        }) => {
            servers.client()?.access().set_role(&role, &grants).await?;
            Ok(say(format!(
                "role {} allows {}",
                shown(&role),
                shown(&in_words(&grants))
            ))?)
        }
        Command::List(List { json, servers }) => {
            let roles = servers.client()?.access().roles().await?;
            if json {
                return Ok(say_json(&roles)?);
            }
            let row = |role: &RoleView| [role.role.clone(), in_words(&role.grants)];
            let rows: Vec<_> = roles.iter().map(row).collect();
            Ok(say(table(["ROLE", "ALLOWS"], &rows))?)
        }
        Command::Show(Show { role, json, servers }) => {
            let view = servers.client()?.access().role(&role).await?;
            if json {
                return Ok(say_json(&view)?);
            }
            for grant in &view.grants {
                say(shown(&grant.to_string()))?;
            }
            Ok(())
        }
        Command::Delete(Delete { role, servers }) => {
            servers.client()?.access().delete_role(&role).await?;
            Ok(say(format!("role {} is no more", shown(&role)))?)
        }
        Command::Certificate { command } => certificate(command).await,
    }
}

async fn certificate(command: Certificate) -> Result<(), Failure> {
    match command {
        Certificate::Set {
            subject,
            role,
            servers,
        } => {
            let access = servers.client()?.access();
            access.set_certificate(&subject, &role).await?;
            Ok(say(format!("certificate {subject:?} has role {}", shown(&role)))?)
        }
        Certificate::List(List { json, servers }) => {
            let certificates = servers.client()?.access().certificates().await?;
            if json {
                return Ok(say_json(&certificates)?);
            }
            let row = |view: &CertificateView| [view.subject.clone(), view.role.clone()];
            let rows: Vec<_> = certificates.iter().map(row).collect();
            Ok(say(table(["CERTIFICATE", "ROLE"], &rows))?)
        }
        Certificate::Delete { subject, servers } => {
            servers.client()?.access().delete_certificate(&subject).await?;
            Ok(say(format!("certificate {subject:?} has no role"))?)
        }
    }
}

/// As they are given, one after the other.
fn in_words(grants: &[AccessGrant]) -> String {
    let words: Vec<String> = grants.iter().map(AccessGrant::to_string).collect();
    words.join(" ")
}
