//! Redirection of peer connections through the proxy, while the nodes believe that they are connected
//! directly.
//! Each node's namespace rewrites the destination of new connections to a peer to the proxy's port for that
//! link, and resets existing connections. When the rules are removed, new connections are direct again.

use std::fmt::Write as _;

use anyhow::Context;

use super::{Network, Slot, namespace};
use crate::command::run_with;
use crate::proxy::Proxy;

/// Redirects the traffic of all slots to their peers through the proxy.
pub async fn begin(network: &Network, proxy: &Proxy) -> anyhow::Result<()> {
    for from in network.slots() {
        let rules = rules(network, proxy, from)?;
        in_namespace(from, &rules).await?;
    }
    Ok(())
}

/// Removes the redirection; connections through the proxy end.
pub async fn end(network: &Network, proxy: &Proxy) -> anyhow::Result<()> {
    for from in network.slots() {
        in_namespace(from, CLEAR).await?;
    }
    for link in proxy.links() {
        proxy.reset(link);
    }
    Ok(())
}

/// Rules that remove the table, whether it exists or not.
const CLEAR: &str = "add table ip detour\ndelete table ip detour\n";

fn rules(network: &Network, proxy: &Proxy, from: Slot) -> anyhow::Result<String> {
    let mut text = format!(
        "{CLEAR}add table ip detour\n\
         add chain ip detour divert {{ type nat hook output priority -100; policy accept; }}\n\
         add chain ip detour direct {{ type filter hook output priority 0; policy accept; }}\n"
    );
    for to in network.slots().filter(|to| *to != from) {
        let entrance = proxy.entrance((from, to)).context("a link without an entrance")?;
        let peer = network.addresses(to).peer;
        let (ip, port) = (peer.ip(), peer.port());
        // The second chain sees destinations as rewritten by the first one: a packet that is still addressed
        // to the peer belongs to an older connection.
        writeln!(
            text,
            "add rule ip detour divert ip daddr {ip} tcp dport {port} counter dnat to {entrance}\n\
             add rule ip detour direct ip daddr {ip} tcp dport {port} reject with tcp reset"
        )
        .expect("a String takes all");
    }
    Ok(text)
}

async fn in_namespace(slot: Slot, rules: &str) -> anyhow::Result<()> {
    let net = format!("--net=/run/netns/{}", namespace(slot));
    run_with("nsenter", &[&net, "--", "nft", "-f", "-"], rules).await?;
    Ok(())
}
