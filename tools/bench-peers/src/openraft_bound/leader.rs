//! The leader: gathers requests of its own clients and of the followers' clients into entries and proposes
//! them to openraft.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::{Bytes, BytesMut};
use openraft::BasicNode;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::frames::{Frames, put_numbered, take_number};
use super::locks::{Finished, Locks, ReplyTo, take_finished};
use super::log_store::LogStore;
use super::network::Network;
use super::request::{Operation, Request, Submitted};
use super::state_machine::{State, StateMachine, Waiting};
use super::{LEADER, MEMBERS, Raft, Requests, http, start, wire};

/// Maximum number of entries in flight, as in Lockgate: with only one, the disks would idle while the next
/// one is gathered.
const MAX_IN_FLIGHT: usize = 4;

/// Timeout of the election, and of the commit of any proposed entry: far longer than any disk takes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which the leader stands for election again.
const ELECTION_RETRY: Duration = Duration::from_millis(500);

/// Index of a leader's first own entry. The entry before it contains the membership.
const FIRST_OWN_INDEX: u64 = 1;

/// The connection to a follower for its clients' requests.
struct Follower {
    to: OwnedWriteHalf,
    finished: Finished,
    /// The bytes that are sent next.
    out: BytesMut,
}

/// Serves clients until the process ends.
pub async fn lead(clients: TcpListener, followers: &[String], log: &Path) -> anyhow::Result<()> {
    ensure!(
        1 + followers.len() == MEMBERS.len(),
        "the leader needs exactly two followers"
    );
    let waiting = Arc::new(Waiting::default());
    let store = LogStore::new(LEADER, log).with_context(|| log.display().to_string())?;
    let network = Network {
        others: followers.into(),
        acks: store.acks(),
    };
    let raft = start(LEADER, network, store, StateMachine::answering(waiting.clone())).await?;
    let members: BTreeMap<u64, BasicNode> = MEMBERS.map(|node| (node, BasicNode::default())).into();
    raft.initialize(members).await.context("forming the cluster")?;
    elect(&raft).await?;

    let (submissions, submitted) = mpsc::unbounded_channel();
    let mut all = Vec::new();
    for follower in followers {
        let stream = TcpStream::connect(follower).await;
        let stream = stream.with_context(|| format!("the follower at {follower}"))?;
        stream.set_nodelay(true)?;
        let (from, to) = stream.into_split();
        let finished = Finished::default();
        let (submissions, its_finished) = (submissions.clone(), finished.clone());
        tokio::task::spawn_local(async move {
            if let Err(error) = take_requests(from, &submissions, &its_finished).await {
                eprintln!("bench-peers: a follower: {error:#}");
            }
        });
        let mut out = BytesMut::new();
        put_numbered(&mut out, wire::REQUESTS, &[]);
        all.push(Follower { to, finished, out });
    }
    tokio::task::spawn_local(http::serve(clients, submissions));
    tokio::select! {
        ended = propose(&raft, all, &waiting, submitted) => ended,
        failed = watch_progress(&waiting) => failed,
    }
}

/// Stands for election until an entry of its own is applied. The followers may have just started and not
/// receive a vote request yet. Before the election openraft rejects proposals without a report.
async fn elect(raft: &Raft) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let wait = raft.wait(Some(ELECTION_RETRY));
        match wait
            .applied_index_at_least(Some(FIRST_OWN_INDEX), "elected")
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() > TIMEOUT => return Err(error).context("the election"),
            Err(_) if raft.current_leader().await == Some(LEADER) => {}
            Err(_) => raft.trigger().elect(false).await?,
        }
    }
}

/// Returns an error when entries are in flight and none is applied for the whole timeout. openraft does not
/// report rejected proposals, so their clients would wait forever.
async fn watch_progress(waiting: &Waiting) -> anyhow::Result<()> {
    let progress = || waiting.with(|state| (state.applied, state.in_flight.len()));
    loop {
        let (before, _) = progress();
        tokio::time::sleep(TIMEOUT).await;
        let (after, in_flight_count) = progress();
        ensure!(
            before != after || in_flight_count == 0,
            "{in_flight_count} entries are in flight, and none is applied"
        );
    }
}

/// Proposes submitted requests. The state machine replies to them.
async fn propose(
    raft: &Raft,
    mut followers: Vec<Follower>,
    waiting: &Waiting,
    mut submitted: mpsc::UnboundedReceiver<Submitted>,
) -> anyhow::Result<()> {
    let mut next: Vec<Submitted> = Vec::new();
    let mut in_flight_count = 0;
    loop {
        for follower in &mut followers {
            report_finished(follower);
            follower
                .to
                .write_all_buf(&mut follower.out)
                .await
                .context("writing to a follower")?;
        }
        tokio::select! {
            biased;
            () = waiting.changed.notified() => {}
            one = submitted.recv(), if in_flight_count < MAX_IN_FLIGHT => {
                next.push(one.context("the HTTP server has ended")?);
                // Requests that arrived at the same time share the entry.
                tokio::task::yield_now().await;
                while let Ok(one) = submitted.try_recv() {
                    next.push(one);
                }
            }
        }
        let proposed = waiting.with(|State { locks, in_flight, .. }| {
            in_flight_count = in_flight.len();
            let is_in_flight = in_flight_count > 0;
            // An acquire that must wait for its lock waits here for the release that precedes its grant.
            let is_due = next
                .iter()
                .any(|one| !has_to_wait(locks, &one.request, is_in_flight));
            (in_flight_count < MAX_IN_FLIGHT && is_due).then(|| {
                let entry = entry(&next);
                in_flight.push_back(std::mem::take(&mut next));
                entry
            })
        });
        if let Some(entry) = proposed {
            in_flight_count += 1;
            raft.client_write_ff(Requests(entry), None).await?;
        }
    }
}

/// Submits the requests that a follower forwards.
async fn take_requests(
    from: OwnedReadHalf,
    submissions: &mpsc::UnboundedSender<Submitted>,
    finished: &Finished,
) -> anyhow::Result<()> {
    let mut frames = Frames::new(from);
    while let Some(mut bytes) = frames.next().await? {
        let number = take_number(&mut bytes)?;
        let submitted = Submitted {
            request: Request::decode(bytes.clone())?,
            bytes,
            reply_to: ReplyTo::Process(finished.clone(), number),
        };
        submissions
            .send(submitted)
            .ok()
            .context("the leader has stopped")?;
    }
    Ok(())
}

/// Adds the numbers of finished requests to the bytes that are sent next.
fn report_finished(follower: &mut Follower) {
    let finished = take_finished(&follower.finished);
    if !finished.is_empty() {
        let numbers: Vec<[u8; 8]> = finished.into_iter().map(u64::to_le_bytes).collect();
        put_numbered(&mut follower.out, wire::FINISHED, &[numbers.as_flattened()]);
    }
}

/// Builds an entry of these requests.
fn entry(submitted: &[Submitted]) -> Bytes {
    let requests: Vec<&[u8]> = submitted.iter().map(|one| &one.bytes[..]).collect();
    requests.concat().into()
}

/// Returns whether the request waits in a queue, whatever the entries in flight contain.
fn has_to_wait(locks: &Locks, request: &Request, is_in_flight: bool) -> bool {
    request.operation == Operation::Acquire && locks.has_to_wait(&request.key, request.permits, is_in_flight)
}
