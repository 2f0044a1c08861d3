//! `lockgate policy`: definitions of roles, and the roles of certificates.

use clap::{Args, Subcommand};
use cli_support::format::Output;
use cli_support::output::{say, shown};
use lock_client::{AccessGrant, CertificateView, RoleView};
use znode_store::{BadRoleName, RoleName};

use super::exit::Failure;
use super::servers::Servers;
use super::table::table;

/// Parses the name of a role.
pub fn role(text: &str) -> Result<String, BadRoleName> {
    RoleName::parse(text).map(|_| text.to_owned())
}

/// Commands on roles. All of them need the right to administer at `/`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a role, or replace its grants
    Set(Set),
    /// List the roles with their grants
    List(List),
    /// Show the grants of a role, one on each line
    Show(Show),
    /// Delete a role that neither a token nor a certificate has
    Delete(Delete),
    /// Assign roles to client certificates
    Certificate {
        #[command(subcommand)]
        command: Certificate,
    },
}

/// `lockgate policy set`
#[derive(Debug, Args)]
pub struct Set {
    /// Name of the role; `anonymous` applies to every caller
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
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate policy show`
#[derive(Debug, Args)]
pub struct Show {
    /// The role
    #[arg(value_parser = role)]
    role: String,
    #[command(flatten)]
    output: Output,
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

/// Commands on certificates.
#[derive(Debug, Subcommand)]
pub enum Certificate {
    /// Assign a role to the certificate with this subject
    Set {
        /// Subject in the form of RFC 2253: CN=billing,O=Example
        subject: String,
        /// The role
        #[arg(value_parser = role)]
        role: String,
        #[command(flatten)]
        servers: Servers,
    },
    /// List the certificates that have a role
    List(List),
    /// Remove the role of a certificate
    Delete {
        /// The subject
        subject: String,
        #[command(flatten)]
        servers: Servers,
    },
}

/// Runs a command.
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
        Command::List(List { output, servers }) => {
            let roles = servers.client()?.access().roles().await?;
            let row = |role: &RoleView| [role.role.clone(), in_words(&role.grants)];
            let rows: Vec<_> = roles.iter().map(row).collect();
            Ok(output.say(&roles, || table(["ROLE", "ALLOWS"], &rows))?)
        }
        Command::Show(Show {
            role,
            output,
            servers,
        }) => {
            let view = servers.client()?.access().role(&role).await?;
            let lines: Vec<String> = view
                .grants
                .iter()
                .map(|grant| shown(&grant.to_string()))
                .collect();
            Ok(output.say(&view, || lines.join("\n"))?)
        }
        Command::Delete(Delete { role, servers }) => {
            servers.client()?.access().delete_role(&role).await?;
            Ok(say(format!("role {} is deleted", shown(&role)))?)
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
        Certificate::List(List { output, servers }) => {
            let certificates = servers.client()?.access().certificates().await?;
            let row = |view: &CertificateView| [view.subject.clone(), view.role.clone()];
            let rows: Vec<_> = certificates.iter().map(row).collect();
            Ok(output.say(&certificates, || table(["CERTIFICATE", "ROLE"], &rows))?)
        }
        Certificate::Delete { subject, servers } => {
            servers.client()?.access().delete_certificate(&subject).await?;
            Ok(say(format!("certificate {subject:?} has no role"))?)
        }
    }
}

/// Formats grants as in the command's arguments.
fn in_words(grants: &[AccessGrant]) -> String {
    let words: Vec<String> = grants.iter().map(AccessGrant::to_string).collect();
    words.join(" ")
}
