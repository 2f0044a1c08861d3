//! Certificates of a cluster on one machine, for tests.
//!
//! | path below the cluster's directory | contents |
//! |---|---|
//! | `ca.pem`, `ca.key` | the authority |
//! | `client.pem`, `client.key` | a client's certificate, `CN=try-out` |
//! | `node-N/node.pem`, `node-N/node.key` | a node's certificate |

use std::path::{Path, PathBuf};

use anyhow::Context;
use cli_support::certificates::{CA_CERTIFICATE, days, make_authority, put, read_authority};
use transport_security::issue::CertificateRequest;
use transport_security::{ClientTls, PeerName};

use super::layout::{CLUSTER, LocalNode};

/// TLS settings of every node's configuration.
pub const SETTINGS: &str = "\n[tls]\ncertificate = \"node.pem\"\nkey = \"node.key\"\nca = \"../ca.pem\"\n";

/// Validity of the certificates, longer than any test.
const VALID_DAYS: u32 = 365;

/// Common name of the client's certificate.
const CLIENT: &str = "try-out";

/// Subject of that certificate.
pub const CLIENT_SUBJECT: &str = "CN=try-out";

/// Creates an authority in the cluster's directory, and a client's certificate.
pub fn create(dir: &Path) -> anyhow::Result<()> {
    let [_, _] = make_authority(dir, "Lockgate try-out", days(VALID_DAYS))?;
    let client = read_authority(dir)?.issue(&CertificateRequest::client(CLIENT, days(VALID_DAYS)))?;
    let [_, _] = put(&client, dir.join("client.pem"), dir.join("client.key"))?;
    Ok(())
}

/// Creates a node's certificate.
pub fn create_for(node: &LocalNode) -> anyhow::Result<()> {
    let dir = node
        .dir
        .parent()
        .context("a node's directory is in the cluster's")?;
    let name = PeerName {
        cluster: CLUSTER.to_owned(),
        node: node.id,
    };
    let hosts = ["127.0.0.1", "::1", "localhost"].map(str::to_owned);
    let issued = read_authority(dir)?.issue(&CertificateRequest::node(&name, &hosts, days(VALID_DAYS)))?;
    let [_, _] = put(&issued, node.dir.join("node.pem"), node.dir.join("node.key"))?;
    Ok(())
}

/// Returns the authority's certificate, if the cluster in this directory uses TLS.
pub fn authority(dir: &Path) -> Option<PathBuf> {
    Some(dir.join(CA_CERTIFICATE)).filter(|path| path.exists())
}

/// Returns the TLS configuration for clients that present no certificate; `None` without TLS.
pub fn client_without_certificate(dir: &Path) -> anyhow::Result<Option<ClientTls>> {
    match authority(dir) {
        None => Ok(None),
        Some(ca) => Ok(Some(ClientTls::new(&ca, None)?)),
    }
}

/// Returns the TLS configuration for clients of the cluster in this directory; `None` without TLS.
pub fn client(dir: &Path) -> anyhow::Result<Option<ClientTls>> {
    match authority(dir) {
        None => Ok(None),
        Some(ca) => {
            let (certificate, key) = (dir.join("client.pem"), dir.join("client.key"));
            Ok(Some(ClientTls::new(&ca, Some((&certificate, &key)))?))
        }
    }
}
