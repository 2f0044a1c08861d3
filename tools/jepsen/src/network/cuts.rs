//! Cuts of links: frames between two slots are dropped at the switch, in one direction or both.
//! Every fault sets its cuts under a name, and the union of all of them is in force; so faults may overlap.
//! One call of `nft` replaces all rules atomically. Without a switch the proxy holds bytes back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Context;
use serde_json::Value;
use tokio::sync::Mutex;

use super::{Network, Slot};
use crate::command::{run, run_with};
use crate::proxy::Proxy;

/// Direction of a link that is cut: frames from the first slot do not reach the second.
pub type Cut = (Slot, Slot);

/// All cuts of a run.
pub struct Cuts {
    state: Mutex<State>,
    /// True if a switch exists that can drop frames.
    has_switch: bool,
    /// Also applies cuts: traffic through the proxy does not pass the switch under its sender's address.
    proxy: Arc<Proxy>,
}

#[derive(Debug, Default)]
struct State {
    /// Cuts by the name of the fault that has set them.
    wanted: BTreeMap<String, BTreeSet<Cut>>,
    /// Frames dropped so far, except those counted by the present rules.
    dropped: BTreeMap<Cut, u64>,
}

impl State {
    fn all(&self) -> BTreeSet<Cut> {
        self.wanted.values().flatten().copied().collect()
    }
}

impl Cuts {
    /// Creates an empty set of cuts. Without a switch all traffic must pass the proxy.
    pub fn new(has_switch: bool, proxy: Arc<Proxy>) -> Self {
        Self {
            state: Mutex::default(),
            has_switch,
            proxy,
        }
    }

    /// Sets the cuts of a fault; an empty set ends the fault.
    pub async fn set(&self, fault: &str, cuts: BTreeSet<Cut>) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        let before = state.all();
        match cuts.is_empty() {
            true => state.wanted.remove(fault),
            false => state.wanted.insert(fault.to_owned(), cuts),
        };
        let after = state.all();
        if after == before {
            return Ok(());
        }
        self.proxy.cut(&after);
        if self.has_switch {
            count(&mut state).await?;
            run_with("nft", &["-f", "-"], &rules(&after)).await?;
        }
        Ok(())
    }

    /// Returns the number of frames (or portions of bytes) on these links that have been dropped or held back
    /// so far.
    pub async fn dropped(&self, cuts: &BTreeSet<Cut>) -> anyhow::Result<u64> {
        let state = self.state.lock().await;
        let links: BTreeSet<Cut> = cuts
            .iter()
            .flat_map(|(from, to)| [(*from, *to), (*to, *from)])
            .collect();
        let held = links
            .into_iter()
            .map(|link| self.proxy.count(link, |counts| &counts.held));
        let held: u64 = held.sum();
        if !self.has_switch {
            return Ok(held);
        }
        let present = counters().await?;
        let of = |counts: &BTreeMap<Cut, u64>| cuts.iter().filter_map(|cut| counts.get(cut)).sum::<u64>();
        Ok(held + of(&state.dropped) + of(&present))
    }
}

/// Adds the counters of the present rules to the sums, since new rules start at zero.
async fn count(state: &mut State) -> anyhow::Result<()> {
    for (cut, frames) in counters().await? {
        *state.dropped.entry(cut).or_default() += frames;
    }
    Ok(())
}

/// Formats all rules as one transaction of `nft`.
fn rules(cuts: &BTreeSet<Cut>) -> String {
    let mut text = String::from(
        "add table bridge cuts\ndelete table bridge cuts\nadd table bridge cuts\n\
         add chain bridge cuts forward { type filter hook forward priority 0; policy accept; }\n",
    );
    for (from, to) in cuts {
        let (source, destination) = (Network::ip(*from), Network::ip(*to));
        writeln!(
            text,
            "add rule bridge cuts forward ip saddr {source} ip daddr {destination} counter drop comment \"{from}>{to}\""
        )
        .expect("a String takes all");
    }
    text
}

async fn counters() -> anyhow::Result<BTreeMap<Cut, u64>> {
    // The table does not exist before the first cut.
    let tables = run("nft", &["-j", "list", "tables"]).await?;
    if !tables.contains("\"cuts\"") {
        return Ok(BTreeMap::new());
    }
    let listed = run("nft", &["-j", "list", "table", "bridge", "cuts"]).await?;
    read_counters(&listed)
}

fn read_counters(listed: &str) -> anyhow::Result<BTreeMap<Cut, u64>> {
    let listed: Value = serde_json::from_str(listed).context("the output of nft is not JSON")?;
    let items = listed["nftables"].as_array().context("nft lists no items")?;
    let mut counts = BTreeMap::new();
    for rule in items.iter().map(|item| &item["rule"]) {
        let Some((from, to)) = rule["comment"].as_str().and_then(|text| text.split_once('>')) else {
            continue;
        };
        let cut = (from.parse()?, to.parse()?);
        let expressions = rule["expr"].as_array().context("a rule without expressions")?;
        let frames = expressions
            .iter()
            .find_map(|expression| expression["counter"]["packets"].as_u64())
            .context("a rule without a counter")?;
        counts.insert(cut, frames);
    }
    Ok(counts)
}

/// Returns both directions of all links between two sets of slots.
pub fn between(these: &[Slot], those: &[Slot]) -> BTreeSet<Cut> {
    let pairs = these
        .iter()
        .flat_map(|this| those.iter().map(|that| (*this, *that)));
    pairs
        .filter(|(this, that)| this != that)
        .flat_map(|(this, that)| [(this, that), (that, this)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_replace_the_previous_table() {
        let text = rules(&BTreeSet::from([(1, 2)]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "add table bridge cuts",
                "delete table bridge cuts",
                "add table bridge cuts"
            ]
        );
        assert_eq!(
            lines[4],
            "add rule bridge cuts forward ip saddr 10.77.0.1 ip daddr 10.77.0.2 counter drop comment \"1>2\""
        );
        assert_eq!(rules(&BTreeSet::new()).lines().count(), 4);
    }

    #[test]
    fn counters_are_parsed_from_the_output_of_nft() {
        let listed = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"table": {"family": "bridge", "name": "cuts", "handle": 1}},
            {"rule": {"family": "bridge", "table": "cuts", "chain": "forward", "comment": "3>1",
             "expr": [{"match": {}}, {"counter": {"packets": 7, "bytes": 420}}, {"drop": null}]}}]}"#;
        assert_eq!(read_counters(listed).unwrap(), BTreeMap::from([((3, 1), 7)]));
    }

    #[test]
    fn cut_between_two_sides_spares_a_node_on_neither() {
        let bridge = between(&[1, 2], &[4, 5]);
        assert_eq!(bridge.len(), 8);
        assert!(bridge.iter().all(|(from, to)| *from != 3 && *to != 3));
        assert_eq!(between(&[1], &[1]), BTreeSet::new());
    }
}
