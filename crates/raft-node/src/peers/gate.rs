//! Who may talk to whom: every connection between peers begins with both sides showing the cluster's id, their
//! node ids and the names of their data directories.
//!
//! A node whose data directory was lost and made anew has forgotten its votes and what it acknowledged; taking
//! part again under the old id could lose what was committed. The replicated membership names the directory
//! of every member, so such a node is recognised by everybody, and stops.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::wire::{Hello, HelloReply, HelloStart, MAGIC, Purpose, RefusalCause};
use crate::config::{MemberAddress, NodeId};
use crate::types::{ClusterId, DiskId, Member};
use crate::versions::{ProgramVersions, WireRange, commands_of_all, nothing_in_common};

#[derive(Debug, Default)]
struct Known {
    cluster_id: Option<ClusterId>,
    /// What peers said of their programs when they were last connected.
    versions: BTreeMap<NodeId, ProgramVersions>,
    /// The replicated membership; empty until the cluster is formed.
    members: BTreeMap<NodeId, Member>,
    /// Which members' programs have no version in common with this one's, and what to do about it.
    incompatible: BTreeMap<NodeId, String>,
    /// What peers last refused this node for.
    refused_by: BTreeMap<NodeId, String>,
}

/// This node's side of every handshake.
#[derive(Debug)]
pub struct Gate {
    node: NodeId,
    cluster: String,
    disk: DiskId,
    /// What this node speaks, and can apply.
    versions: ProgramVersions,
    /// The members as configured: where they are newer than the membership, they are right.
    configured: BTreeMap<NodeId, MemberAddress>,
    known: Mutex<Known>,
    failure: watch::Sender<Option<String>>,
}

/// Why a peer is not talked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HandshakeError(pub String);

impl Gate {
    /// A gate for `node` with its `disk`. A finding that this node must not go on is put into `failure`.
    pub fn new(
        node: NodeId,
        cluster: String,
        disk: DiskId,
        cluster_id: Option<ClusterId>,
        configured: BTreeMap<NodeId, MemberAddress>,
        failure: watch::Sender<Option<String>>,
    ) -> Self {
        let known = Mutex::new(Known {
            cluster_id,
            ..Known::default()
        });
        Self {
            node,
            cluster,
            disk,
            versions: ProgramVersions::own(),
            configured,
            known,
            failure,
        }
    }

    /// A gate that speaks other versions of the peer protocol than this program does.
    pub fn speaking(mut self, wire: WireRange) -> Self {
        self.versions.wire = wire;
        self
    }

    /// What a node's program speaks and can apply, if it was connected since this node has started.
    pub fn versions_of(&self, node: NodeId) -> Option<ProgramVersions> {
        match node == self.node {
            true => Some(self.versions.clone()),
            false => self.known.lock().versions.get(&node).cloned(),
        }
    }

    /// The newest kinds of commands that all members can apply.
    pub fn commands_of_all(&self) -> u8 {
        let known = self.known.lock();
        let of = |id| match id == self.node {
            true => Some(&self.versions),
            false => known.versions.get(&id),
        };
        commands_of_all(known.members.keys().map(|id| of(*id)))
    }

    /// The version of the peer protocol that is used with a peer.
    pub fn wire_version_with(&self, node: NodeId) -> Option<u16> {
        self.versions_of(node)?.wire.common(self.versions.wire)
    }

    /// Why this node and another one cannot talk to each other, if the versions of their programs are the reason.
    pub fn incompatible(&self) -> Option<String> {
        self.known.lock().incompatible.values().next().cloned()
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The cluster's id, once it is known.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.known.lock().cluster_id
    }

    /// The cluster has this id from now on.
    pub fn set_cluster_id(&self, id: ClusterId) {
        self.known.lock().cluster_id = Some(id);
    }

    /// The replicated membership is this from now on.
    pub fn set_members(&self, members: BTreeMap<NodeId, Member>) {
        self.known.lock().members = members;
    }

    /// All members: the replicated ones, else the configured ones.
    pub fn addresses(&self) -> BTreeMap<NodeId, MemberAddress> {
        let known = self.known.lock();
        let mut addresses: BTreeMap<_, _> = known
            .members
            .iter()
            .map(|(id, member)| (*id, member.address.clone()))
            .collect();
        if addresses.is_empty() {
            addresses = self.configured.clone();
        }
        for (id, address) in &mut addresses {
            if let Some(configured) = self.configured.get(id) {
                *address = configured.clone();
            }
        }
        addresses
    }

    /// Where a peer listens.
    pub fn peer_address(&self, node: NodeId) -> Option<String> {
        if let Some(address) = self.configured.get(&node) {
            return Some(address.peer.clone());
        }
        self.known
            .lock()
            .members
            .get(&node)
            .map(|member| member.address.peer.clone())
    }

    /// What to say to a peer first.
    pub fn hello(&self, to: NodeId, purpose: Purpose) -> Hello {
        let known = self.known.lock();
        Hello {
            magic: MAGIC,
            wire: self.versions.wire,
            cluster: self.cluster.clone(),
            cluster_id: known.cluster_id,
            from: self.node,
            from_disk: self.disk,
            to,
            to_disk: known.members.get(&to).map(|member| member.disk),
            formed: !known.members.is_empty(),
            purpose,
            program: self.versions.program.clone(),
            commands: self.versions.commands,
            extensions: Vec::new(),
        }
    }

    /// The version of the peer protocol in which to go on with a caller; else why there is none. It reads only what is
    /// the same in all versions.
    pub fn agree(&self, start: &HelloStart, from: NodeId) -> Result<u16, (RefusalCause, String)> {
        if start.magic != MAGIC {
            return Err((RefusalCause::Other, "this port is for Lockgate's peers".into()));
        }
        let (ours, theirs) = (self.versions.wire, start.wire);
        let common = ours.common(theirs);
        common.ok_or_else(|| {
            let reason = nothing_in_common(self.node, ours, from, theirs);
            (RefusalCause::Version, reason)
        })
    }

    /// Judges a caller.
    pub fn judge(&self, hello: &Hello) -> HelloReply {
        let mut known = self.known.lock();
        let formed = !known.members.is_empty();
        let refuse = |cause, reason| HelloReply::Refused {
            reason,
            cause,
            formed,
        };
        let version = match self.agree(&hello.start(), hello.from) {
            Ok(version) => version,
            Err((cause, reason)) => return refuse(cause, reason),
        };
        if hello.cluster != self.cluster {
            let reason = format!("node {} belongs to the cluster {:?}", self.node, self.cluster);
            return refuse(RefusalCause::Other, reason);
        }
        if hello.to != self.node {
            let reason = format!("this address is node {}'s, not node {}'s", self.node, hello.to);
            return refuse(RefusalCause::Other, reason);
        }
        if let (Some(ours), Some(theirs)) = (known.cluster_id, hello.cluster_id)
            && ours != theirs
        {
            if hello.formed && !formed {
                self.fail(foreign_directory(self.node, hello.from, theirs, ours));
            }
            let reason = foreign_directory(hello.from, self.node, ours, theirs);
            return refuse(RefusalCause::Identity, reason);
        }
        if hello.to_disk.is_some_and(|disk| disk != self.disk) {
            if !formed {
                self.fail(new_directory(self.node, hello.from));
            }
            let reason = format!(
                "node {} has another data directory than the one asked for",
                self.node
            );
            return refuse(RefusalCause::Other, reason);
        }
        match known.members.get(&hello.from) {
            Some(member) if member.disk != hello.from_disk => {
                refuse(RefusalCause::Identity, new_directory(hello.from, self.node))
            }
            None if formed => refuse(
                RefusalCause::Other,
                format!("node {} is no member of the cluster", hello.from),
            ),
            _ => {
                known.versions.insert(hello.from, hello.versions());
                known.incompatible.remove(&hello.from);
                HelloReply::Welcome {
                    disk: self.disk,
                    version,
                    versions: self.versions.clone(),
                    extensions: Vec::new(),
                }
            }
        }
    }

    /// Takes a peer's answer to this node's hello; returns the peer's disk.
    pub fn accept(&self, hello: &Hello, reply: HelloReply) -> Result<DiskId, HandshakeError> {
        match reply {
            HelloReply::Welcome {
                disk,
                version,
                versions,
                extensions: _,
            } => {
                if self.versions.wire.common(versions.wire) != Some(version) {
                    let what = format!(
                        "node {} goes on in version {version}, which was not offered",
                        hello.to
                    );
                    return Err(HandshakeError(what));
                }
                if hello.to_disk.is_some_and(|expected| expected != disk) {
                    let what = format!("node {} has another data directory than the member", hello.to);
                    return Err(HandshakeError(what));
                }
                let mut known = self.known.lock();
                known.refused_by.remove(&hello.to);
                known.incompatible.remove(&hello.to);
                known.versions.insert(hello.to, versions);
                Ok(disk)
            }
            HelloReply::Refused {
                reason,
                cause,
                formed,
            } => {
                match cause {
                    RefusalCause::Identity => self.refused(hello.to, &reason, formed),
                    RefusalCause::Version => {
                        let incompatible = &mut self.known.lock().incompatible;
                        incompatible.insert(hello.to, reason.clone());
                    }
                    RefusalCause::Other => {}
                }
                Err(HandshakeError(format!("node {} refuses: {reason}", hello.to)))
            }
        }
    }

    /// A peer says that this node is not who it claims to be. A node that never took part believes the first
    /// peer that did; one that has its own history, only a majority.
    fn refused(&self, by: NodeId, reason: &str, they_are_formed: bool) {
        let stop = {
            let mut known = self.known.lock();
            known.refused_by.insert(by, reason.to_owned());
            match known.members.len() {
                0 => they_are_formed,
                members => known.refused_by.len() > members / 2,
            }
        };
        if stop {
            self.fail(reason.to_owned());
        }
    }

    /// This node must not go on.
    pub fn fail(&self, reason: String) {
        self.failure.send_if_modified(|failure| match failure {
            Some(_) => false,
            None => {
                *failure = Some(reason);
                true
            }
        });
    }
}

fn foreign_directory(whose: NodeId, says: NodeId, theirs: ClusterId, its: ClusterId) -> String {
    format!(
        "node {whose}'s data directory belongs to the cluster {its}, but node {says} to the cluster {theirs}: \
         a directory that was lost or mixed up. Put node {whose}'s own directory back, or remove node {whose} \
         from the cluster and let it join under a new id with an empty directory"
    )
}

fn new_directory(whose: NodeId, says: NodeId) -> String {
    format!(
        "node {whose}'s data directory is not the one that the cluster knows (says node {says}): it was lost \
         and made anew, and with it what node {whose} had promised. Put the old directory back, or remove \
         node {whose} from the cluster and let it join under a new id"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: ClusterId = ClusterId([1; 16]);
    const Y: ClusterId = ClusterId([2; 16]);

    fn disk(n: u8) -> DiskId {
        DiskId([n; 16])
    }

    fn address(n: u64) -> MemberAddress {
        MemberAddress {
            peer: format!("127.0.0.1:{n}"),
            http: format!("127.0.0.1:{n}"),
        }
    }

    fn gate(node: NodeId, disk: DiskId, cluster_id: Option<ClusterId>) -> Gate {
        let configured = (1..=3).map(|n| (n, address(n))).collect();
        Gate::new(
            node,
            "test".into(),
            disk,
            cluster_id,
            configured,
            watch::Sender::new(None),
        )
    }

    fn formed(node: NodeId) -> Gate {
        let gate = gate(node, disk(node as u8), Some(X));
        let member = |n: u64| Member {
            address: address(n),
            disk: disk(n as u8),
        };
        gate.set_members((1..=3).map(|n| (n, member(n))).collect());
        gate
    }

    fn failed(gate: &Gate) -> bool {
        gate.failure.borrow().is_some()
    }

    fn talk(from: &Gate, to: &Gate) -> Result<DiskId, HandshakeError> {
        let hello = from.hello(to.node, Purpose::Control);
        from.accept(&hello, to.judge(&hello))
    }

    #[test]
    fn members_talk_to_each_other() {
        assert_eq!(talk(&formed(1), &formed(2)), Ok(disk(2)));
        assert_eq!(
            talk(&gate(1, disk(1), Some(X)), &gate(2, disk(2), None)),
            Ok(disk(2)),
            "when it is formed"
        );
    }

    #[test]
    fn a_node_with_a_new_directory_is_refused_and_stops() {
        let wiped = gate(2, disk(9), None);
        assert!(talk(&formed(1), &wiped).is_err());
        assert!(failed(&wiped), "it was told by a member that calls");

        let wiped = gate(2, disk(9), Some(X));
        assert!(talk(&wiped, &formed(1)).is_err());
        assert!(failed(&wiped), "it was told when it called");
    }

    #[test]
    fn the_founder_with_a_new_directory_is_refused_and_stops() {
        let wiped = gate(1, disk(9), Some(Y));
        let member = formed(2);
        assert!(talk(&wiped, &member).is_err());
        assert!(failed(&wiped));
        assert!(!failed(&member));

        let wiped = gate(1, disk(9), Some(Y));
        assert!(talk(&member, &wiped).is_err());
        assert!(failed(&wiped));
        assert!(
            !failed(&member),
            "one lost directory does not take the others down"
        );
    }

    #[test]
    fn a_member_of_another_cluster_believes_only_a_majority() {
        let stray = formed(3);
        stray.set_cluster_id(Y);
        assert!(talk(&stray, &formed(1)).is_err());
        assert!(!failed(&stray));
        assert!(talk(&stray, &formed(2)).is_err());
        assert!(failed(&stray));
    }

    #[test]
    fn strangers_are_refused() {
        let member = formed(1);
        let refused = |change: fn(&mut Hello)| {
            let mut hello = formed(2).hello(1, Purpose::Append);
            change(&mut hello);
            matches!(
                member.judge(&hello),
                HelloReply::Refused {
                    cause: RefusalCause::Other,
                    ..
                }
            )
        };
        assert!(refused(|hello| hello.magic = *b"GET / HT"));
        assert!(refused(|hello| hello.cluster = "another".into()));
        assert!(refused(|hello| hello.to = 3));
        assert!(refused(|hello| hello.from = 4));
    }

    #[test]
    fn members_of_other_versions_talk_in_the_highest_that_both_speak() {
        let range = |oldest, newest| WireRange { oldest, newest };
        let (old, new) = (formed(1).speaking(range(3, 5)), formed(2).speaking(range(4, 9)));
        for (from, to) in [(&old, &new), (&new, &old)] {
            assert!(talk(from, to).is_ok());
            assert_eq!(from.wire_version_with(to.node), Some(5));
            assert_eq!(to.wire_version_with(from.node), Some(5));
        }
        let newest = formed(3).speaking(range(6, 7));
        for (from, to) in [(&old, &newest), (&newest, &old)] {
            let refused = talk(from, to).unwrap_err().to_string();
            assert!(refused.contains("node 1 speaks versions 3 to 5"), "{refused}");
            assert!(refused.contains("upgrade all nodes step by step"), "{refused}");
            assert!(from.incompatible().is_some());
            assert!(
                !failed(from) && !failed(to),
                "it may be mended by an upgrade of the other"
            );
        }
    }

    #[test]
    fn what_all_members_can_apply_is_known_when_all_were_met() {
        let gate = formed(1);
        assert_eq!(gate.commands_of_all(), 1);
        let mut newer = formed(2);
        newer.versions.commands = 7;
        talk(&newer, &gate).unwrap();
        assert_eq!(gate.versions_of(2).map(|versions| versions.commands), Some(7));
        assert_eq!(gate.versions_of(3), None);
        assert_eq!(gate.commands_of_all(), 1, "node 3 may be an old one");
    }
}
