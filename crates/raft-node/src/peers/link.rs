//! This node's side of a connection on which it asks and a peer answers: long-lived, pipelined, made when it
//! is first needed and again when it breaks.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::FutureExt;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::gate::{Gate, clock_in};
use super::stream::{PeerStream, ReadHalf, WriteHalf, protect_called};
use super::wire::{
    Answer, Ask, FrameReader, HelloReply, Purpose, RefusalCause, decode_frame, put_frame, send_frames,
};
use crate::ids::DiskId;
use crate::ids::NodeId;
use crate::panics::PanicGuard;
use crate::versions::OLDEST_WIRE_VERSION;
use fault_injection::fail_step;
use raft_log::sync::Mutex;

/// Maximum time to establish a connection, including the handshake. Peers are a fraction of a millisecond
/// away, or a few hundred between continents.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Silence of a connection after which it is closed, once a question on it was not answered in time. A peer that
/// is slow for a moment needs no new connection: establishing one would take longer.
const SILENT_LINE: Duration = Duration::from_millis(300);

/// Questions that wait to be written. Callers wait when there are more: the peer does not keep up.
const QUEUE: usize = 1024;

/// Reason why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It never left this node.
    #[error("not sent: {0}")]
    NotSent(String),
    /// It was sent, or may have been; what the peer did with it is unknown.
    #[error("sent, and not answered: {0}")]
    NoAnswer(String),
}

struct Question {
    ask: Ask,
    answer: oneshot::Sender<Result<Answer, LinkError>>,
}

/// A line of questions to one peer. Cheap to clone; ends when the last clone is dropped.
#[derive(Clone)]
pub struct Link {
    questions: mpsc::Sender<Question>,
    life: Arc<Life>,
}

/// Evidence of the peer's life at the other end.
#[derive(Default)]
struct Life {
    /// A question timed out: the connection may be dead without anybody having said so.
    suspicion: Notify,
    /// Time of the last answer, to any question.
    last_answer: Mutex<Option<Instant>>,
}

impl Link {
    /// A line to `to`; connects when the first question is asked.
    pub fn new(gate: Arc<Gate>, to: NodeId, purpose: Purpose) -> Self {
        let (questions, queue) = mpsc::channel(QUEUE);
        let life = Arc::new(Life::default());
        tokio::spawn(run(gate, to, purpose, queue, life.clone()));
        Self { questions, life }
    }

    /// Returns the time of the peer's last answer on this connection, in time or not.
    pub fn last_answer(&self) -> Option<Instant> {
        *self.life.last_answer.lock()
    }

    /// Asks, in the order of the calls, and waits for the answer, at most for `patience`.
    pub async fn ask(&self, ask: Ask, patience: Duration) -> Result<Answer, LinkError> {
        let answer = self.send(ask).await?;
        self.answer(answer, patience).await
    }

    /// Waits for the answer to a question that was sent.
    pub async fn answer(
        &self,
        answer: oneshot::Receiver<Result<Answer, LinkError>>,
        patience: Duration,
    ) -> Result<Answer, LinkError> {
        match timeout(patience, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(LinkError::NoAnswer("the link was closed".into())),
            Err(_) => {
                self.life.suspicion.notify_one();
                Err(LinkError::NoAnswer(format!("nothing came within {patience:?}")))
            }
        }
    }

    /// Puts a question into the line. Questions are written in the order in which this returns.
    pub async fn send(&self, ask: Ask) -> Result<oneshot::Receiver<Result<Answer, LinkError>>, LinkError> {
        let (tx, rx) = oneshot::channel();
        let question = Question { ask, answer: tx };
        match self.questions.send(question).await {
            Ok(()) => Ok(rx),
            Err(_) => Err(LinkError::NotSent("the link was closed".into())),
        }
    }
}

/// Both halves of a connection, and the disk of the node at its other end.
pub type Connection = (FrameReader<ReadHalf>, WriteHalf, DiskId);

/// Connects to a peer for `purpose` and shakes hands, wherever it is found.
pub async fn connect(gate: &Gate, to: NodeId, purpose: Purpose) -> io::Result<Connection> {
    let mut problem = None;
    for place in gate.peer_addresses(to) {
        match connect_at(gate, to, &place, purpose).await {
            Ok(connection) => {
                gate.found(to, &place);
                return Ok(connection);
            }
            // What the membership says is the likelier place, so what happens there is the better message.
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    Err(problem.unwrap_or_else(|| io::Error::other(format!("node {to} has no known address"))))
}

/// Connects to a node at `address` and shakes hands.
pub async fn connect_at(gate: &Gate, to: NodeId, address: &str, purpose: Purpose) -> io::Result<Connection> {
    let other = |what: String| io::Error::other(what);
    let shake = async {
        fail_step!(async "peer::before_connect", |error| error);
        let stream = PeerStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (reader, mut writer) = protect_called(stream, to, gate.tls()).await?.into_split();
        let mut reader = FrameReader::new(reader);
        let hello = gate.hello(to, purpose);
        let asked = Instant::now();
        let mut out = BytesMut::new();
        put_frame(&mut out, &hello);
        send_frames(&mut writer, &out).await?;
        let reply: HelloReply = reader
            .message()
            .await?
            .ok_or_else(|| other("the peer hung up during the handshake".to_owned()))?;
        let shown = match &reply {
            HelloReply::Welcome { extensions, .. } => extensions.clone(),
            HelloReply::Refused { reason, cause, .. } => {
                if *cause == RefusalCause::RolledBack {
                    gate.retire_directory(reason.clone()).await;
                }
                Vec::new()
            }
        };
        let disk = gate
            .accept(&hello, reply)
            .map_err(|error| other(error.to_string()))?;
        if let Some(clock_ms) = clock_in(&shown) {
            gate.clock().measured(to, clock_ms, asked);
        }
        gate.meet(to, disk, &shown).await?;
        fail_step!(async "peer::after_connect", |error| error);
        Ok((reader, writer, disk))
    };
    match timeout(CONNECT_TIMEOUT, shake).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn run(
    gate: Arc<Gate>,
    to: NodeId,
    purpose: Purpose,
    mut queue: mpsc::Receiver<Question>,
    life: Arc<Life>,
) {
    let _guard = PanicGuard::new(gate.failure(), "a line to a peer");
    let mut is_lost = false;
    // One line for a peer, not one for each of its connections.
    let tells = purpose == Purpose::Control;
    while let Some(first) = queue.recv().await {
        let (reader, writer, _) = match connect(&gate, to, purpose).await {
            Ok(connected) => connected,
            Err(error) => {
                let what = error.to_string();
                match tells && !is_lost {
                    true => tracing::warn!(node = to, error = what, "a peer is lost: it cannot be reached"),
                    false => tracing::debug!(node = to, ?purpose, error = what, "a peer cannot be reached"),
                }
                is_lost = true;
                refuse(first, &what);
                // What came meanwhile would fare no better.
                while let Ok(question) = queue.try_recv() {
                    refuse(question, &what);
                }
                continue;
            }
        };
        if std::mem::take(&mut is_lost) && tells {
            tracing::info!(node = to, "a peer is back");
        }
        // What was suspected of the connection before is nothing that this one has done.
        let _stale = life.suspicion.notified().now_or_never();
        let mut waiting = HashMap::new();
        // A connection that was made has agreed upon one.
        let version = gate.wire_version_with(to).unwrap_or(OLDEST_WIRE_VERSION);
        let ended = converse(first, &mut queue, &life, version, reader, writer, &mut waiting).await;
        if let Err(error) = &ended {
            tracing::debug!(node = to, ?purpose, %error, "a connection to a peer broke");
        }
        let what = ended
            .err()
            .map_or("the peer hung up".to_owned(), |error| error.to_string());
        for answer in waiting.into_values() {
            // The asking task may have ended.
            let _ = answer.send(Err(LinkError::NoAnswer(what.clone())));
        }
    }
}

fn refuse(question: Question, what: &str) {
    // The asking task may have ended.
    let _ = question.answer.send(Err(LinkError::NotSent(what.to_owned())));
}

type Waiting = HashMap<u64, oneshot::Sender<Result<Answer, LinkError>>>;

async fn converse(
    first: Question,
    queue: &mut mpsc::Receiver<Question>,
    life: &Life,
    version: u16,
    mut reader: FrameReader<ReadHalf>,
    mut writer: WriteHalf,
    waiting: &mut Waiting,
) -> io::Result<()> {
    let mut next_id = 0u64;
    let mut out = BytesMut::new();
    let mut next = Some(first);
    // Since when a question waits and nothing comes; and when that is taken for the end of the connection.
    let mut quiet_since = Instant::now();
    let mut give_up = None;
    loop {
        if waiting.is_empty() {
            quiet_since = Instant::now();
        }
        // Everything that is in the queue goes out in one write.
        while let Some(question) = next.take() {
            let since = question.ask.since();
            if since > version {
                let what =
                    format!("it is a question of version {since}, and the peer speaks version {version}");
                refuse(question, &what);
                next = queue.try_recv().ok();
                continue;
            }
            put_frame(&mut out, &(next_id, &question.ask));
            #[cfg(feature = "failpoints")]
            let asked = crate::peers::fail_points::asking(&question.ask).await;
            waiting.insert(next_id, question.answer);
            #[cfg(feature = "failpoints")]
            asked?;
            next_id += 1;
            next = queue.try_recv().ok();
        }
        if !out.is_empty() {
            send_frames(&mut writer, &out).await?;
            fail_step!(async "peer::after_ask", |error| error);
            out.clear();
        }
        tokio::select! {
            biased;
            () = life.suspicion.notified() => give_up = Some(quiet_since + SILENT_LINE),
            frame = reader.next() => match frame? {
                Some(frame) => {
                    let (id, answer): (u64, Answer) = decode_frame(&frame)?;
                    fail_step!(async "peer::after_answer", |error| error);
                    quiet_since = Instant::now();
                    give_up = None;
                    *life.last_answer.lock() = Some(quiet_since);
                    if let Some(asker) = waiting.remove(&id) {
                        // The asking task may have ended.
                        let _ = asker.send(Ok(answer));
                    }
                }
                None => return Ok(()),
            },
            // After reading what arrived: this node may have stalled itself.
            () = sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "an answer did not come in time"));
            }
            // While the connection is in doubt a question may belong on the next one.
            question = queue.recv(), if give_up.is_none() => match question {
                Some(question) => next = Some(question),
                None => return Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::net::TcpListener;
    use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
    use tokio::sync::watch;

    use super::*;
    use crate::ids::MemberAddress;
    use crate::ids::{ClusterId, DiskId};
    use crate::peers::wire::Hello;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn gate(node: NodeId, peer: &str) -> Arc<Gate> {
        let address = MemberAddress {
            peer: peer.to_owned(),
            http: String::new(),
        };
        let members = BTreeMap::from([(1, address.clone()), (2, address)]);
        let cluster = Some(ClusterId([7; 16]));
        Arc::new(Gate::new(
            node,
            "test".into(),
            DiskId([node as u8; 16]),
            cluster,
            members,
            watch::Sender::new(None),
        ))
    }

    /// Node 2: accepts one connection and shakes hands.
    async fn accept(listener: &TcpListener, gate: &Gate) -> (FrameReader<OwnedReadHalf>, OwnedWriteHalf) {
        let (stream, _) = listener.accept().await.unwrap();
        let (reader, mut writer) = stream.into_split();
        let mut reader = FrameReader::new(reader);
        let hello: Hello = reader.message().await.unwrap().unwrap();
        let mut out = BytesMut::new();
        put_frame(&mut out, &gate.judge(&hello));
        send_frames(&mut writer, &out).await.unwrap();
        (reader, writer)
    }

    async fn answer(writer: &mut OwnedWriteHalf, id: u64, index: u64) {
        let mut out = BytesMut::new();
        put_frame(&mut out, &(id, Answer::ReadIndex(Ok(index))));
        send_frames(writer, &out).await.unwrap();
    }

    async fn next_id(reader: &mut FrameReader<OwnedReadHalf>) -> u64 {
        let (id, _): (u64, Ask) = reader.message().await.unwrap().unwrap();
        id
    }

    #[tokio::test]
    async fn answers_find_their_questions_in_any_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let link = Link::new(gate(1, &address), 2, Purpose::Control);
        let serve = async {
            let (mut reader, mut writer) = accept(&listener, &gate(2, &address)).await;
            let (a, b) = (next_id(&mut reader).await, next_id(&mut reader).await);
            answer(&mut writer, b, 20).await;
            answer(&mut writer, a, 10).await;
            (reader, writer)
        };
        let ask = || link.ask(Ask::ReadIndex, PATIENCE);
        let (first, second, _connection) = tokio::join!(ask(), ask(), serve);
        assert_eq!(first, Ok(Answer::ReadIndex(Ok(10))));
        assert_eq!(second, Ok(Answer::ReadIndex(Ok(20))));
    }

    #[tokio::test]
    async fn unsent_questions_are_distinguished_from_unanswered_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let link = Link::new(gate(1, &address), 2, Purpose::Traffic);
        let hang_up = async {
            let (mut reader, _writer) = accept(&listener, &gate(2, &address)).await;
            next_id(&mut reader).await;
        };
        let (asked, ()) = tokio::join!(link.ask(Ask::ReadIndex, PATIENCE), hang_up);
        assert!(matches!(asked, Err(LinkError::NoAnswer(_))), "{asked:?}");

        // It connects again by itself.
        let serve = async {
            let (mut reader, mut writer) = accept(&listener, &gate(2, &address)).await;
            let id = next_id(&mut reader).await;
            answer(&mut writer, id, 1).await;
        };
        let (asked, ()) = tokio::join!(link.ask(Ask::ReadIndex, PATIENCE), serve);
        assert_eq!(asked, Ok(Answer::ReadIndex(Ok(1))));

        // Nobody listens any more; the broken connection may be noticed first.
        drop(listener);
        loop {
            match link.ask(Ask::ReadIndex, PATIENCE).await {
                Err(LinkError::NotSent(_)) => break,
                Err(LinkError::NoAnswer(_)) => {}
                Ok(answer) => panic!("{answer:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_silent_connection_is_given_up_for_a_new_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let link = Link::new(gate(1, &address), 2, Purpose::Control);
        let node_2 = gate(2, &address);
        let asked = async {
            let silent = link.ask(Ask::ReadIndex, Duration::from_millis(50)).await;
            assert!(matches!(silent, Err(LinkError::NoAnswer(_))), "{silent:?}");
            link.ask(Ask::ReadIndex, PATIENCE).await
        };
        let serve = async {
            let _silent = accept(&listener, &node_2).await;
            let (mut reader, mut writer) = accept(&listener, &node_2).await;
            let id = next_id(&mut reader).await;
            answer(&mut writer, id, 3).await;
            (reader, writer)
        };
        let both = async { tokio::join!(asked, serve) };
        let (answered, _connection) = timeout(PATIENCE, both).await.expect("every question ends");
        assert_eq!(answered, Ok(Answer::ReadIndex(Ok(3))));
    }
}
