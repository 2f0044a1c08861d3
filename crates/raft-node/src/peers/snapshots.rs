//! Transfer of snapshots between nodes: both sides of a connection for one snapshot.
//!
//! The file is sent unchanged. When a connection breaks, the receiver keeps the received part, and the next
//! connection continues after it. Either side holds one chunk in memory at a time. The sender keeps to its
//! rate; the receiver keeps to the rate of its disk by not reading ahead. openraft decides when a snapshot is
//! sent, and which.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use openraft::alias::SnapshotOf;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Peers;
use super::peer_connection::connect;
use super::server::Services;
use super::stream::{ReadHalf, WriteHalf};
use super::wire::{FrameReader, Purpose, SnapshotHead, SnapshotResume, SnapshotTail, put_frame, send_frames};
use crate::ids::NodeId;
use crate::panics::PanicGuard;
use crate::snapshot_file::Snapshot;
use crate::snapshot_file::{Incoming, SnapshotHandle};
use crate::types::{TypeConfig, Vote};
use fault_injection::fail_step;
use raft_log::sync::Mutex;

/// Size of one frame of a snapshot: a few milliseconds at the usual rate.
const CHUNK_BYTES: usize = 256 * 1024;

/// Maximum number of snapshots that are sent concurrently; they share the rate. With one, a stalled follower
/// would delay the next; with many, all would be late.
const MAX_SENT_AT_ONCE: usize = 2;

/// Time without progress after which a connection is closed; the next one continues there. Longer than a disk
/// usually stalls.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum time for a follower to verify and load a snapshot after the last byte. A million znodes take about
/// two seconds.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Interval between log lines about the progress of a long transfer.
const PROGRESS_LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Periodic log lines about the progress of a transfer.
struct Progress {
    what: &'static str,
    index: u64,
    of_bytes: u64,
    told: Instant,
}

impl Progress {
    fn new(what: &'static str, index: u64, of_bytes: u64) -> Self {
        Self {
            what,
            index,
            of_bytes,
            told: Instant::now(),
        }
    }

    fn at(&mut self, bytes: u64) {
        if self.told.elapsed() < PROGRESS_LOG_INTERVAL {
            return;
        }
        self.told = Instant::now();
        let percent = bytes.saturating_mul(100) / self.of_bytes.max(1);
        tracing::info!(self.index, bytes, self.of_bytes, percent, "{}", self.what);
    }
}

/// Snapshots that a node sends and receives.
pub struct SnapshotTraffic {
    /// Last entry of the snapshot that is being sent to each member.
    sending: Mutex<BTreeMap<NodeId, u64>>,
    room: Semaphore,
    pace: RateLimit,
    /// Index up to which the log is truncated: streams of entries to followers behind it must end.
    floor: watch::Sender<u64>,
    reception: Reception,
}

impl SnapshotTraffic {
    /// Creates the state without transfers.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            sending: Mutex::default(),
            room: Semaphore::new(MAX_SENT_AT_ONCE),
            pace: RateLimit::new(bytes_per_second),
            floor: watch::Sender::new(0),
            reception: Reception::default(),
        }
    }

    /// Sets the rate for later transfers, and for the rest of current ones.
    pub fn set_rate(&self, bytes_per_second: u64) {
        self.pace.bytes_per_second.store(bytes_per_second.max(1), Relaxed);
    }

    /// Returns the oldest snapshot that is being sent, as the index of the last entry that it covers. Its
    /// receiver will need the entries after it.
    pub fn oldest_sent(&self) -> Option<u64> {
        self.sending.lock().values().min().copied()
    }

    /// Ends the streams to followers that still need entries up to `index`; they get a snapshot instead.
    pub fn cut_below(&self, index: u64) {
        self.floor.send_if_modified(|floor| {
            let higher = index > *floor;
            *floor = index.max(*floor);
            higher
        });
    }

    /// Returns the index up to which followers must be, or else their stream of entries ends.
    pub fn floor(&self) -> watch::Receiver<u64> {
        self.floor.subscribe()
    }

    /// Notes that a snapshot is being sent until the answer is dropped.
    fn note_sending(&self, to: NodeId, index: u64) -> impl Drop + '_ {
        self.sending.lock().insert(to, index);
        Sending { traffic: self, to }
    }
}

struct Sending<'a> {
    traffic: &'a SnapshotTraffic,
    to: NodeId,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.traffic.sending.lock().remove(&self.to);
    }
}

/// Rate limit that all senders share.
struct RateLimit {
    bytes_per_second: AtomicU64,
    /// Time at which the bytes admitted so far have passed at the configured rate.
    free_at: Mutex<Instant>,
}

impl RateLimit {
    fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1).into(),
            free_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits until `bytes` bytes may be sent.
    async fn admit(&self, bytes: usize) {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.load(Relaxed) as f64);
        let begin = {
            let mut free_at = self.free_at.lock();
            let begin = (*free_at).max(Instant::now());
            *free_at = begin + takes;
            begin
        };
        tokio::time::sleep_until(begin).await;
    }
}

/// Lock that admits one reception at a time: the newest connection's.
#[derive(Default)]
struct Reception {
    /// Cancels the current reception.
    current: Mutex<CancellationToken>,
    turn: tokio::sync::Mutex<()>,
}

/// Sends a snapshot: head, file from the offset that the follower wants, tail. Returns the follower's vote
/// once it has installed the snapshot.
pub async fn send(
    peers: &Peers,
    traffic: &SnapshotTraffic,
    to: NodeId,
    vote: Vote,
    snapshot: SnapshotOf<TypeConfig, SnapshotHandle>,
) -> io::Result<Vote> {
    let key = snapshot.snapshot.key();
    let _noted = traffic.note_sending(to, key.index);
    let _room = traffic
        .room
        .acquire()
        .await
        .expect("the semaphore is never closed");
    let _guard = PanicGuard::new(peers.registry().failure(), "the sending of a snapshot");
    let (mut reader, mut writer, _) = connect(peers.registry(), to, Purpose::Snapshot).await?;
    fail_step!(async "install::before_send", |error| error);
    let mut out = BytesMut::new();
    put_frame(
        &mut out,
        &SnapshotHead {
            vote: (&vote).into(),
            meta: (&snapshot.meta).into(),
            key: key.into(),
        },
    );
    write(&mut writer, &mut out).await?;
    let SnapshotResume { offset: begin } = answer(&mut reader, STALL_TIMEOUT).await?;
    let mut offset = begin;
    let mut progress = Progress::new("snapshots: sending a snapshot", key.index, key.bytes);
    loop {
        let chunk = snapshot.snapshot.read_raw(offset, CHUNK_BYTES).await?;
        if chunk.is_empty() {
            break;
        }
        traffic.pace.admit(chunk.len()).await;
        offset += chunk.len() as u64;
        put_frame(&mut out, &Some(chunk));
        fail_step!(async "install::before_send_chunk", |error| error);
        write(&mut writer, &mut out).await?;
        progress.at(offset);
    }
    put_frame(&mut out, &None::<Bytes>);
    write(&mut writer, &mut out).await?;
    fail_step!(async "install::after_send", |error| error);
    tracing::info!(
        node = to,
        key.index,
        from = begin,
        bytes = key.bytes,
        "snapshots: sent a snapshot"
    );
    match answer(&mut reader, INSTALL_TIMEOUT).await? {
        SnapshotTail::Installed { vote } => Ok(vote.into()),
        SnapshotTail::Failed(why) => Err(io::Error::other(why)),
    }
}

async fn write(writer: &mut WriteHalf, out: &mut BytesMut) -> io::Result<()> {
    tokio::time::timeout(STALL_TIMEOUT, send_frames(writer, out)).await??;
    out.clear();
    Ok(())
}

async fn answer<T: serde::de::DeserializeOwned>(
    reader: &mut FrameReader<ReadHalf>,
    timeout: Duration,
) -> io::Result<T> {
    let message = tokio::time::timeout(timeout, reader.message()).await??;
    message.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Receives one snapshot and installs it.
pub async fn receive(
    mut reader: FrameReader<ReadHalf>,
    mut writer: WriteHalf,
    services: &Services,
) -> io::Result<()> {
    let head: SnapshotHead = answer(&mut reader, STALL_TIMEOUT).await?;
    fail_step!(async "install::after_head", |error| error);
    let reception = &services.traffic.reception;
    // A sender that connects again has abandoned its old connection, although this side may not have noticed
    // yet.
    let replaced = CancellationToken::new();
    std::mem::replace(&mut *reception.current.lock(), replaced.clone()).cancel();
    let _turn = reception.turn.lock().await;
    let installed = async {
        let handle = tokio::select! {
            handle = receive_file(&mut reader, &mut writer, &head, services) => handle?,
            () = replaced.cancelled() => return Err(io::Error::other("another connection now sends a snapshot")),
        };
        let snapshot = Snapshot {
            meta: head.meta.clone().into(),
            snapshot: handle,
        };
        let response = services
            .raft
            .install_full_snapshot(head.vote.into(), snapshot)
            .await;
        response.map_err(io::Error::other)
    };
    let tail = match installed.await {
        Ok(response) => SnapshotTail::Installed {
            vote: (&response.vote).into(),
        },
        Err(error) => {
            tracing::warn!(%error, "snapshots: a snapshot could not be installed");
            SnapshotTail::Failed(error.to_string())
        }
    };
    let mut out = BytesMut::new();
    put_frame(&mut out, &tail);
    fail_step!(async "install::before_reply", |error| error);
    write(&mut writer, &mut out).await
}

/// Rejects a snapshot for which there is no space, so that the leader does not send it repeatedly.
fn refuse_without_space(services: &Services, needed: u64) -> io::Result<()> {
    match services.disks.report().free_bytes {
        Some(free) if free < needed => {
            let text = format!("{free} bytes are free, and {needed} bytes of the snapshot are missing");
            Err(io::Error::new(io::ErrorKind::StorageFull, text))
        }
        _ => Ok(()),
    }
}

async fn receive_file(
    reader: &mut FrameReader<ReadHalf>,
    writer: &mut WriteHalf,
    head: &SnapshotHead,
    services: &Services,
) -> io::Result<SnapshotHandle> {
    let mut file = Incoming::begin(services.storage.snapshots.clone(), head.key.into()).await?;
    let begin = file.received();
    refuse_without_space(services, head.key.bytes.saturating_sub(begin))?;
    let mut out = BytesMut::new();
    put_frame(&mut out, &SnapshotResume { offset: begin });
    write(writer, &mut out).await?;
    let mut progress = Progress::new("snapshots: receiving a snapshot", head.key.index, head.key.bytes);
    while let Some(chunk) = answer::<Option<Bytes>>(reader, STALL_TIMEOUT).await? {
        fail_step!(async "install::before_chunk", |error| error);
        file = file.write(chunk).await?;
        progress.at(file.received());
    }
    tracing::info!(
        head.key.index,
        from = begin,
        bytes = head.key.bytes,
        "snapshots: received a snapshot"
    );
    fail_step!(async "install::before_finish", |error| error);
    let handle = file.finish().await?;
    fail_step!(async "install::after_finish", |error| error);
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn senders_share_the_rate() {
        let traffic = std::sync::Arc::new(SnapshotTraffic::new(1_000_000));
        let begin = Instant::now();
        let mut senders = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let traffic = traffic.clone();
            senders.spawn(async move {
                for _ in 0..10 {
                    traffic.pace.admit(100_000).await;
                }
            });
        }
        senders.join_all().await;
        // The last chunk is sent when all earlier ones have passed.
        let took = begin.elapsed().as_secs_f64();
        assert!((3.89..3.95).contains(&took), "4 MB at 1 MB/s took {took} s");
    }

    #[test]
    fn oldest_sent_snapshot_is_known_until_its_transfer_ends() {
        let traffic = SnapshotTraffic::new(1);
        let first = traffic.note_sending(2, 70);
        let second = traffic.note_sending(3, 50);
        assert_eq!(traffic.oldest_sent(), Some(50));
        drop(second);
        assert_eq!(traffic.oldest_sent(), Some(70));
        drop(first);
        assert_eq!(traffic.oldest_sent(), None);
    }
}
