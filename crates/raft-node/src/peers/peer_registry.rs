//! Admission of peers: at the start of every connection both sides show the cluster's id, their node ids and
//! the ids of their data directories.
//!
//! A node whose data directory was lost and created again has forgotten its votes and its acknowledgements;
//! if it took part under the old id, committed entries could be lost. The replicated membership names the
//! directory of every member, so all members recognise such a node, and it stops. So does a node that was
//! removed: ids of removed members are recorded permanently.
//!
//! An address only says where a node may be; the handshake identifies it. The membership's addresses are
//! tried first, since nodes report changes of their addresses to the cluster. Then follow the configured
//! ones, which are the only ones before the cluster is formed, and help if all nodes move at once.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use listener::{LogLimit, client_network};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use transport_security::PeerTls;

use super::wire::{
    CLOCK_EXTENSION, Hello, HelloReply, HelloStart, MAGIC, Purpose, RefusalCause, WITNESS_EXTENSION,
};
use crate::cluster_clock::ClusterClock;
use crate::ids::{ClusterId, DiskId, Member};
use crate::ids::{MemberAddress, NodeId};
use crate::membership::RetiredIds;
use crate::panics::Failure;
use crate::versions::{
    OLDEST_COMMANDS_VERSION, ProgramVersions, WireRange, commands_of_all, no_common_version,
};
use crate::witness::{Loss, Shown, Witness};
use crate::{blocking, codec};
use raft_log::sync::Mutex;

#[derive(Debug, Default)]
struct Known {
    cluster_id: Option<ClusterId>,
    /// Versions of the peers' programs, from their last connection.
    versions: BTreeMap<NodeId, ProgramVersions>,
    /// Members whose programs share no version with this one, and the remedy.
    incompatible: BTreeMap<NodeId, String>,
    /// Replicated membership; empty until the cluster is formed. While a change is not committed, it has the
    /// members before and after the change: a leader that must be able to connect to this node may still undo
    /// the change.
    members: BTreeMap<NodeId, Member>,
    /// Ids that are never assigned again.
    retired: RetiredIds,
    /// Peers that have refused this node's identity.
    refused_by: BTreeSet<NodeId>,
    /// Addresses at which peers were last reached.
    found_at: BTreeMap<NodeId, String>,
    /// Last reason for which each caller was refused, so that repeated calls are logged once.
    logged: BTreeMap<NodeId, String>,
    /// Members that were refused because their data directory is older than what they acknowledged, and why.
    rolled_back: BTreeMap<NodeId, String>,
    /// This node was removed from the cluster.
    removed: bool,
}

/// Maximum number of remembered rejections, which are not logged again. A caller may claim any id.
const MAX_LOGGED: usize = 64;

/// This node's side of every handshake.
#[derive(Debug)]
pub struct PeerRegistry {
    node: NodeId,
    cluster: String,
    disk: DiskId,
    /// Versions of this program.
    versions: ProgramVersions,
    /// Members as configured.
    configured: BTreeMap<NodeId, MemberAddress>,
    known: Mutex<Known>,
    /// Number of changes to the set of admitted peers.
    changes: watch::Sender<u64>,
    failure: Failure,
    /// TLS between peers; `None` means plain TCP.
    tls: Option<PeerTls>,
    /// Last known start of each member's data directory.
    witness: Arc<Witness>,
    /// The members' wall clocks.
    clock: Arc<ClusterClock>,
    /// This node's state is known to differ from the other members' state.
    wrong_state: AtomicBool,
    /// Limit of log lines about rejected callers.
    rejection_log: LogLimit<Option<IpAddr>>,
}

/// Reason for which a peer was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HandshakeError(pub String);

impl PeerRegistry {
    /// Creates the registry of `node` with its `disk`. A finding that this node must stop is reported to
    /// `failure`.
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
            versions: ProgramVersions::own(OLDEST_COMMANDS_VERSION),
            configured,
            known,
            changes: watch::Sender::new(0),
            failure: Failure::new(failure),
            tls: None,
            witness: Arc::new(Witness::in_memory(node, disk, Shown::default())),
            clock: Arc::default(),
            wrong_state: AtomicBool::new(false),
            rejection_log: LogLimit::default(),
        }
    }

    /// Sets the record in which each start of a member is noted.
    pub fn with_witness(mut self, witness: Arc<Witness>) -> Self {
        self.witness = witness;
        self
    }

    /// Sets the clock whose time this node shows, and which records the times that peers show.
    pub fn with_clock(mut self, clock: Arc<ClusterClock>) -> Self {
        // Valid until the membership is known.
        clock.set_members(self.configured.keys().copied().collect());
        self.clock = clock;
        self
    }

    /// Returns the members' wall clocks.
    pub fn clock(&self) -> &ClusterClock {
        &self.clock
    }

    /// Returns whether this node's state is known to differ from that of the other members. Then no snapshot
    /// is made of it, and this node must not lead.
    pub fn has_wrong_state(&self) -> bool {
        self.wrong_state.load(Ordering::Relaxed)
    }

    /// Sets the value of [`PeerRegistry::has_wrong_state`].
    pub fn set_wrong_state(&self, wrong: bool) {
        self.wrong_state.store(wrong, Ordering::Relaxed);
    }

    /// Returns the record of the members' starts.
    pub fn witness(&self) -> &Arc<Witness> {
        &self.witness
    }

    /// Sets the TLS configuration, with which peers prove their identity by certificates.
    pub fn with_tls(mut self, tls: Option<PeerTls>) -> Self {
        self.tls = tls;
        self
    }

    /// Returns the TLS configuration between peers, if there is one.
    pub fn tls(&self) -> Option<&PeerTls> {
        self.tls.as_ref()
    }

    /// Sets the range of versions of the peer protocol, in place of this program's own.
    pub fn with_wire_versions(mut self, wire: WireRange) -> Self {
        self.versions.wire = wire;
        self
    }

    /// Sets the highest version of commands that the program applies; the default is the oldest version.
    pub fn with_commands_version(mut self, commands: u8) -> Self {
        self.versions.commands = commands;
        self
    }

    /// Returns the versions of a node's program, if it was connected since this node started.
    pub fn versions_of(&self, node: NodeId) -> Option<ProgramVersions> {
        match node == self.node {
            true => Some(self.versions.clone()),
            false => self.known.lock().versions.get(&node).cloned(),
        }
    }

    /// Returns the highest version of commands that this node can apply.
    pub fn commands(&self) -> u8 {
        self.versions.commands
    }

    /// Returns the highest version of commands that all members can apply.
    pub fn commands_of_all(&self) -> u8 {
        let known = self.known.lock();
        let of = |(id, member): (&NodeId, &Member)| match known.versions.get(id) {
            _ if *id == self.node => Some(self.versions.commands),
            Some(said) => Some(said.commands),
            // The member has not connected since this process began.
            None => self.witness.commands_of(*id, member.disk),
        };
        commands_of_all(known.members.iter().map(of))
    }

    /// Returns the negotiated version of the peer protocol with a peer.
    pub fn wire_version_with(&self, node: NodeId) -> Option<u16> {
        self.versions_of(node)?.wire.common(self.versions.wire)
    }

    /// Returns the reason why this node and another one cannot communicate, if the versions of their programs
    /// are the cause.
    pub fn incompatible(&self) -> Option<String> {
        self.known.lock().incompatible.values().next().cloned()
    }

    /// Returns the id of this node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the id of the cluster, once known.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.known.lock().cluster_id
    }

    /// Sets the id of the cluster.
    pub fn set_cluster_id(&self, id: ClusterId) {
        self.known.lock().cluster_id = Some(id);
    }

    /// Sets the replicated membership.
    pub fn set_members(&self, members: BTreeMap<NodeId, Member>) {
        self.clock.set_members(members.keys().copied().collect());
        {
            let mut known = self.known.lock();
            known.found_at.retain(|id, _| members.contains_key(id));
            known.refused_by.retain(|id| members.contains_key(id));
            known.rolled_back.retain(|id, _| members.contains_key(id));
            known.members = members;
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Sets the ids that are never assigned again. Stops this node if its own id is among them.
    pub fn set_retired(&self, retired: RetiredIds) {
        let removed = retired.contains(self.node);
        self.known.lock().retired = retired;
        self.changes.send_modify(|count| *count += 1);
        if removed {
            self.fail_removed(was_removed(self.node, None));
        }
    }

    /// Returns the ids that are never assigned again.
    pub fn retired(&self) -> RetiredIds {
        self.known.lock().retired.clone()
    }

    /// Returns whether this node knows a membership.
    pub fn is_formed(&self) -> bool {
        !self.known.lock().members.is_empty()
    }

    /// Returns whether this node knows that it was removed from the cluster.
    pub fn was_removed(&self) -> bool {
        self.known.lock().removed
    }

    /// Returns a member's addresses in the membership.
    pub fn member_address(&self, node: NodeId) -> Option<MemberAddress> {
        let known = self.known.lock();
        known.members.get(&node).map(|member| member.address.clone())
    }

    /// Returns all members: the replicated ones, or the configured ones before the cluster is formed.
    pub fn addresses(&self) -> BTreeMap<NodeId, MemberAddress> {
        let known = self.known.lock();
        match known.members.is_empty() {
            true => self.configured.clone(),
            false => known
                .members
                .iter()
                .map(|(id, member)| (*id, member.address.clone()))
                .collect(),
        }
    }

    /// Returns the possible addresses of a peer, the most likely first.
    pub fn peer_addresses(&self, node: NodeId) -> Vec<String> {
        let known = self.known.lock();
        let member = known.members.get(&node).map(|member| &member.address.peer);
        let configured = self.configured.get(&node).map(|address| &address.peer);
        let mut addresses: Vec<String> = member.into_iter().chain(configured).cloned().collect();
        addresses.dedup();
        // An address that answered before is tried first: a dead address may take long to fail.
        if let Some(found) = known.found_at.get(&node)
            && let Some(at) = addresses.iter().position(|address| address == found)
        {
            addresses.swap(0, at);
        }
        addresses
    }

    /// Records the address at which a peer answered.
    pub fn record_address(&self, node: NodeId, address: &str) {
        let mut known = self.known.lock();
        if known.found_at.get(&node).is_none_or(|found| found != address) {
            known.found_at.insert(node, address.to_owned());
        }
    }

    /// Returns whether the rejection of this caller may be logged, with the number of lines omitted since the
    /// last one. `from` is the address of the caller.
    pub fn admit_line(&self, from: &str) -> Option<u64> {
        // Machines of a simulation have no such addresses, and share one limit.
        let address = from.parse::<SocketAddr>().ok();
        self.rejection_log
            .admit(address.map(|address| client_network(address.ip())))
    }

    /// Returns whether the rejection of this caller has a new reason and is worth a log line.
    pub fn is_new_reason(&self, from: NodeId, reason: &str) -> bool {
        let mut known = self.known.lock();
        if known.logged.get(&from).is_some_and(|last| last == reason) {
            return false;
        }
        if known.logged.len() >= MAX_LOGGED {
            known.logged.clear();
        }
        known.logged.insert(from, reason.to_owned());
        true
    }

    /// Completes when an admitted caller is no longer admitted: it was removed from the cluster in the
    /// meantime.
    pub async fn until_rejected(&self, hello: &Hello) -> HandshakeError {
        let mut changes = self.changes.subscribe();
        loop {
            if let HelloReply::Refused { reason, .. } = self.check_hello(hello) {
                return HandshakeError(reason);
            }
            if changes.changed().await.is_err() {
                // The sender lives in `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the first message to a peer.
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
            extensions: self.witness_extension(),
        }
    }

    /// Negotiates the version of the peer protocol with a caller, or returns the reason why no version is
    /// shared. Reads only the part of the message that is the same in all versions.
    pub fn negotiate(&self, start: &HelloStart, from: NodeId) -> Result<u16, (RefusalCause, String)> {
        if start.magic != MAGIC {
            return Err((RefusalCause::Other, "this port is for Lockgate's peers".into()));
        }
        let (ours, theirs) = (self.versions.wire, start.wire);
        let common = ours.common(theirs);
        common.ok_or_else(|| {
            let reason = no_common_version(self.node, ours, from, theirs);
            (RefusalCause::Version, reason)
        })
    }

    /// Checks a caller's hello.
    pub fn check_hello(&self, hello: &Hello) -> HelloReply {
        let mut known = self.known.lock();
        let formed = !known.members.is_empty();
        let refuse = |cause, reason| HelloReply::Refused {
            reason,
            cause,
            formed,
        };
        let version = match self.negotiate(&hello.start(), hello.from) {
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
                "node {} has another data directory than the requested one",
                self.node
            );
            return refuse(RefusalCause::Other, reason);
        }
        if known.retired.contains(hello.from) {
            let reason = was_removed(hello.from, Some(self.node));
            return refuse(RefusalCause::Removed, reason);
        }
        match known.members.get(&hello.from) {
            Some(member) if member.disk != hello.from_disk => {
                refuse(RefusalCause::Identity, new_directory(hello.from, self.node))
            }
            // A caller that names this node's own directory knows it as a member. An unknown caller joined
            // while this node was away, and may be the leader that sends the new membership.
            None if formed && hello.to_disk != Some(self.disk) => refuse(
                RefusalCause::Other,
                format!("node {} is not a member of the cluster", hello.from),
            ),
            _ => {
                if let Some(shown) = witness_in(&hello.extensions)
                    && let Err(loss) = self.witness.check(hello.from, hello.from_disk, &shown)
                {
                    let reason = rolled_back(hello.from, self.node, loss);
                    if !self.witness.is_predecessor(hello.from, &shown) {
                        known.rolled_back.insert(hello.from, loss.to_string());
                    }
                    return refuse(RefusalCause::RolledBack, reason);
                }
                known.rolled_back.remove(&hello.from);
                known.versions.insert(hello.from, hello.versions());
                known.incompatible.remove(&hello.from);
                HelloReply::Welcome {
                    disk: self.disk,
                    version,
                    versions: self.versions.clone(),
                    extensions: [self.witness_extension(), self.clock_extension()].concat(),
                }
            }
        }
    }

    /// Checks a peer's reply to this node's hello. Returns the id of the peer's disk.
    pub fn accept(&self, hello: &Hello, reply: HelloReply) -> Result<DiskId, HandshakeError> {
        match reply {
            HelloReply::Welcome {
                disk,
                version,
                versions,
                extensions,
            } => {
                if self.versions.wire.common(versions.wire) != Some(version) {
                    let what = format!(
                        "node {} continues in version {version}, which was not offered",
                        hello.to
                    );
                    return Err(HandshakeError(what));
                }
                if hello.to_disk.is_some_and(|expected| expected != disk) {
                    let what = format!("node {} has another data directory than the member", hello.to);
                    return Err(HandshakeError(what));
                }
                let mut known = self.known.lock();
                if let Some(shown) = witness_in(&extensions)
                    && let Err(loss) = self.witness.check(hello.to, disk, &shown)
                {
                    if !self.witness.is_predecessor(hello.to, &shown) {
                        known.rolled_back.insert(hello.to, loss.to_string());
                    }
                    return Err(HandshakeError(rolled_back(hello.to, self.node, loss)));
                }
                known.rolled_back.remove(&hello.to);
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
                    RefusalCause::Identity => self.record_refusal(hello.to, &reason, formed),
                    RefusalCause::Version => {
                        let incompatible = &mut self.known.lock().incompatible;
                        incompatible.insert(hello.to, reason.clone());
                    }
                    // Sent only if the removal is committed in this very cluster, and never undone: one peer
                    // is enough.
                    RefusalCause::Removed => self.fail_removed(reason.clone()),
                    // Sent only by a peer that has seen a later state of this very directory: one peer is
                    // enough.
                    RefusalCause::RolledBack => self.fail(reason.clone()),
                    RefusalCause::Other => {}
                }
                Err(HandshakeError(format!("node {} refuses: {reason}", hello.to)))
            }
        }
    }

    /// Records on this node's disk which start of its data directory a peer shows, if it is new. Called
    /// before a connection is used; an error means that it must not be used.
    pub async fn record_start(
        &self,
        peer: NodeId,
        disk: DiskId,
        extensions: &[(u16, Bytes)],
    ) -> io::Result<()> {
        let Some(shown) = witness_in(extensions) else {
            return Ok(());
        };
        if self.witness.has_met(peer, disk, &shown) {
            return Ok(());
        }
        let (witness, start) = (self.witness.clone(), shown.number);
        let commands = self
            .versions_of(peer)
            .map_or(OLDEST_COMMANDS_VERSION, |said| said.commands);
        let met = blocking::run(move || witness.meet(peer, disk, &shown, commands)).await??;
        if met.is_ok() {
            tracing::debug!(node = peer, start, "peers: a member was started");
        }
        // Another start of the same directory may be known only now: its connections end.
        self.changes.send_modify(|count| *count += 1);
        met.map_err(|loss| {
            self.known.lock().rolled_back.insert(peer, loss.to_string());
            io::Error::new(
                io::ErrorKind::PermissionDenied,
                rolled_back(peer, self.node, loss),
            )
        })
    }

    /// Marks this node's data directory as unusable, on disk, and stops the node.
    pub async fn retire_directory(&self, reason: String) {
        let (witness, noted) = (self.witness.clone(), reason.clone());
        let refused = blocking::run(move || witness.refuse(&noted)).await;
        if let Ok(Err(error)) = refused {
            tracing::warn!(%error, "peers: the data directory could not be marked as unusable");
        }
        self.fail(reason);
    }

    /// Ends the connections of a member that has lost what it had acknowledged, and rejects new ones.
    pub fn reject_rolled_back(&self, peer: NodeId, loss: Loss) {
        let reason = loss.to_string();
        tracing::error!(
            node = peer,
            reason,
            "peers: a member lacks entries that it had acknowledged, and is rejected"
        );
        self.known.lock().rolled_back.insert(peer, reason);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Checks all connected callers again, after more has become known.
    pub fn recheck_connections(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Returns the members that are rejected because their data directory is older than what they
    /// acknowledged, with the reason.
    pub fn rolled_back(&self) -> BTreeMap<NodeId, String> {
        let known = self.known.lock();
        let is_member =
            |(id, disk): &(NodeId, DiskId)| known.members.get(id).is_some_and(|member| member.disk == *disk);
        let lost = self.witness.lost().into_iter().filter(is_member);
        let lost = lost.map(|(id, _)| (id, Loss::Known.to_string()));
        lost.chain(known.rolled_back.clone()).collect()
    }

    /// Returns the data directories of the members according to the membership.
    pub fn member_disks(&self) -> BTreeMap<NodeId, DiskId> {
        let known = self.known.lock();
        known
            .members
            .iter()
            .map(|(node, member)| (*node, member.disk))
            .collect()
    }

    /// Returns the extension with the start of this node's data directory.
    fn witness_extension(&self) -> Vec<(u16, Bytes)> {
        vec![(WITNESS_EXTENSION, codec::encode(self.witness.shown()).into())]
    }

    /// Returns the extension with this node's wall clock.
    fn clock_extension(&self) -> Vec<(u16, Bytes)> {
        vec![(CLOCK_EXTENSION, codec::encode(&self.clock.own_ms()).into())]
    }

    /// Records that a peer rejects this node's identity. A node without a history stops at the first
    /// rejection by a formed peer; a node with a history stops only at a majority.
    fn record_refusal(&self, by: NodeId, reason: &str, they_are_formed: bool) {
        let stop = {
            let mut known = self.known.lock();
            match known.members.len() {
                0 => they_are_formed,
                members => {
                    // The rejection by a node that is not a member, and was called only to be added, does not
                    // count.
                    if known.members.contains_key(&by) {
                        known.refused_by.insert(by);
                    }
                    known.refused_by.len() > members / 2
                }
            }
        };
        if stop {
            self.fail(reason.to_owned());
        }
    }

    /// Stops this node because it is no longer a member.
    fn fail_removed(&self, reason: String) {
        self.known.lock().removed = true;
        self.fail(reason);
    }

    /// Stops this node.
    pub fn fail(&self, reason: String) {
        self.failure.report(reason);
    }

    /// Returns the handle by which parts of the node report a failure.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }
}

/// Returns the start of its data directory that a peer shows. Programs before this extension show none, and
/// are trusted.
fn witness_in(extensions: &[(u16, Bytes)]) -> Option<Shown> {
    extension(extensions, WITNESS_EXTENSION)
}

/// Returns the time on a peer's wall clock, in milliseconds since 1970. Programs before this extension show none.
pub(super) fn clock_in(extensions: &[(u16, Bytes)]) -> Option<u64> {
    extension(extensions, CLOCK_EXTENSION)
}

fn extension<T: DeserializeOwned>(extensions: &[(u16, Bytes)], wanted: u16) -> Option<T> {
    let (_, bytes) = extensions.iter().find(|(number, _)| *number == wanted)?;
    codec::decode(bytes).ok()
}

fn rolled_back(whose: NodeId, reporter: NodeId, loss: Loss) -> String {
    format!(
        "node {whose}'s data directory is older than what node {whose} has acknowledged (reported by node \
         {reporter}): {loss}. It is an old copy of the directory, or its disk lost synced data. Put the \
         newest directory back if it still exists; otherwise replace the member: `lockgate cluster replace \
         {whose}`"
    )
}

fn foreign_directory(whose: NodeId, reporter: NodeId, theirs: ClusterId, its: ClusterId) -> String {
    format!(
        "node {whose}'s data directory belongs to the cluster {its}, but node {reporter} to the cluster \
         {theirs}: \
         the directory was lost or mixed up. Put node {whose}'s own directory back, or remove node {whose} \
         from the cluster and let it join under a new id with an empty directory"
    )
}

fn was_removed(whose: NodeId, reporter: Option<NodeId>) -> String {
    let reporter = reporter
        .map(|by| format!(" (reported by node {by})"))
        .unwrap_or_default();
    format!(
        "node {whose} was removed from the cluster{reporter}. Its id is never assigned again: to run a node \
         here, add one with a new id and an empty data directory"
    )
}

fn new_directory(whose: NodeId, reporter: NodeId) -> String {
    format!(
        "node {whose}'s data directory is not the one that the cluster knows (reported by node {reporter}): \
         it was lost and created again, without the votes and entries that node {whose} had acknowledged. Put \
         the old directory back, or remove \
         node {whose} from the cluster and let it join under a new id"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: ClusterId = ClusterId([1; 16]);
    const Y: ClusterId = ClusterId([2; 16]);
    /// Newest commands that the tested program applies.
    const COMMANDS: u8 = 3;

    fn disk(n: u8) -> DiskId {
        DiskId([n; 16])
    }

    fn address(n: u64) -> MemberAddress {
        MemberAddress {
            peer: format!("127.0.0.1:{n}"),
            http: format!("127.0.0.1:{n}"),
        }
    }

    fn registry(node: NodeId, disk: DiskId, cluster_id: Option<ClusterId>) -> PeerRegistry {
        let configured = (1..=3).map(|n| (n, address(n))).collect();
        PeerRegistry::new(
            node,
            "test".into(),
            disk,
            cluster_id,
            configured,
            watch::Sender::new(None),
        )
        .with_commands_version(COMMANDS)
    }

    fn formed(node: NodeId) -> PeerRegistry {
        let registry = registry(node, disk(node as u8), Some(X));
        let member = |n: u64| Member {
            address: address(n),
            disk: disk(n as u8),
        };
        registry.set_members((1..=3).map(|n| (n, member(n))).collect());
        registry
    }

    fn failed(registry: &PeerRegistry) -> bool {
        registry.failure.is_reported()
    }

    fn talk(from: &PeerRegistry, to: &PeerRegistry) -> Result<DiskId, HandshakeError> {
        let hello = from.hello(to.node, Purpose::Control);
        from.accept(&hello, to.check_hello(&hello))
    }

    #[test]
    fn members_accept_each_other() {
        assert_eq!(talk(&formed(1), &formed(2)), Ok(disk(2)));
        assert_eq!(
            talk(&registry(1, disk(1), Some(X)), &registry(2, disk(2), None)),
            Ok(disk(2)),
            "when it is formed"
        );
    }

    /// Regression test: an earlier version locked two mutexes in opposite orders and deadlocked.
    #[test]
    fn concurrent_handshakes_and_audits_do_not_deadlock() {
        const ROUNDS: usize = 5_000;
        let (registry, hello) = (formed(1), formed(2).hello(1, Purpose::Control));
        let (over, all_over) = std::sync::mpsc::channel();
        let registry = Arc::new(registry);
        let (judging, judged) = (registry.clone(), over.clone());
        std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                judging.check_hello(&hello);
            }
            judged.send(()).unwrap();
        });
        std::thread::spawn(move || {
            let records = registry.witness().records(1, 1, 1, COMMANDS);
            for _ in 0..ROUNDS {
                registry
                    .witness()
                    .learn(&records, &registry.member_disks())
                    .unwrap();
            }
            over.send(()).unwrap();
        });
        for _ in 0..2 {
            all_over.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        }
    }

    #[test]
    fn node_with_a_new_directory_is_rejected_and_stops() {
        let wiped = registry(2, disk(9), None);
        assert!(talk(&formed(1), &wiped).is_err());
        assert!(failed(&wiped), "a member that calls reported it");

        let wiped = registry(2, disk(9), Some(X));
        assert!(talk(&wiped, &formed(1)).is_err());
        assert!(failed(&wiped), "a called member reported it");
    }

    #[test]
    fn founder_with_a_new_directory_is_rejected_and_stops() {
        let wiped = registry(1, disk(9), Some(Y));
        let member = formed(2);
        assert!(talk(&wiped, &member).is_err());
        assert!(failed(&wiped));
        assert!(!failed(&member));

        let wiped = registry(1, disk(9), Some(Y));
        assert!(talk(&member, &wiped).is_err());
        assert!(failed(&wiped));
        assert!(
            !failed(&member),
            "one lost directory does not take the others down"
        );
    }

    #[test]
    fn member_of_another_cluster_stops_only_at_a_majority() {
        let stray = formed(3);
        stray.set_cluster_id(Y);
        assert!(talk(&stray, &formed(1)).is_err());
        assert!(!failed(&stray));
        assert!(talk(&stray, &formed(2)).is_err());
        assert!(failed(&stray));
    }

    #[test]
    fn unknown_nodes_are_rejected() {
        let member = formed(1);
        let refused = |change: fn(&mut Hello)| {
            let mut hello = formed(2).hello(1, Purpose::Append);
            change(&mut hello);
            matches!(
                member.check_hello(&hello),
                HelloReply::Refused {
                    cause: RefusalCause::Other,
                    ..
                }
            )
        };
        assert!(refused(|hello| hello.magic = *b"GET / HT"));
        assert!(refused(|hello| hello.cluster = "another".into()));
        assert!(refused(|hello| hello.to = 3));
        assert!(refused(|hello| {
            hello.from = 4;
            hello.to_disk = None;
        }));
    }

    #[test]
    fn member_that_joined_during_an_absence_is_admitted() {
        let newer = formed(4);
        newer.set_members(
            [1, 4, 5]
                .map(|n| {
                    let disk = disk(n as u8);
                    let address = address(n);
                    (n, Member { address, disk })
                })
                .into(),
        );
        assert_eq!(talk(&newer, &formed(1)), Ok(disk(1)));
    }

    #[test]
    fn removed_node_learns_of_it_from_the_first_member_and_stops() {
        let member = formed(1);
        let removed = formed(3);
        let members = member.known.lock().members.clone();
        member.set_members(members.into_iter().filter(|(id, _)| *id != 3).collect());
        assert!(
            talk(&removed, &member).is_ok(),
            "an uncommitted removal may still be undone"
        );
        member.set_retired(RetiredIds::from_ranges(vec![(3, 3)]).unwrap());
        assert!(talk(&removed, &member).is_err());
        assert!(failed(&removed) && removed.was_removed());
        assert!(!failed(&member) && !member.was_removed());

        let itself = formed(3);
        itself.set_retired(RetiredIds::from_ranges(vec![(2, 4)]).unwrap());
        assert!(failed(&itself) && itself.was_removed());
    }

    #[test]
    fn rejection_by_a_non_member_does_not_count() {
        let alone = registry(1, disk(1), Some(X));
        let address = address(1);
        let itself = Member {
            address,
            disk: disk(1),
        };
        alone.set_members(BTreeMap::from([(1, itself)]));
        let stranger = formed(2);
        stranger.set_cluster_id(Y);
        assert!(talk(&alone, &stranger).is_err());
        assert!(!failed(&alone));
    }

    #[test]
    fn membership_addresses_precede_configured_ones() {
        let registry = formed(1);
        let peer_address = |n: u64| address(n).peer;
        assert_eq!(registry.peer_addresses(2), [peer_address(2)]);
        let moved = Member {
            address: address(22),
            disk: disk(2),
        };
        registry.set_members(BTreeMap::from([(2, moved)]));
        assert_eq!(registry.peer_addresses(2), [peer_address(22), peer_address(2)]);
        assert_eq!(registry.addresses()[&2], address(22));
        registry.record_address(2, &peer_address(2));
        assert_eq!(
            registry.peer_addresses(2),
            [peer_address(2), peer_address(22)],
            "the address that answered is first"
        );
        assert!(registry.peer_addresses(9).is_empty());
    }

    #[tokio::test]
    async fn connection_of_a_removed_caller_ends() {
        let registry = Arc::new(formed(1));
        let hello = formed(3).hello(1, Purpose::Traffic);
        let watching = {
            let registry = registry.clone();
            tokio::spawn(async move { registry.until_rejected(&hello).await })
        };
        tokio::task::yield_now().await;
        let members = registry.known.lock().members.clone();
        registry.set_members(members);
        tokio::task::yield_now().await;
        assert!(!watching.is_finished());
        registry.set_retired(RetiredIds::from_ranges(vec![(3, 3)]).unwrap());
        assert!(watching.await.unwrap().0.contains("was removed"));
    }

    #[test]
    fn highest_shared_protocol_version_is_negotiated() {
        let range = |oldest, newest| WireRange { oldest, newest };
        let (old, new) = (
            formed(1).with_wire_versions(range(3, 5)),
            formed(2).with_wire_versions(range(4, 9)),
        );
        for (from, to) in [(&old, &new), (&new, &old)] {
            assert!(talk(from, to).is_ok());
            assert_eq!(from.wire_version_with(to.node), Some(5));
            assert_eq!(to.wire_version_with(from.node), Some(5));
        }
        let newest = formed(3).with_wire_versions(range(6, 7));
        for (from, to) in [(&old, &newest), (&newest, &old)] {
            let refused = talk(from, to).unwrap_err().to_string();
            assert!(refused.contains("node 1 speaks versions 3 to 5"), "{refused}");
            assert!(refused.contains("upgrade all nodes step by step"), "{refused}");
            assert!(from.incompatible().is_some());
            assert!(
                !failed(from) && !failed(to),
                "an upgrade of the other node may help"
            );
        }
    }

    #[test]
    fn commands_of_all_members_are_known_when_all_were_connected() {
        let registry = formed(1);
        assert_eq!(registry.commands_of_all(), 1);
        let mut newer = formed(2);
        newer.versions.commands = 7;
        talk(&newer, &registry).unwrap();
        assert_eq!(registry.versions_of(2).map(|versions| versions.commands), Some(7));
        assert_eq!(registry.versions_of(3), None);
        assert_eq!(registry.commands_of_all(), 1, "node 3 may be an old one");
    }

    #[tokio::test]
    async fn commands_of_a_member_that_is_down_are_known_after_a_restart() {
        let registry = start(1, [1]);
        connect(&start(2, [2]), &registry).await.unwrap();
        connect(&start(3, [3]), &registry).await.unwrap();
        let again = formed(1).with_witness(registry.witness.clone());
        assert_eq!(again.versions_of(2), None);
        assert_eq!(again.commands_of_all(), COMMANDS);
        let mut older = start(2, [4, 2]);
        older.versions.commands = 2;
        connect(&older, &again).await.unwrap();
        let again = formed(1).with_witness(registry.witness.clone());
        assert_eq!(again.commands_of_all(), 2, "its latest start counts");
    }

    /// Returns the registry of a node whose directory has starts with these names, the latest one first.
    fn start<const N: usize>(node: NodeId, names: [u64; N]) -> PeerRegistry {
        let shown = Shown {
            number: N as u64,
            names: names.into(),
            term: 3,
            last: 10,
        };
        let witness = Witness::in_memory(node, disk(node as u8), shown);
        formed(node).with_witness(Arc::new(witness))
    }

    /// Returns the hello of a node of the previous release: it speaks version 10, applies commands of version
    /// 2, and shows no start.
    fn former_hello(from: &PeerRegistry, to: NodeId) -> Hello {
        let golden = include_bytes!("../../tests/golden/wire-10/hello");
        let golden: Hello = super::super::wire::decode_frame(&golden[4..]).unwrap();
        let ours = from.hello(to, Purpose::Control);
        assert!(witness_in(&golden.extensions).is_none() && !golden.extensions.is_empty());
        Hello {
            wire: WireRange {
                oldest: 7,
                newest: 10,
            },
            commands: 2,
            extensions: golden.extensions,
            ..ours
        }
    }

    /// Connects two nodes: `to` records the start that `from` shows.
    async fn connect(from: &PeerRegistry, to: &PeerRegistry) -> Result<(), HandshakeError> {
        talk(from, to)?;
        let met = to
            .record_start(from.node, from.disk, &from.witness_extension())
            .await;
        met.map_err(|error| HandshakeError(error.to_string()))
    }

    #[tokio::test]
    async fn peer_of_the_previous_version_is_trusted_and_changes_no_record() {
        let registry = start(1, [1]);
        connect(&start(2, [3, 2, 1]), &registry).await.unwrap();
        // Node 2 returns to the previous program.
        let hello = former_hello(&start(2, [3, 2, 1]), 1);
        match registry.check_hello(&hello) {
            HelloReply::Welcome { version, .. } => assert_eq!(version, 10),
            refused => panic!("{refused:?}"),
        }
        registry
            .record_start(2, disk(2), &hello.extensions)
            .await
            .unwrap();
        assert!(registry.rolled_back().is_empty());
        // Its replies are the same.
        let welcome = HelloReply::Welcome {
            disk: disk(2),
            version: 10,
            versions: hello.versions(),
            extensions: Vec::new(),
        };
        assert_eq!(
            registry.accept(&registry.hello(2, Purpose::Control), welcome),
            Ok(disk(2))
        );
        assert!(registry.rolled_back().is_empty() && !failed(&registry));
        // Its starts are compared again as soon as it shows them.
        assert!(connect(&start(2, [9, 1]), &registry).await.is_err());
        assert_eq!(registry.rolled_back().len(), 1);
        connect(&start(2, [4, 3, 2, 1]), &registry).await.unwrap();
        assert!(registry.rolled_back().is_empty());
    }

    #[tokio::test]
    async fn rolled_back_node_is_refused_by_the_first_peer_that_knows_among_older_ones() {
        // Node 3 has recorded the third start. Node 1 runs the previous program: it has recorded no start,
        // and shows none.
        let knows = start(3, [1]);
        connect(&start(2, [3, 2, 1]), &knows).await.unwrap();
        let returned = start(2, [9, 1]);
        let former = former_hello(&formed(1), 2);
        assert!(matches!(
            returned.check_hello(&former),
            HelloReply::Welcome { .. }
        ));
        assert!(!failed(&returned), "node 1 cannot know");
        // The check works in both directions.
        assert!(talk(&knows, &returned).is_err());
        assert!(!failed(&returned), "it learns of that when it connects itself");
        let refused = talk(&returned, &knows).unwrap_err().to_string();
        assert!(refused.contains("node 2's data directory is older"), "{refused}");
        assert!(failed(&returned) && !failed(&knows));
        assert_eq!(knows.rolled_back().keys().collect::<Vec<_>>(), [&2]);
    }

    #[test]
    fn new_commands_wait_for_the_last_member_with_the_previous_program() {
        let registry = formed(1);
        talk(&formed(3), &registry).unwrap();
        let upgraded = formed(2).hello(1, Purpose::Control);
        let former = former_hello(&formed(2), 1);
        // Node 2 is upgraded, returns to the previous program, and is upgraded again.
        for (hello, knows_all) in [
            (&former, false),
            (&upgraded, true),
            (&former, false),
            (&upgraded, true),
        ] {
            assert!(matches!(registry.check_hello(hello), HelloReply::Welcome { .. }));
            assert_eq!(registry.commands_of_all(), if knows_all { 3 } else { 2 });
        }
    }
}
