//! The one that leads: gathers requests into entries, as the least does, and gives them to openraft.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::BytesMut;
use openraft::BasicNode;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::super::leader::{Follower, MAX_IN_FLIGHT, entry, has_to_wait, hear, tell_done};
use super::super::locks::Done;
use super::super::put_numbered;
use super::super::serve::{Asked, Door};
use super::log::Store;
use super::machine::{Machine, State, Waiting};
use super::network::Network;
use super::{LEADER, MEMBERS, Raft, Requests, start, wire};

/// So long it may take until it is elected, and until something is carried out of what is proposed: far longer than any disk takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// After so long it stands for election again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The first entry that a leader makes. The one before it says who the members are.
const FIRST_OWN: u64 = 1;

/// Serves clients, until it is ended.
pub async fn lead(clients: Door, followers: &[String], log: &Path) -> anyhow::Result<()> {
    ensure!(
        1 + followers.len() == MEMBERS.len(),
        "two followers, no more and no less"
    );
    let waiting = Arc::new(Waiting::default());
    let store = Store::new(LEADER, log).with_context(|| log.display().to_string())?;
    let network = Network {
        others: followers.into(),
        acks: store.acks(),
    };
    let raft = start(LEADER, network, store, Machine::answering(waiting.clone())).await?;
    let members: BTreeMap<u64, BasicNode> = MEMBERS.map(|node| (node, BasicNode::default())).into();
    raft.initialize(members).await.context("forming the cluster")?;
    elect(&raft).await?;

    let (ask, asked) = mpsc::unbounded_channel();
    let mut all = Vec::new();
    for follower in followers {
        let stream = TcpStream::connect(follower).await;
        let stream = stream.with_context(|| format!("the follower at {follower}"))?;
        stream.set_nodelay(true)?;
        let (from, to) = stream.into_split();
        let done = Done::default();
        let (ask, of_it) = (ask.clone(), done.clone());
        tokio::task::spawn_local(async move {
            let stores_elsewhere = |_| Err(std::fmt::Error);
            if let Err(error) = hear(from, stores_elsewhere, &ask, &of_it).await {
                eprintln!("bench-peers: a follower: {error:#}");
            }
        });
        let mut out = BytesMut::new();
        put_numbered(&mut out, wire::REQUESTS, &[]);
        all.push(Follower { to, done, out });
    }
    tokio::task::spawn_local(clients.serve(ask));
    tokio::select! {
        ended = propose(&raft, all, &waiting, asked) => ended,
        stuck = until_stuck(&waiting) => stuck,
    }
}

/// Stands for election until an entry of its own was carried out: the others may have just begun, and hear nothing yet; and before
/// that openraft refuses what is proposed, of which nobody would hear.
async fn elect(raft: &Raft) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let wait = raft.wait(Some(AGAIN_AFTER));
        match wait.applied_index_at_least(Some(FIRST_OWN), "elected").await {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE => return Err(error).context("the election"),
            Err(_) if raft.current_leader().await == Some(LEADER) => {}
            Err(_) => raft.trigger().elect(false).await?,
        }
    }
}

/// Returns when something was proposed and nothing at all is carried out. openraft says nothing of what it refuses, and whoever waits
/// for it would wait for ever.
async fn until_stuck(waiting: &Waiting) -> anyhow::Result<()> {
    let look = || waiting.with(|state| (state.carried_out, state.in_flight.len()));
    loop {
        let (before, _) = look();
        tokio::time::sleep(PATIENCE).await;
        let (after, on_their_way) = look();
        ensure!(
            before != after || on_their_way == 0,
            "{on_their_way} entries are not carried out"
        );
    }
}

/// Has everything stored that is asked for. The state machine answers.
async fn propose(
    raft: &Raft,
    mut followers: Vec<Follower>,
    waiting: &Waiting,
    mut asked: mpsc::UnboundedReceiver<Asked>,
) -> anyhow::Result<()> {
    let mut next: Vec<Asked> = Vec::new();
    let mut on_their_way = 0;
    loop {
        for follower in &mut followers {
            tell_done(follower);
            follower
                .to
                .write_all_buf(&mut follower.out)
                .await
                .context("a follower")?;
        }
        tokio::select! {
            biased;
            () = waiting.changed.notified() => {}
            one = asked.recv(), if on_their_way < MAX_IN_FLIGHT => {
                next.push(one.context("nobody listens any more")?);
                // Those who have come with it are heard, too.
                tokio::task::yield_now().await;
                while let Ok(one) = asked.try_recv() {
                    next.push(one);
                }
            }
        }
        let proposed = waiting.with(|State { locks, in_flight, .. }| {
            on_their_way = in_flight.len();
            let is_in_flight = on_their_way > 0;
            // Who has to wait for a lock anyway waits here for whoever lets somebody in.
            let is_due = next.iter().any(|one| !has_to_wait(locks, one, is_in_flight));
            (on_their_way < MAX_IN_FLIGHT && is_due).then(|| {
                let entry = entry(&next);
                in_flight.push_back(std::mem::take(&mut next));
                entry
            })
        });
        if let Some(entry) = proposed {
            on_their_way += 1;
            raft.client_write_ff(Requests(entry), None).await?;
        }
    }
}
