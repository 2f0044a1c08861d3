//! Certificates of a cluster on one machine, for a try-out.
//!
//! | path below the cluster's directory | what it is |
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

/// What stands in the nodes' configurations, the same in all of them.
pub const SETTINGS: &str = "\n[tls]\ncertificate = \"node.pem\"\nkey = \"node.key\"\nca = \"../ca.pem\"\n";

/// A try-out is over by then.
const VALID_DAYS: u32 = 365;

/// What the try-out's client is called.
const CLIENT: &str = "try-out";

/// Makes an authority in the cluster's directory, and a client's certificate.
pub fn make(dir: &Path) -> anyhow::Result<()> {
    let [_, _] = make_authority(dir, "Lockgate try-out", days(VALID_DAYS))?;
    let client = read_authority(dir)?.issue(&CertificateRequest::client(CLIENT, days(VALID_DAYS)))?;
    let [_, _] = put(&client, dir.join("client.pem"), dir.join("client.key"))?;
    Ok(())
}

/// Makes a node's certificate.
pub fn make_for(node: &LocalNode) -> anyhow::Result<()> {
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

/// The authority's certificate, if the cluster in this directory has TLS.
pub fn authority(dir: &Path) -> Option<PathBuf> {
    Some(dir.join(CA_CERTIFICATE)).filter(|path| path.exists())
}

/// How the nodes of the cluster in this directory are asked.
pub fn client(dir: &Path) -> anyhow::Result<Option<ClientTls>> {
    match authority(dir) {
        None => Ok(None),
        Some(ca) => {
            let (certificate, key) = (dir.join("client.pem"), dir.join("client.key"));
            Ok(Some(ClientTls::new(&ca, Some((&certificate, &key)))?))
        }
    }
}
