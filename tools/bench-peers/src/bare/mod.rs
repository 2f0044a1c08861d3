//! The least that a replicated server does, to know what a machine allows: three processes that take requests, of which one, the
//! leader, gets those of the two others, sends all to both, and has them answered when they are on two disks of the three. No
//! elections, no terms, no state but who waits for which lock, nothing that anybody could ask for later. Whatever keeps promises does
//! all of this, and more.
//!
//! Its protocol is the shortest that there could be: a frame is its length in four bytes (little-endian), and so many bytes. A
//! request begins with what is wanted, the length of a key, and the key; an answer is what an answer weighs. Between the processes
//! each frame begins with a number in eight bytes: an entry's and then the entry, or [`ANSWERS`] and then the numbers of the requests
//! that are done, to a follower; and up to where it has stored them, or a request's and then the request, to the leader.
//!
//! Or clients speak HTTP, as those of Lockgate do, so that its own load can be put on it.

mod client;
mod disk;
mod follower;
mod http;
mod leader;
mod locks;
pub mod raft;
mod serve;
mod watch;

pub use client::Caller;
pub use follower::follow;
pub use leader::lead;
pub use serve::Door;
pub use watch::watch;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// An answer carries as much as an answer of the others does: the stat of a znode, or a grant with its fencing token.
const ANSWER_BYTES: usize = 100;

/// A notice weighs as much as one of ZooKeeper's about a znode with a short path.
const NOTICE_BYTES: usize = 60;

/// In place of an entry's number: there is no entry with this one.
const ANSWERS: u64 = 0;

/// No frame is longer: an entry of as many requests as clients are measured with.
const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Want {
    /// Nothing that would have to be on a disk.
    Answer = 0,
    /// That the request is on two disks.
    Write = 1,
    /// One of so many permits of the key, which the next byte says, in turn.
    Acquire = 2,
    /// To give it back.
    Release = 3,
    /// That all other clients of the same process are told of something.
    Tell = 4,
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    want: Want,
    permits: u8,
    key: Bytes,
}

impl Request {
    /// As its frame's bytes, with so much data behind it.
    fn frame(&self, data: &[u8]) -> Bytes {
        let mut frame = BytesMut::new();
        frame.put_u32_le((4 + self.key.len() + data.len()) as u32);
        frame.put_u8(self.want as u8);
        frame.put_u8(self.permits);
        frame.put_u16_le(self.key.len() as u16);
        frame.put_slice(&self.key);
        frame.put_slice(data);
        frame.freeze()
    }

    /// What a frame asks for.
    fn of(mut frame: Bytes) -> io::Result<Self> {
        let invalid = || io::Error::other("this is no request");
        if frame.len() < 4 {
            return Err(invalid());
        }
        let want = match frame.get_u8() {
            0 => Want::Answer,
            1 => Want::Write,
            2 => Want::Acquire,
            3 => Want::Release,
            4 => Want::Tell,
            _ => return Err(invalid()),
        };
        let permits = frame.get_u8();
        let key = usize::from(frame.get_u16_le());
        if frame.len() < key {
            return Err(invalid());
        }
        Ok(Self {
            want,
            permits,
            key: frame.split_to(key),
        })
    }
}

/// What a frame between the processes begins with.
fn take_number(frame: &mut Bytes) -> io::Result<u64> {
    frame
        .try_get_u64_le()
        .map_err(|_| io::Error::other("a frame without a number"))
}

/// Puts a frame between the processes to what is sent next.
fn put_numbered(out: &mut BytesMut, number: u64, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.reserve(4 + 8 + length);
    out.put_u32_le((8 + length) as u32);
    out.put_u64_le(number);
    parts.iter().for_each(|part| out.put_slice(part));
}

/// Reads frames, as many at once as there are.
struct Frames<R> {
    from: R,
    read: BytesMut,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    fn new(from: R) -> Self {
        Self {
            from,
            read: BytesMut::with_capacity(64 * 1024),
        }
    }

    /// One that was read already.
    fn buffered(&mut self) -> io::Result<Option<Bytes>> {
        let Some(length) = self.read.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(io::Error::other("a frame is too long"));
        }
        if self.read.len() < 4 + length {
            return Ok(None);
        }
        self.read.advance(4);
        Ok(Some(self.read.split_to(length).freeze()))
    }

    /// The next one, or nothing where the other end has closed.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(Some(frame));
            }
            if self.from.read_buf(&mut self.read).await? == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use load_generator::drive::{Client, Moments};
    use load_generator::load::Plan;
    use load_generator::nodes::Nodes;
    use tokio::net::TcpListener;

    use super::*;
    use crate::{Task, Workload};

    #[test]
    fn a_request_is_what_its_frame_says() {
        let request = Request {
            want: Want::Acquire,
            permits: 4,
            key: Bytes::from_static(b"lock"),
        };
        let mut frame = request.frame(b"data");
        assert_eq!(frame.get_u32_le() as usize, frame.len());
        assert_eq!(Request::of(frame).unwrap(), request);
        for wrong in [&b"\x02\x01"[..], b"\x07\x01\x00\x00", b"\x01\x01\x09\x00key"] {
            assert!(Request::of(Bytes::copy_from_slice(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn frames_come_whole() {
        let (here, mut there) = tokio::io::duplex(3);
        let sending = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut there, b"\x03\0\0\0abc\0\0\0\0\x01\0\0\0d").await
        });
        let mut frames = Frames::new(here);
        let mut read = Vec::new();
        while let Some(frame) = frames.next().await.unwrap() {
            read.push(frame);
        }
        assert_eq!(read, [&b"abc"[..], b"", b"d"]);
        sending.await.unwrap().unwrap();
    }

    /// Where three servers listen to clients, and two of them to the third.
    struct Places {
        clients: [Door; 3],
        servers: [String; 3],
        followers: [TcpListener; 2],
        others: [String; 2],
        logs: [PathBuf; 3],
        _dir: tempfile::TempDir,
    }

    impl Places {
        async fn new(is_http: bool) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = |one: &TcpListener| one.local_addr().unwrap().to_string();
            let clients = [bind().await, bind().await, bind().await];
            let followers = [bind().await, bind().await];
            Self {
                servers: clients.each_ref().map(at),
                others: followers.each_ref().map(at),
                clients: clients.map(|listener| Door { listener, is_http }),
                followers,
                logs: ["1", "2", "3"].map(|name| dir.path().join(name)),
                _dir: dir,
            }
        }
    }

    /// One lock for all, and a client at each: who asks a follower is let in and heard by the leader.
    async fn all_get_the_lock_in_turn(
        servers: &[String; 3],
        serve: impl Future<Output = anyhow::Result<()>>,
    ) {
        let ask = async {
            let task = Task {
                workload: Workload::Contended,
                key: "lock".to_owned(),
                data: b"data".to_vec(),
                permits: 1,
                retry: Duration::ZERO,
                ttl: Duration::from_secs(10),
            };
            let rounds = servers.iter().map(async |server| {
                let mut caller = Caller::open(server, task.clone()).await?;
                for _ in 0..20 {
                    caller.once(&mut Moments::unwatched()).await?;
                }
                anyhow::Ok(())
            });
            futures_util::future::try_join_all(rounds).await
        };
        let all = async {
            tokio::select! {
                served = serve => panic!("a server has ended: {:?}", served.err()),
                asked = ask => asked.unwrap().len(),
            }
        };
        let local = tokio::task::LocalSet::new();
        let done = local
            .run_until(tokio::time::timeout(Duration::from_secs(60), all))
            .await;
        assert_eq!(done, Ok(servers.len()));
    }

    #[tokio::test]
    async fn a_client_of_each_gets_the_lock_of_all_in_turn() {
        let places = Places::new(false).await;
        let ([of_leader, of_second, of_third], [second, third]) = (places.clients, places.followers);
        let logs = places.logs;
        let serve = async {
            let led = lead(of_leader, &places.others, &logs[0]);
            let followed = (
                follow(of_second, second, &logs[1]),
                follow(of_third, third, &logs[2]),
            );
            tokio::try_join!(led, followed.0, followed.1).map(|_| ())
        };
        all_get_the_lock_in_turn(&places.servers, serve).await;
    }

    /// Three that openraft replicates.
    async fn serve_by_openraft(places: Places) -> anyhow::Result<()> {
        let ([of_leader, of_second, of_third], [second, third]) = (places.clients, places.followers);
        let logs = places.logs;
        let led = raft::lead(of_leader, &places.others, &logs[0]);
        let followed = (
            raft::follow(1, of_second, second, &logs[1]),
            raft::follow(2, of_third, third, &logs[2]),
        );
        tokio::try_join!(led, followed.0, followed.1).map(|_| ())
    }

    #[tokio::test]
    async fn a_client_of_each_gets_the_lock_of_all_by_openraft_too() {
        let places = Places::new(false).await;
        let servers = places.servers.clone();
        all_get_the_lock_in_turn(&servers, serve_by_openraft(places)).await;
    }

    /// Lockgate's own load can be put on it.
    #[tokio::test]
    async fn clients_of_lockgate_get_their_locks_by_http() {
        let places = Places::new(true).await;
        let nodes = Nodes::from(places.servers.to_vec());
        let load = async {
            let plan = Plan::new(nodes, Duration::ZERO, Duration::from_secs(2));
            tokio::select! {
                served = serve_by_openraft(places) => panic!("a server has ended: {:?}", served.err()),
                report = plan.lock_cycles(5) => report.unwrap(),
            }
        };
        let local = tokio::task::LocalSet::new();
        let report = local
            .run_until(tokio::time::timeout(Duration::from_secs(60), load))
            .await;
        let report = report.expect("it does not hang");
        assert_eq!(report.errors, 0, "{:?}", report.first_error);
        assert!(report.operation.count > 0);
    }
}
