//! Member list: tables of the file, or one variable. The variable can name several members by a range, so that all nodes of a set have the
//! same environment.

use std::collections::BTreeMap;

use lock_node::{MemberAddress, NodeId};

use super::settings::variable;
use super::settings_reader::{SettingsReader, Value};

/// Maximum number of members. Every write waits for a majority of the voters, and all members replicate everything.
const MAX_MEMBERS: u64 = 64;

impl SettingsReader<'_> {
    /// Reads `[members.1]` with `peer` and `http` in the file; `1=PEER/HTTP,2=…` or `1..3=PEER/HTTP` in the environment.
    pub(super) fn members(&mut self) -> BTreeMap<NodeId, MemberAddress> {
        self.read.insert("members");
        let mut members = BTreeMap::new();
        match self.environment.get(&variable("members")) {
            Some(Ok(text)) => self.members_of_variable(&text, &mut members),
            Some(Err(fact)) => self.error("members", &fact),
            None => self.members_of_file(&mut members),
        }
        if members.is_empty() && !self.has_error("members") {
            self.error::<()>("members", "at least one is required");
        }
        let shown = members
            .iter()
            .map(|(id, member)| format!("{id}={}/{}", member.peer, member.http));
        let shown: Vec<String> = shown.collect();
        self.set.insert("members", shown.join(","));
        members
    }

    fn members_of_variable(&mut self, text: &str, members: &mut BTreeMap<NodeId, MemberAddress>) {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((ids, peer, http)) = parse_part(part) else {
                let form = "is not of the form ID=PEER/HTTP or FIRST..LAST=PEER/HTTP";
                self.error::<()>("members", &format!("{part:?} {form}"));
                continue;
            };
            for id in ids {
                let fill = |address: &str| {
                    let ordinal = (id - 1).to_string();
                    address
                        .replace("{id}", &id.to_string())
                        .replace("{ordinal}", &ordinal)
                };
                let (peer, http) = (fill(peer), fill(http));
                self.member(members, id, MemberAddress { peer, http });
            }
        }
    }

    fn members_of_file(&mut self, members: &mut BTreeMap<NodeId, MemberAddress>) {
        let mut listed: BTreeMap<String, BTreeMap<String, Value>> = self
            .sections_below("members")
            .map(|id| (id.to_owned(), BTreeMap::new()))
            .collect();
        if self.contains("members") && listed.is_empty() {
            return self.error("members", "must be tables: [members.1] with peer and http");
        }
        for (name, value, _) in self.below("members") {
            match name.split_once('.') {
                Some((id, field)) => {
                    listed
                        .entry(id.to_owned())
                        .or_default()
                        .insert(field.to_owned(), value);
                }
                None => self.error(
                    &format!("members.{name}"),
                    "must be a table with two texts: peer and http",
                ),
            }
        }
        for (id, mut fields) in listed {
            let name = format!("members.{id}");
            let Some(number) = id.parse::<NodeId>().ok().filter(|id| *id > 0) else {
                self.error::<()>(&name, "the id of a node is a number from 1");
                continue;
            };
            let mut address = |field: &str| match fields.remove(field) {
                Some(Value::Text(text)) => Some(text),
                Some(_) => self.error(&format!("{name}.{field}"), "must be \"HOST:PORT\""),
                None => self.error(&name, &format!("has no {field}, which must be \"HOST:PORT\"")),
            };
            let (peer, http) = (address("peer"), address("http"));
            for field in fields.keys() {
                self.error::<()>(
                    &format!("{name}.{field}"),
                    "unknown setting: a member has peer and http",
                );
            }
            if let (Some(peer), Some(http)) = (peer, http) {
                self.member(members, number, MemberAddress { peer, http });
            }
        }
    }

    fn member(&mut self, members: &mut BTreeMap<NodeId, MemberAddress>, id: NodeId, member: MemberAddress) {
        let name = format!("members.{id}");
        let peer = self.address(&name, member.peer);
        let http = self.address(&name, member.http);
        let same = |one: &String, other: &String| one == other && !one.ends_with(":0");
        let meet = |other: &MemberAddress| {
            let theirs = [&other.peer, &other.http];
            theirs
                .iter()
                .any(|taken| same(taken, &peer) || same(taken, &http))
        };
        let taken = members.iter().find(|(_, other)| meet(other)).map(|(id, _)| *id);
        match taken {
            Some(other) if other != id => {
                self.error::<()>(&name, &format!("has an address of member {other}"));
            }
            _ if same(&peer, &http) => self.error(&name, "has the same address for peers and for HTTP"),
            _ => {}
        }
        if members.insert(id, MemberAddress { peer, http }).is_some() {
            self.error::<()>(&name, "is given twice");
        }
    }

    /// Checks a `host:port`. The host is resolved when it is used.
    pub(super) fn address(&mut self, name: &str, address: String) -> String {
        match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {}
            _ => self.error(name, &format!("{address:?} is not of the form HOST:PORT")),
        }
        address
    }
}

/// Parses one part of the variable: ids, and the two addresses.
fn parse_part(part: &str) -> Option<(std::ops::RangeInclusive<NodeId>, &str, &str)> {
    let (ids, addresses) = part.split_once('=')?;
    let (peer, http) = addresses.split_once('/')?;
    let (first, last) = match ids.split_once("..") {
        Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
        None => {
            let id: NodeId = ids.parse().ok()?;
            (id, id)
        }
    };
    let is_some = 0 < first && first <= last && last - first < MAX_MEMBERS;
    is_some.then_some((first..=last, peer, http))
}
