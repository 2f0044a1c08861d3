//! A follower: stores the entries that the leader replicates, and forwards the requests of its clients.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use bytes::{Buf, Bytes, BytesMut};
use openraft::raft::VoteRequest;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};

use super::frames::{Frames, put_numbered, take_number};
use super::locks::{ReplyTo, reply};
use super::log_store::LogStore;
use super::network::Network;
use super::request::Submitted;
use super::state_machine::StateMachine;
use super::{Raft, http, start, wire};

/// Serves clients and the leader until the leader closes its connection for requests.
pub async fn follow(
    node: u64,
    clients: TcpListener,
    listener: TcpListener,
    log: &Path,
) -> anyhow::Result<()> {
    let (submissions, submitted) = mpsc::unbounded_channel();
    tokio::task::spawn_local(http::serve(clients, submissions));
    let store = LogStore::new(node, log).with_context(|| log.display().to_string())?;
    let (acks, others) = (store.acks(), Arc::from([]));
    let raft = start(node, Network { others, acks }, store, StateMachine::default()).await?;
    let submitted = Rc::new(Mutex::new(submitted));
    let (end, mut ended) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            line = listener.accept() => {
                let (raft, submitted, end) = (raft.clone(), submitted.clone(), end.clone());
                tokio::task::spawn_local(async move {
                    match serve_connection(line?.0, raft, &submitted).await {
                        Ok(Purpose::Messages) => {}
                        // This was the leader's only connection for clients' requests.
                        Ok(Purpose::Requests) => drop(end.send(())),
                        Err(error) => eprintln!("bench-peers: the leader: {error:#}"),
                    }
                    anyhow::Ok(())
                });
            }
            Some(()) = ended.recv() => return Ok(()),
        }
    }
}

/// Purpose of a connection.
enum Purpose {
    /// openraft's messages.
    Messages,
    /// Requests of clients.
    Requests,
}

/// Serves a connection until it is closed.
async fn serve_connection(
    stream: TcpStream,
    raft: Raft,
    submitted: &Mutex<mpsc::UnboundedReceiver<Submitted>>,
) -> anyhow::Result<Purpose> {
    stream.set_nodelay(true)?;
    let (from, to) = stream.into_split();
    let mut frames = Frames::new(from);
    let (answers, answered) = mpsc::unbounded_channel();
    let mut to = Some(to);
    let mut answered = Some(answered);
    while let Some(mut frame) = frames.next().await? {
        match take_number(&mut frame)? {
            wire::REQUESTS => {
                let to = to.take().context("the connection already carries messages")?;
                let mut submitted = submitted
                    .try_lock()
                    .context("another connection already carries requests")?;
                forward(frames, to, &mut submitted).await?;
                return Ok(Purpose::Requests);
            }
            wire::APPEND => {
                let request = wire::take_append(frame)?;
                let last = request.entries.last().map(|entry| entry.log_id);
                let last = last.or(request.prev_log_id);
                let mut answer = Vec::new();
                wire::put_log_id(&mut answer, last.as_ref());
                // This call enters openraft's queue here, so entries keep their order.
                let (raft, answers) = (raft.clone(), answers.clone());
                tokio::spawn(async move {
                    let stored = match raft.append_entries(request).await {
                        Ok(response) if response.is_success() => Some(answer),
                        other => {
                            eprintln!("bench-peers: openraft rejected entries: {other:?}");
                            None
                        }
                    };
                    // A leader that has disconnected needs no response.
                    let _ = answers.send(stored);
                });
            }
            wire::VOTE => {
                let vote = wire::take_vote(&mut frame)?;
                let last = wire::take_log_id(&mut frame)?;
                let response = raft.vote(VoteRequest::new(vote, last)).await?;
                let mut answer = Vec::new();
                wire::put_vote(&mut answer, &response.vote);
                wire::put_log_id(&mut answer, response.last_log_id.as_ref());
                answer.extend(response.vote_granted.then_some(1));
                answers.send(Some(answer))?;
            }
            other => bail!("an unknown message type {other}"),
        }
        if let (Some(to), Some(answered)) = (to.take(), answered.take()) {
            tokio::task::spawn_local(send_all(to, answered));
        }
    }
    Ok(Purpose::Messages)
}

/// Sends responses, and all that are ready together in one write. After a rejection, which has no response,
/// closes the connection.
async fn send_all(mut to: OwnedWriteHalf, mut answers: mpsc::UnboundedReceiver<Option<Vec<u8>>>) {
    let mut out = BytesMut::new();
    while let Some(Some(answer)) = answers.recv().await {
        put_frame(&mut out, &answer);
        let mut refused = false;
        while let Ok(next) = answers.try_recv() {
            match next {
                Some(answer) => put_frame(&mut out, &answer),
                None => refused = true,
            }
        }
        // A leader that has disconnected needs no response.
        if to.write_all_buf(&mut out).await.is_err() || refused {
            return;
        }
    }
}

fn put_frame(out: &mut BytesMut, message: &[u8]) {
    out.extend_from_slice(&(message.len() as u32).to_le_bytes());
    out.extend_from_slice(message);
}

/// Forwards requests to the leader, and replies to clients when it reports them finished.
async fn forward(
    mut frames: Frames<OwnedReadHalf>,
    mut to: OwnedWriteHalf,
    submitted: &mut mpsc::UnboundedReceiver<Submitted>,
) -> anyhow::Result<()> {
    let mut forwarded = Forwarded::default();
    let mut out = BytesMut::new();
    loop {
        tokio::select! {
            biased;
            frame = frames.next() => {
                let Some(mut frame) = frame? else { return Ok(()) };
                ensure!(take_number(&mut frame)? == wire::FINISHED, "not a report of finished requests");
                forwarded.finished(frame)?;
            }
            one = submitted.recv() => {
                let first = one.context("the HTTP server has ended")?;
                forwarded.put(first, submitted, &mut out).await;
                to.write_all_buf(&mut out).await?;
            }
        }
    }
}

/// Requests that were forwarded to the leader, by their numbers.
#[derive(Default)]
struct Forwarded {
    waiting: HashMap<u64, ReplyTo>,
    last: u64,
}

impl Forwarded {
    /// Adds the first request, and those that arrived at the same time, to the bytes that are sent next.
    async fn put(
        &mut self,
        first: Submitted,
        submitted: &mut mpsc::UnboundedReceiver<Submitted>,
        out: &mut BytesMut,
    ) {
        tokio::task::yield_now().await;
        let mut next = Some(first);
        while let Some(Submitted { bytes, reply_to, .. }) = next {
            self.last += 1;
            put_numbered(out, self.last, &[&bytes]);
            self.waiting.insert(self.last, reply_to);
            next = submitted.try_recv().ok();
        }
    }

    /// Replies to the clients whose requests are finished.
    fn finished(&mut self, mut numbers: Bytes) -> anyhow::Result<()> {
        while numbers.has_remaining() {
            let waiting = self.waiting.remove(&take_number(&mut numbers)?);
            reply(waiting.context("no request has this number")?);
        }
        Ok(())
    }
}
