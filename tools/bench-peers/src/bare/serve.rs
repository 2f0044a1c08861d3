//! Clients of one of the processes: requests are read, and answers and notices written, in frames.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use anyhow::Context;
use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use super::locks::Waiting;
use super::{ANSWER_BYTES, Frames, NOTICE_BYTES, Request, Want, http};

/// A request in its bytes, and who waits until it is stored.
pub struct Asked {
    pub request: Request,
    pub frame: Bytes,
    pub waiting: Waiting,
}

/// Where clients come, and how they speak.
pub struct Door {
    pub listener: TcpListener,
    /// By HTTP in place of frames: see [`http`].
    pub is_http: bool,
}

impl Door {
    /// Serves who comes, until the process ends. What has to be stored goes to `ask`.
    pub(in crate::bare) async fn serve(self, ask: mpsc::UnboundedSender<Asked>) {
        match self.is_http {
            true => http::serve(self.listener, ask).await,
            false => serve(self.listener, ask).await,
        }
    }
}

/// The ways to all clients, by the order in which they came.
type Clients = Rc<RefCell<HashMap<u64, Rc<OwnedWriteHalf>>>>;

async fn serve(listener: TcpListener, ask: mpsc::UnboundedSender<Asked>) {
    let clients = Clients::default();
    for number in 0.. {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (clients, ask) = (clients.clone(), ask.clone());
                tokio::task::spawn_local(async move {
                    let served = serve_one(stream, number, &clients, ask).await;
                    clients.borrow_mut().remove(&number);
                    if let Err(error) = served {
                        eprintln!("bench-peers: a client: {error:#}");
                    }
                });
            }
            Err(error) => eprintln!("bench-peers: accepting a client: {error}"),
        }
    }
}

/// Answers one client, until it closes its connection.
async fn serve_one(
    stream: TcpStream,
    number: u64,
    clients: &Clients,
    ask: mpsc::UnboundedSender<Asked>,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let (from, to) = stream.into_split();
    let to = Rc::new(to);
    clients.borrow_mut().insert(number, to.clone());
    let mut frames = Frames::new(from);
    let answer = frame_of(ANSWER_BYTES);
    while let Some(frame) = frames.next().await? {
        let request = Request::of(frame.clone())?;
        match request.want {
            Want::Answer => {}
            Want::Tell => tell_others(clients, number).await,
            Want::Write | Want::Acquire | Want::Release => stored(&ask, request, frame).await?,
        }
        send(&to, &answer).await?;
    }
    Ok(())
}

/// Waits until it is stored, and its turn has come.
pub async fn stored(
    ask: &mpsc::UnboundedSender<Asked>,
    request: Request,
    frame: Bytes,
) -> anyhow::Result<()> {
    let (waiting, stored) = oneshot::channel();
    let asked = Asked {
        request,
        frame,
        waiting: Waiting::Here(waiting),
    };
    ask.send(asked).ok().context("nothing is stored any more")?;
    stored.await.context("nothing is stored any more")
}

/// A notice to all but one.
async fn tell_others(clients: &Clients, but: u64) {
    let notice = frame_of(NOTICE_BYTES);
    let all: Vec<_> = clients
        .borrow()
        .iter()
        .map(|(number, to)| (*number, to.clone()))
        .collect();
    for (_, to) in all.iter().filter(|(number, _)| *number != but) {
        // Who has gone away needs no notice.
        let _ = send(to, &notice).await;
    }
}

fn frame_of(bytes: usize) -> BytesMut {
    let mut frame = BytesMut::with_capacity(4 + bytes);
    frame.put_u32_le(bytes as u32);
    frame.put_bytes(b'.', bytes);
    frame
}

async fn send(to: &OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
