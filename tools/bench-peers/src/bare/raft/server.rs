//! One of the two that follow.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use bytes::BytesMut;
use openraft::raft::VoteRequest;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};

use super::super::follower::Forwarded;
use super::super::serve::{Asked, Door};
use super::super::{ANSWERS, Frames, take_number};
use super::log::Store;
use super::machine::Machine;
use super::network::Network;
use super::{Raft, start, wire};

/// Stores what the leader sends, and answers clients when it says so, until it has gone.
pub async fn follow(node: u64, clients: Door, listener: TcpListener, log: &Path) -> anyhow::Result<()> {
    let (ask, asked) = mpsc::unbounded_channel();
    tokio::task::spawn_local(clients.serve(ask));
    let store = Store::new(node, log).with_context(|| log.display().to_string())?;
    let (acks, others) = (store.acks(), Arc::from([]));
    let raft = start(node, Network { others, acks }, store, Machine::default()).await?;
    let asked = Rc::new(Mutex::new(asked));
    let (end, mut ended) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            line = listener.accept() => {
                let (raft, asked, end) = (raft.clone(), asked.clone(), end.clone());
                tokio::task::spawn_local(async move {
                    match serve_line(line?.0, raft, &asked).await {
                        Ok(Purpose::Messages) => {}
                        // It was the leader's one line for what clients want.
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

/// What a line is for.
enum Purpose {
    /// openraft's messages.
    Messages,
    /// What clients want.
    Requests,
}

/// Until it is closed.
async fn serve_line(
    stream: TcpStream,
    raft: Raft,
    asked: &Mutex<mpsc::UnboundedReceiver<Asked>>,
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
                let to = to.take().context("it is for messages")?;
                let mut asked = asked.try_lock().context("there is such a line already")?;
                forward(frames, to, &mut asked).await?;
                return Ok(Purpose::Requests);
            }
            wire::APPEND => {
                let request = wire::take_append(frame)?;
                let last = request.entries.last().map(|entry| entry.log_id);
                let last = last.or(request.prev_log_id);
                let mut answer = Vec::new();
                wire::put_log_id(&mut answer, last.as_ref());
                // The place in openraft's queue is taken here, in turn.
                let (raft, answers) = (raft.clone(), answers.clone());
                tokio::spawn(async move {
                    let stored = match raft.append_entries(request).await {
                        Ok(response) if response.is_success() => Some(answer),
                        other => {
                            eprintln!("bench-peers: entries were refused: {other:?}");
                            None
                        }
                    };
                    // Who has gone needs no answer.
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
            other => bail!("a message of kind {other}"),
        }
        if let (Some(to), Some(answered)) = (to.take(), answered.take()) {
            tokio::task::spawn_local(send_all(to, answered));
        }
    }
    Ok(Purpose::Messages)
}

/// Sends answers, those together that are there together. After a refusal, for which there is no answer, it closes the line.
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
        // Who has gone needs no answer.
        if to.write_all_buf(&mut out).await.is_err() || refused {
            return;
        }
    }
}

fn put_frame(out: &mut BytesMut, message: &[u8]) {
    out.extend_from_slice(&(message.len() as u32).to_le_bytes());
    out.extend_from_slice(message);
}

/// What clients want goes to the leader, and they are answered when it says so.
async fn forward(
    mut frames: Frames<OwnedReadHalf>,
    mut to: OwnedWriteHalf,
    asked: &mut mpsc::UnboundedReceiver<Asked>,
) -> anyhow::Result<()> {
    let mut forwarded = Forwarded::default();
    let mut out = BytesMut::new();
    loop {
        tokio::select! {
            biased;
            frame = frames.next() => {
                let Some(mut frame) = frame? else { return Ok(()) };
                ensure!(take_number(&mut frame)? == ANSWERS, "something else than answers");
                forwarded.answer(frame)?;
            }
            one = asked.recv() => {
                let first = one.context("nobody listens any more")?;
                forwarded.put(first, asked, &mut out).await;
                to.write_all_buf(&mut out).await?;
            }
        }
    }
}
