//! Peers' connections led through the proxy, while the nodes believe that they talk to each other directly.
//!
//! Each node's namespace rewrites the destination of new connections to a peer into the proxy's entrance for that link, and
//! resets those that are there already. When the rules are gone, new connections go directly again.

use std::fmt::Write as _;

use anyhow::Context;

use super::{Network, Slot, namespace};
use crate::command::run_with;
use crate::proxy::Proxy;

/// Leads what these places send to peers through the proxy.
pub async fn begin(network: &Network, proxy: &Proxy) -> anyhow::Result<()> {
    for from in network.slots() {
        let rules = rules(network, proxy, from)?;
        in_namespace(from, &rules).await?;
    }
    Ok(())
}

/// Everything goes directly again; connections through the proxy end.
pub async fn end(network: &Network, proxy: &Proxy) -> anyhow::Result<()> {
    for from in network.slots() {
        in_namespace(from, CLEAR).await?;
    }
    for link in proxy.links() {
        proxy.reset(link);
    }
    Ok(())
}

/// Removes what is there, and is no error if nothing is.
const CLEAR: &str = "add table ip detour\ndelete table ip detour\n";

fn rules(network: &Network, proxy: &Proxy, from: Slot) -> anyhow::Result<String> {
    let mut text = format!(
        "{CLEAR}add table ip detour\n\
         add chain ip detour divert {{ type nat hook output priority -100; policy accept; }}\n\
         add chain ip detour direct {{ type filter hook output priority 0; policy accept; }}\n"
    );
    for to in network.slots().filter(|to| *to != from) {
        let entrance = proxy.entrance((from, to)).context("every link has an entrance")?;
        let peer = network.addresses(to).peer;
        let (ip, port) = (peer.ip(), peer.port());
        // The second chain sees destinations as the first one left them: whoever still goes to the peer itself was connected
        // before.
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
