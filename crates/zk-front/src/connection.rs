//! A connection with a session: requests in, answers and notifications out, in ZooKeeper's order.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use access_token::{Secret, Standing};
use bytes::{Bytes, BytesMut};
use raft_node::admission::{Place, Work};
use raft_node::{Node, ProposeError, Unavailable, WatchConnection, WatchesLost, fail_step};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use zk_wire::{
    ConnectResponse, DecodeError, ErrorCode, FrameError, Outcome, Reader, Reply, ReplyHeader, Request,
    RequestHeader, frame, op_code, xid,
};
use znode_store::{Applied, Command, Op, Refusal, SessionId, Step, Turn, Unproven, Zxid};

use crate::auth::{AuthFailed, Proven};
use crate::config::LARGE_REQUEST_BYTES;
use crate::front::{Bounds, Client, Front};
use crate::handshake::{self, Session};
use crate::outstanding::{Answer, Asked, Awaits, Barrier, Done, Outstanding};
use crate::pulse::{Over, Pulse};
use crate::reads::{Looker, Seen};
use crate::requests::Came;
use crate::socket::{self, Receiver, Sender, Stream};
use crate::trace::{self, Traced};
use crate::translate::{self, Shape};

/// While more waits to be sent than this, nothing more is taken from the client, nor from its notices.
const MAX_UNSENT: usize = 1024 * 1024;

/// So many requests are taken before others get their turn on the thread.
const TAKEN_AT_ONCE: usize = 128;

/// What an idle connection may keep of the room that its last answers have needed: enough for those of most requests, and of ten
/// thousand connections five megabytes.
const KEPT_CAPACITY: usize = 512;

/// See the module.
pub(crate) struct Connection {
    front: Front,
    bounds: Bounds,
    client: Arc<Client>,
    session: SessionId,
    next_turn: Turn,
    proven: Proven,
    watches: WatchConnection,
    pulse: Pulse,
    outstanding: Outstanding,
    /// The first request that waits, waits for such a place, because this node has enough to do.
    held_back: Option<Work>,
    inbox: BytesMut,
    /// The room for a large request that has begun to come.
    large: Option<OwnedSemaphorePermit>,
    out: BytesMut,
    /// Nothing more is taken from the client; the connection ends when all that it has asked is answered and sent.
    ending: Option<End>,
    /// The end of the session is on its way.
    closes: bool,
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The client closed its session.
    Orderly,
    /// For another reason. The session lives on, or has ended elsewhere.
    Early(String),
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        Self::Early(broken.to_string())
    }
}

/// Why a connection ends at once, without any other word.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Stream(#[from] handshake::Refused),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Header(#[from] DecodeError),
    #[error(transparent)]
    Watches(#[from] WatchesLost),
    #[error(transparent)]
    Write(#[from] ProposeError),
    #[error(transparent)]
    Barrier(#[from] Unavailable),
    #[error("{0}")]
    Turn(Refusal),
    #[error("its session has ended")]
    SessionEnded,
    #[error("it may not use its session: {0}")]
    NotAllowed(Refusal),
    #[error("no leader has confirmed a heartbeat for most of its timeout")]
    CutOff,
    #[error("it begins a large request, and there is no more room for those")]
    NoRoom,
}

impl Connection {
    /// A connection whose client is about to be told what it was granted, and may have sent more already.
    pub fn new(
        front: &Front,
        client: &Arc<Client>,
        session: Session,
        proven: Proven,
        watches: WatchConnection,
        inbox: BytesMut,
        granted: &ConnectResponse,
    ) -> Self {
        let mut out = BytesMut::new();
        granted.write_frame(&mut out);
        let caller = proven.identities().clone();
        Self {
            front: front.clone(),
            bounds: front.bounds(),
            client: client.clone(),
            session: session.id,
            next_turn: Turn {
                since: session.since,
                number: 0,
            },
            proven,
            watches,
            pulse: Pulse::new(front.node().clone(), session.id, caller, session.timeout),
            outstanding: Outstanding::default(),
            held_back: None,
            inbox,
            large: None,
            out,
            ending: None,
            closes: false,
        }
    }

    /// Serves the client until it goes, or has to. All that is waited for here lies in this future, one beside the other, for as
    /// long as the connection lives: what is long, and rarely waited for, is in a box that is made when it is.
    pub async fn serve(&mut self, stream: &mut Stream, stop: &CancellationToken) -> Result<End, Broken> {
        let (mut receiver, mut sender) = socket::halves(stream);
        let ended = self.serve_on(&mut receiver, &mut sender, stop).await;
        sender.say_farewell();
        ended
    }

    async fn serve_on(
        &mut self,
        receiver: &mut Receiver<'_>,
        sender: &mut Sender<'_>,
        stop: &CancellationToken,
    ) -> Result<End, Broken> {
        // All connections listen for the same stop, so to begin that anew with every request would have them wait for each other.
        let mut stopped = pin!(stop.cancelled());
        loop {
            if self.waits_for_room() {
                self.begin_waiting()?;
            }
            let more = self.take_requests()?;
            let outstanding = self.outstanding.len() as u64;
            self.client.outstanding.store(outstanding, Ordering::Relaxed);
            self.send(sender)?;
            if self.outstanding.is_empty()
                && self.out.is_empty()
                && !sender.holds_back()
                && let Some(end) = &self.ending
            {
                return Ok(end.clone());
            }
            let sender_holds_back = sender.holds_back();
            let has_room = self.out.len() < MAX_UNSENT;
            // All that was to be sent may have left at once: then nothing else would have this go on with what waited for room.
            let more = has_room && (more || self.waits_for_room() && self.held_back.is_none());
            // While it is not listened to, that it is not heard is not its fault.
            if self.held_back.is_some() {
                self.pulse.heard();
            }
            let listens = self.ending.is_none() && has_room && self.has_place();
            tokio::select! {
                biased;
                (xid, since, done) = self.outstanding.next(), if has_room && self.outstanding.is_under_way() => {
                    fail_step!(async "zookeeper::before_answer", Broken::Io);
                    self.finish(xid, since, done)?;
                    self.begin_waiting()?;
                }
                // A session that its client closes ends before the client is told.
                notice = self.watches.next(), if has_room && !self.closes => {
                    let notice = notice?;
                    write_notice(&self.client, &mut self.out, &notice);
                    self.tell_more();
                }
                writable = async { Box::pin(sender.writable()).await }, if !self.out.is_empty() || sender_holds_back => writable?,
                received = handshake::receive(receiver, &mut self.inbox), if listens && !more => {
                    received?;
                    self.pulse.heard();
                }
                pings = self.pulse.next(), if !self.closes => match pings {
                    Ok(pings) => self.answer_pings(pings)?,
                    Err(Over::SessionEnded) => return Err(Broken::SessionEnded),
                    Err(Over::NotAllowed(refusal)) => return Err(Broken::NotAllowed(refusal)),
                    Err(Over::CutOff) => return Err(Broken::CutOff),
                },
                () = room(self.front.node(), self.held_back), if has_room => self.begin_waiting()?,
                // What was received waits for others to have their turn.
                () = tokio::task::yield_now(), if more => {}
                () = &mut stopped, if self.ending.is_none() => {
                    self.ending = Some(End::Early("the node serves no more".to_owned()));
                }
            }
        }
    }

    /// Whether requests wait, and not for others.
    fn waits_for_room(&self) -> bool {
        self.outstanding.has_waiting() && !self.outstanding.is_under_way()
    }

    /// The operation of a request that writes, or the code that it is refused with because it makes no sense or because of
    /// its path.
    fn op(&mut self, request: &Request, in_multi: bool) -> Result<Op, ErrorCode> {
        let op = translate::op(request, in_multi)?;
        let bounds = self.bounds.now(&self.front).paths;
        // During an upgrade some members refuse long paths, and the answer is what those members would give.
        if op.check_path(&bounds).is_err() || !op.is_short() && !self.front.node().allows_long_paths() {
            return Err(match op {
                Op::Delete { .. } => ErrorCode::NO_NODE,
                _ => ErrorCode::BAD_ARGUMENTS,
            });
        }
        Ok(op)
    }

    fn has_place(&mut self) -> bool {
        let config = self.bounds.now(&self.front);
        self.outstanding.len() < config.max_outstanding
            && self.outstanding.waiting_bytes() < config.max_outstanding_bytes
    }

    /// Has the frame that has begun to come take its room, if it is a large one.
    fn make_room(&mut self) -> Result<(), Broken> {
        let Some(bytes) = frame::announced(&self.inbox) else {
            return Ok(());
        };
        if bytes > LARGE_REQUEST_BYTES && self.large.is_none() {
            self.large = Some(self.front.room_for_large(bytes).ok_or(Broken::NoRoom)?);
        }
        Ok(())
    }

    /// Takes the requests that have come, as many as there is place for. Says whether more may be there.
    fn take_requests(&mut self) -> Result<bool, Broken> {
        // One moment for all that have come together, and none if the connection goes on for another reason.
        let mut now = None;
        for _ in 0..TAKEN_AT_ONCE {
            if self.ending.is_some() || !self.has_place() {
                return Ok(false);
            }
            if self.out.len() >= MAX_UNSENT {
                return Ok(true);
            }
            let max = self.bounds.now(&self.front).max_request_bytes;
            let Some(body) = frame::take(&mut self.inbox, max)? else {
                if self.inbox.is_empty() {
                    self.inbox = BytesMut::new();
                }
                self.make_room()?;
                return Ok(false);
            };
            self.large = None;
            if now.is_none() {
                self.front.node().serving()?;
            }
            self.take(body, *now.get_or_insert_with(Instant::now))?;
        }
        Ok(true)
    }

    fn take(&mut self, body: Bytes, at: Instant) -> Result<(), Broken> {
        let bytes = body.len();
        let mut from = Reader::new(body);
        let RequestHeader { xid, op } = RequestHeader::decode(&mut from)?;
        self.client.received(xid, op);
        let what = match Request::decode(op, &mut from) {
            Ok(Request::Ping) => {
                self.pulse.ping();
                return Ok(());
            }
            // It belongs into a multi.
            Ok(Request::Check { .. }) | Err(DecodeError::UnknownOperation(_)) => {
                self.ending = Some(End::Early(format!(
                    "it asked for operation {op}, which there is not"
                )));
                Err(ErrorCode::UNIMPLEMENTED)
            }
            // As ZooKeeper: who cannot even say who it is gets no word.
            Err(malformed @ DecodeError::Malformed(_)) if op == op_code::AUTH => return Err(malformed.into()),
            Err(DecodeError::Malformed(_)) => Err(ErrorCode::MARSHALLING_ERROR),
            Ok(Request::CloseSession) => {
                self.ending = Some(End::Orderly);
                Ok(Request::CloseSession)
            }
            Ok(request) => Ok(request),
        };
        let mut traced = Traced::of(self.bounds.now(&self.front).tracing.as_ref(), op);
        if let Some(traced) = &mut traced {
            traced.about(self.session, what.as_ref().ok());
        }
        let since = Came { at, op, traced };
        let asked = Asked {
            xid,
            since,
            what,
            bytes,
        };
        if self.outstanding.has_waiting() {
            self.outstanding.wait(asked);
            return Ok(());
        }
        if let Some(look) = self.begin(asked)? {
            self.outstanding.wait(look);
        }
        Ok(())
    }

    /// Begins what waits, up to the next read that has to wait.
    fn begin_waiting(&mut self) -> Result<(), Broken> {
        while self.out.len() < MAX_UNSENT
            && let Some(asked) = self.outstanding.take_waiting()
        {
            if let Some(look) = self.begin(asked)? {
                self.outstanding.put_back(look);
                break;
            }
        }
        Ok(())
    }

    /// Begins a request, or answers it. Given back is a read that has to wait for what is on its way, and a write that this node
    /// has no place for yet.
    fn begin(&mut self, asked: Asked) -> Result<Option<Asked>, Broken> {
        self.held_back = None;
        let Asked {
            xid,
            since,
            what,
            bytes,
        } = asked;
        let request = match what {
            Ok(request) => request,
            Err(code) => return self.know(xid, since, Err(code)).map(|()| None),
        };
        match request {
            Request::Auth { scheme, auth, .. } => self.auth(xid, since, &scheme, auth.as_deref())?,
            Request::CloseSession => {
                let Some(place) = self.place(&Step::CloseSession) else {
                    let what = Ok(request);
                    return Ok(Some(Asked {
                        xid,
                        since,
                        what,
                        bytes,
                    }));
                };
                self.closes = true;
                self.write(xid, since, Step::CloseSession, place, Answer::CloseSession)?;
            }
            Request::Multi(ref items) => {
                let op = |item| self.op(item, true).unwrap_or_else(translate::refused_with);
                let ops: Vec<Op> = items.iter().map(op).collect();
                let step = Step::Multi(ops);
                let Some(place) = self.place(&step) else {
                    let what = Ok(request);
                    return Ok(Some(Asked {
                        xid,
                        since,
                        what,
                        bytes,
                    }));
                };
                let shapes = items.iter().map(Shape::in_multi).collect();
                self.write(xid, since, step, place, Answer::Multi(shapes))?;
            }
            Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::SetAcl { .. } => match self.op(&request, false) {
                Ok(op) => {
                    let step = Step::Write(op);
                    let Some(place) = self.place(&step) else {
                        let what = Ok(request);
                        return Ok(Some(Asked {
                            xid,
                            since,
                            what,
                            bytes,
                        }));
                    };
                    let answer = Answer::One(Shape::of(&request));
                    self.write(xid, since, step, place, answer)?;
                }
                Err(code) => self.know(xid, since, Err(code))?,
            },
            Request::Sync { path } => {
                let node = self.front.node().clone();
                let barrier: Barrier = Box::pin(async move { node.read_barrier().await });
                self.outstanding.begin(xid, since, Awaits::Sync(path, barrier));
            }
            // As a ZooKeeper that is not configured for them.
            Request::Sasl { .. } => self.know(xid, since, Ok(Reply::Token(None)))?,
            Request::Reconfig { .. } => self.know(xid, since, Err(ErrorCode::RECONFIG_DISABLED))?,
            look => {
                if self.outstanding.is_under_way() {
                    let what = Ok(look);
                    return Ok(Some(Asked {
                        xid,
                        since,
                        what,
                        bytes,
                    }));
                }
                self.look(xid, since, &look)?;
            }
        }
        Ok(None)
    }

    fn auth(&mut self, xid: i32, since: Came, scheme: &str, shown: Option<&[u8]>) -> Result<(), Broken> {
        let config = self.front.config();
        let super_digest = config.super_digest.as_deref();
        let node = self.front.node();
        let is_good = |id, secret: &Secret| {
            let standing = node.read(|store| Standing::of(store, id, secret, node.now_ms()));
            matches!(standing, Standing::Good { .. })
        };
        let code = match self.proven.show(scheme, shown, super_digest, is_good) {
            Ok(()) => {
                self.watches.set_identities(self.proven.identities().clone());
                self.pulse.set_identities(self.proven.identities().clone());
                ErrorCode::OK
            }
            Err(failed) => {
                if failed == AuthFailed::Overheard {
                    warn!(
                        address = %self.client.address,
                        scheme,
                        "a client has shown a token or the superuser's password without TLS, where others may have read it: it was refused. \
                         Revoke the token, or change the password, and have the client use the port with TLS"
                    );
                }
                self.ending = Some(End::Early("it could not prove what it said".to_owned()));
                self.outstanding.forget_waiting();
                self.held_back = None;
                ErrorCode::AUTH_FAILED
            }
        };
        if self.outstanding.is_under_way() {
            self.outstanding.begin(xid, since, Awaits::Auth(code));
            return Ok(());
        }
        self.answer_auth(xid, since, code)
    }

    /// A place for a write; none while this node has enough to do. ZooKeeper refuses nothing then, and does not listen on.
    fn place(&mut self, step: &Step) -> Option<Place> {
        let place = self.front.node().place_for_step(step).ok();
        self.held_back = place.is_none().then(|| Work::of_step(step));
        place
    }

    fn write(
        &mut self,
        xid: i32,
        since: Came,
        step: Step,
        place: Place,
        answer: Answer,
    ) -> Result<(), Broken> {
        let turn = self.next_turn;
        let request = znode_store::Request {
            session: Some(self.session),
            request_id: None,
            caller: self.proven.identities().clone(),
            command: Command::InTurn { turn, step },
        };
        let node = self.front.node();
        let proposal = trace::within(since.traced.as_deref(), || node.submit_in(request, place))?;
        self.next_turn.number += 1;
        self.outstanding
            .begin(xid, since, Awaits::Write(proposal, answer));
        Ok(())
    }

    /// Answers with what is known already, in its turn.
    fn know(&mut self, xid: i32, since: Came, outcome: Outcome) -> Result<(), Broken> {
        if self.outstanding.is_under_way() {
            self.outstanding.begin(xid, since, Awaits::Known(outcome));
            return Ok(());
        }
        self.answer(xid, since, self.position(), outcome)
    }

    fn position(&self) -> Zxid {
        self.front.node().read(|store| store.zxid())
    }

    fn look(&mut self, xid: i32, since: Came, request: &Request) -> Result<(), Broken> {
        let looker = Looker {
            session: self.session,
            caller: self.proven.identities(),
            watches: &self.watches,
            node: self.front.node(),
        };
        let Seen { zxid, outcome } = looker.look(request)?;
        self.answer(xid, since, zxid, outcome)
    }

    /// The first request in the queue can be answered.
    fn finish(&mut self, xid: i32, since: Came, done: Done) -> Result<(), Broken> {
        match done {
            Done::Write(Ok(applied), answer) => {
                self.pulse.confirmed();
                self.answer_write(xid, since, applied, answer)
            }
            // Nothing was done, so its turn is still to come: unless others are on their way behind it.
            Done::Write(Err(ProposeError::Unavailable(unavailable)), _)
                if unavailable.read_only && !self.outstanding.has_writes() =>
            {
                self.next_turn.number -= 1;
                self.answer(xid, since, self.position(), Err(ErrorCode::SYSTEM_ERROR))
            }
            // Perhaps it was done, and the client has to find out, as with any ZooKeeper.
            Done::Write(Err(error), _) => Err(error.into()),
            // The leader has proven that it leads, and has counted nobody: that takes a heartbeat.
            Done::Sync(Ok(()), path) => self.answer(xid, since, self.position(), Ok(Reply::Path(path))),
            Done::Sync(Err(unavailable), _) => Err(unavailable.into()),
            Done::Known(outcome) => self.answer(xid, since, self.position(), outcome),
            Done::Auth(code) => self.answer_auth(xid, since, code),
        }
    }

    fn answer_write(
        &mut self,
        xid: i32,
        since: Came,
        applied: Applied,
        answer: Answer,
    ) -> Result<(), Broken> {
        let Applied { zxid, outcome } = applied;
        let outcome = match (outcome, answer) {
            // The session is not this connection's any more, or something before this was not carried out.
            (
                Err(
                    refusal @ (Refusal::SessionMoved(_)
                    | Refusal::OutOfTurn { .. }
                    | Refusal::SessionEnded(_)
                    // Not let in at all, so that its turn was not over: the next one could not come.
                    | Refusal::NotYourSession(_)
                    | Refusal::Unauthenticated(Unproven::Token | Unproven::Expired)
                    | Refusal::NoSession(_)),
                ),
                _,
            ) => return Err(Broken::Turn(refusal)),
            (Ok(_), Answer::CloseSession) => {
                // What the end of the session's own znodes has set off comes first.
                self.tell()?;
                self.write_reply(xid, since, zxid, ErrorCode::OK, None);
                return Ok(());
            }
            (Ok(reply), Answer::One(shape)) => Ok(translate::reply(reply, shape)),
            (Ok(znode_store::Reply::Multi(replies)), Answer::Multi(shapes)) => {
                let results = replies.into_iter().zip(shapes);
                let results = results.map(|(reply, shape)| translate::result(reply, shape));
                Ok(Reply::Results(results.collect()))
            }
            (Ok(other), Answer::Multi(_)) => unreachable!("a multi was answered by {other}"),
            (Err(refusal), Answer::Multi(shapes)) => {
                let results = translate::failed_multi(&refusal, shapes.len());
                results
                    .map(Reply::Results)
                    .ok_or_else(|| translate::code(&refusal))
            }
            (Err(refusal), Answer::One(_) | Answer::CloseSession) => Err(translate::code(&refusal)),
        };
        self.answer(xid, since, zxid, outcome)
    }

    /// Answers a request, after whatever the client has to hear before.
    fn answer(&mut self, xid: i32, since: Came, zxid: Zxid, outcome: Outcome) -> Result<(), Broken> {
        self.tell()?;
        match &outcome {
            Ok(reply) => self.write_reply(xid, since, zxid, ErrorCode::OK, Some(reply)),
            Err(code) => self.write_reply(xid, since, zxid, *code, None),
        }
        Ok(())
    }

    /// ZooKeeper's answer to auth has no position.
    fn answer_auth(&mut self, xid: i32, since: Came, code: ErrorCode) -> Result<(), Broken> {
        self.tell()?;
        self.write_reply(xid, since, Zxid(0), code, None);
        Ok(())
    }

    fn answer_pings(&mut self, pings: u32) -> Result<(), Broken> {
        if pings > 0 {
            self.tell()?;
            let zxid = self.position();
            for _ in 0..pings {
                let came = Came {
                    at: Instant::now(),
                    op: op_code::PING,
                    traced: None,
                };
                self.write_reply(xid::PING, came, zxid, ErrorCode::OK, None);
            }
        }
        Ok(())
    }

    /// Tells the client of all changes that this node's state had when it was last looked at.
    fn tell(&mut self) -> Result<(), WatchesLost> {
        loop {
            match self.watches.try_next() {
                Ok(Some(notice)) => write_notice(&self.client, &mut self.out, &notice),
                Ok(None) => return Ok(()),
                // All has been told.
                Err(WatchesLost::SessionEnded) if self.closes => return Ok(()),
                Err(lost) => return Err(lost),
            }
        }
    }

    /// Tells the client what else waits, so that it leaves in one piece. Why nothing more will come is heard when this was sent.
    fn tell_more(&mut self) {
        while self.out.len() < MAX_UNSENT
            && let Ok(Some(notice)) = self.watches.try_next()
        {
            write_notice(&self.client, &mut self.out, &notice);
        }
    }

    fn write_reply(&mut self, xid: i32, since: Came, zxid: Zxid, err: ErrorCode, body: Option<&Reply>) {
        let zxid = zxid.0.cast_signed();
        ReplyHeader { xid, zxid, err }.write_frame(body, &mut self.out);
        self.client.sent(zxid);
        self.client.answered(since, err);
    }

    /// Sends as much as the client takes now.
    fn send(&mut self, stream: &mut Sender<'_>) -> Result<(), io::Error> {
        stream.send(&mut self.out)?;
        if self.out.is_empty() && self.out.capacity() > KEPT_CAPACITY {
            self.out = BytesMut::new();
        }
        Ok(())
    }
}

/// Waits until there is room for what is held back; for ever if nothing is.
async fn room(node: &Node, held_back: Option<Work>) {
    match held_back {
        Some(work) => Box::pin(node.room(work)).await,
        None => std::future::pending().await,
    }
}

fn write_notice(client: &Client, out: &mut BytesMut, notice: &raft_node::Notice) {
    let zxid = notice.zxid.0.cast_signed();
    ReplyHeader::write_notification(zxid, &translate::notification(notice), out);
    client.sent(zxid);
}
