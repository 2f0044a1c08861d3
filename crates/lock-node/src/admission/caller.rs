//! Names of callers, for resources of which one caller gets a share.

use listener::client_network;
use znode_store::{Identities, Identity, Principal};

/// Returns the key of a caller for shared resources: the proven identity, or else the address.
pub fn shared_by(caller: &Identities) -> String {
    match Principal::of(caller) {
        Principal::Nobody => caller
            .iter()
            .find_map(|identity| match identity {
                Identity::Ip(ip) => Some(client_network(*ip).to_string()),
                _ => None,
            })
            .unwrap_or_default(),
        principal => principal.to_string(),
    }
}
