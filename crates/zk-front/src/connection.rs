//! Connection with a session: processes requests, and sends replies and notifications in ZooKeeper's order.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use access_token::{Secret, Standing};
use bytes::{Bytes, BytesMut};
use lock_node::admission::{AdmissionPermit, LargeWriteWait, Work};
use lock_node::{ProposeError, Unavailable, WatchConnection, WatchesLost, fail_step};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use zk_wire::{
    ConnectResponse, DecodeError, ErrorCode, FrameError, Outcome, Reader, Reply, ReplyHeader, Request,
    RequestHeader, frame, op_code, xid,
};
use znode_store::{Applied, Command, Op, Password, Refusal, SessionId, Step, Turn, Unproven, Zxid};

use crate::auth::{AuthError, ClientIdentities};
use crate::config::LARGE_REQUEST_BYTES;
use crate::front::{CachedConfig, Client, Front};
use crate::outstanding::{Barrier, Completed, Outstanding, PendingOutcome, WaitingRequest, WriteReply};
use crate::reads::{LocalReader, ReadResult};
use crate::request_metrics::Received;
use crate::session_keepalive::{KeepaliveEnd, SessionKeepalive};
use crate::socket::{self, ReceiveError, Receiver, Sender, Stream};
use crate::trace::{self, Traced};
use crate::translate::{self, Shape};

/// Maximum number of unsent bytes. Above it, the connection takes no further requests and notifications.
const MAX_UNSENT: usize = 1024 * 1024;

/// Maximum number of requests that are taken before other tasks run on the thread.
const TAKEN_AT_ONCE: usize = 128;

/// Capacity of the send buffer that an idle connection retains, in bytes: enough for most replies, and five
/// megabytes for ten thousand connections.
const KEPT_CAPACITY: usize = 512;

/// Session as its connection needs it.
pub(crate) struct Session {
    pub id: SessionId,
    pub password: Password,
    pub timeout: Duration,
    /// Position from which on this connection is the session's current one.
    pub since: Zxid,
}

/// Connection with a session. See the module.
pub(crate) struct Connection {
    front: Front,
    config: CachedConfig,
    client: Arc<Client>,
    session: SessionId,
    /// Position from which on this connection is the session's current one.
    since: Zxid,
    /// Number of writes of this connection whose turns the state has counted.
    counted_writes: u64,
    identities: ClientIdentities,
    watches: WatchConnection,
    keepalive: SessionKeepalive,
    outstanding: Outstanding,
    /// Condition that the first waiting request waits for, besides the pending requests.
    held_back: Option<Box<HeldBack>>,
    inbox: BytesMut,
    /// Memory permit of a large request that is being received. Boxed like all that an idle connection has not.
    large: Option<Box<OwnedSemaphorePermit>>,
    out: BytesMut,
    /// Set when no further requests are taken. The connection ends when all replies are sent.
    ending: Option<End>,
    /// True once the close of the session was proposed.
    closes: bool,
}

/// Condition that a write waits for.
enum HeldBack {
    /// The pace of the client's large writes.
    Pace(LargeWriteWait),
    /// Room for such work, because the node is overloaded.
    Overload(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// A read barrier, because the client has no right to the write by this node's state, which may be behind.
    MissingRight(Barrier),
    /// Nothing more: the read barrier was passed, and the state decides.
    CaughtUp,
}

/// End of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The client closed its session.
    Orderly,
    /// Any other reason. The session continues, or has ended elsewhere.
    Early(Box<str>),
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        Self::Early(broken.to_string().into())
    }
}

/// Reason why a connection ends at once, without further replies.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Receive(#[from] ReceiveError),
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
    #[error("the session has ended")]
    SessionEnded,
    #[error("the client may not use the session: {0}")]
    NotAllowed(Refusal),
    #[error("no leader has confirmed a heartbeat for most of the session's timeout")]
    CutOff,
    #[error("the memory for large requests is used up")]
    LargeRequestMemory,
}

impl Connection {
    /// Creates a connection whose client has not received the response to its connect request yet, and may
    /// have sent requests already.
    pub fn new(
        front: &Front,
        client: &Arc<Client>,
        session: Session,
        identities: ClientIdentities,
        watches: WatchConnection,
        inbox: BytesMut,
        granted: &ConnectResponse,
    ) -> Self {
        let mut out = BytesMut::new();
        granted.write_frame(&mut out);
        let caller = identities.all().clone();
        Self {
            front: front.clone(),
            config: front.cached_config(),
            client: client.clone(),
            session: session.id,
            since: session.since,
            counted_writes: 0,
            identities,
            watches,
            keepalive: SessionKeepalive::new(front.node().clone(), session.id, caller, session.timeout),
            outstanding: Outstanding::default(),
            held_back: None,
            inbox,
            large: None,
            out,
            ending: None,
            closes: false,
        }
    }

    /// Serves the client until the connection ends. All values that live across a wait are part of this
    /// future for the connection's lifetime. Large futures that are rarely awaited are therefore boxed when
    /// needed.
    pub async fn serve(&mut self, stream: &mut Stream, stop: &CancellationToken) -> Result<End, Broken> {
        let (mut receiver, mut sender) = socket::halves(stream);
        let ended = self.serve_on(&mut receiver, &mut sender, stop).await;
        sender.shut_down();
        ended
    }

    async fn serve_on(
        &mut self,
        receiver: &mut Receiver<'_>,
        sender: &mut Sender<'_>,
        stop: &CancellationToken,
    ) -> Result<End, Broken> {
        // The future is created once: all connections wait for the same token, and a new future for every
        // request would contend for its lock.
        let mut stopped = pin!(stop.cancelled());
        loop {
            if self.waits_for_admission() {
                self.start_waiting()?;
            }
            let more = self.take_requests()?;
            let outstanding = self.outstanding.len() as u64;
            self.client.outstanding.store(outstanding, Ordering::Relaxed);
            self.send(sender)?;
            if self.outstanding.is_empty()
                && self.out.is_empty()
                && !sender.has_unsent()
                && let Some(end) = &self.ending
            {
                return Ok(end.clone());
            }
            let sender_has_unsent = sender.has_unsent();
            let has_room = self.out.len() < MAX_UNSENT;
            // If everything was sent at once, no other event would resume requests that waited for room in
            // the send buffer.
            let more = has_room && (more || self.waits_for_admission() && self.held_back.is_none());
            // While the node does not read from the client, the client's silence is not the client's fault.
            if self.held_back.is_some() {
                self.keepalive.record_activity();
            }
            let may_receive = self.ending.is_none() && has_room && self.may_take_more();
            tokio::select! {
                biased;
                (xid, since, done) = self.outstanding.next(), if has_room && self.outstanding.has_pending() => {
                    fail_step!(async "zookeeper::before_answer", Broken::Io);
                    self.finish(xid, since, done)?;
                    self.start_waiting()?;
                }
                // The client of a closed session gets notifications of the close before the reply, see
                // `answer_write`.
                notice = self.watches.next(), if has_room && !self.closes => {
                    let notice = notice?;
                    write_notice(&self.client, &mut self.out, &notice);
                    self.write_available_notices();
                }
                writable = async { Box::pin(sender.writable()).await }, if !self.out.is_empty() || sender_has_unsent => writable?,
                received = socket::receive(receiver, &mut self.inbox), if may_receive && !more => {
                    received?;
                    self.keepalive.record_activity();
                }
                pings = self.keepalive.next(), if !self.closes => match pings {
                    Ok(pings) => self.answer_pings(pings)?,
                    Err(KeepaliveEnd::SessionEnded) => return Err(Broken::SessionEnded),
                    Err(KeepaliveEnd::NotAllowed(refusal)) => return Err(Broken::NotAllowed(refusal)),
                    Err(KeepaliveEnd::CutOff) => return Err(Broken::CutOff),
                },
                released = release(&mut self.held_back), if has_room => {
                    released?;
                    self.start_waiting()?;
                }
                // Process further received requests after other tasks have run.
                () = tokio::task::yield_now(), if more => {}
                () = &mut stopped, if self.ending.is_none() => {
                    self.ending = Some(End::Early("the node is stopping".into()));
                }
            }
        }
    }

    /// Returns whether requests wait without an earlier request being pending.
    fn waits_for_admission(&self) -> bool {
        self.outstanding.has_waiting() && !self.outstanding.has_pending()
    }

    /// Returns the operation of a write request, or the error code if the request or its path is invalid.
    fn op(&mut self, request: &Request, in_multi: bool) -> Result<Op, ErrorCode> {
        let op = translate::op(request, in_multi)?;
        let bounds = self.config.current(&self.front).paths;
        // During an upgrade some members reject long paths; this is the error that they would return.
        if op.check_path(&bounds).is_err() || !op.is_short() && !self.front.node().allows_long_paths() {
            return Err(match op {
                Op::Delete { .. } => ErrorCode::NO_NODE,
                _ => ErrorCode::BAD_ARGUMENTS,
            });
        }
        Ok(op)
    }

    fn may_take_more(&mut self) -> bool {
        let config = self.config.current(&self.front);
        self.outstanding.len() < config.max_outstanding
            && self.outstanding.waiting_bytes() < config.max_outstanding_bytes
    }

    /// Acquires memory for the frame that is being received, if it is a large one.
    fn reserve_large_request(&mut self) -> Result<(), Broken> {
        let Some(bytes) = frame::announced(&self.inbox) else {
            return Ok(());
        };
        if bytes > LARGE_REQUEST_BYTES && self.large.is_none() {
            let reserved = self.front.reserve_large_request(bytes);
            self.large = Some(Box::new(reserved.ok_or(Broken::LargeRequestMemory)?));
        }
        Ok(())
    }

    /// Takes received requests, up to the limits. Returns whether more may be available.
    fn take_requests(&mut self) -> Result<bool, Broken> {
        // One timestamp for all requests of this batch, and none if there are no requests.
        let mut now = None;
        for _ in 0..TAKEN_AT_ONCE {
            if self.ending.is_some() || !self.may_take_more() {
                return Ok(false);
            }
            if self.out.len() >= MAX_UNSENT {
                return Ok(true);
            }
            let max = self.config.current(&self.front).max_request_bytes;
            let Some(body) = frame::take(&mut self.inbox, max)? else {
                if self.inbox.is_empty() {
                    self.inbox = BytesMut::new();
                }
                self.reserve_large_request()?;
                return Ok(false);
            };
            self.large = None;
            if now.is_none() {
                self.front.node().serving()?;
            }
            self.receive_request(body, *now.get_or_insert_with(Instant::now))?;
        }
        Ok(true)
    }

    fn receive_request(&mut self, body: Bytes, at: Instant) -> Result<(), Broken> {
        let bytes = u32::try_from(body.len()).expect("the length of a frame is a positive i32");
        let mut from = Reader::new(body);
        let RequestHeader { xid, op } = RequestHeader::decode(&mut from)?;
        self.client.received(xid, op);
        let request = match Request::decode(op, &mut from) {
            Ok(Request::Ping) => {
                self.keepalive.ping();
                return Ok(());
            }
            // A check is only valid within a multi.
            Ok(Request::Check { .. }) | Err(DecodeError::UnknownOperation(_)) => {
                self.ending = Some(End::Early(format!("unknown operation {op}").into()));
                Err(ErrorCode::UNIMPLEMENTED)
            }
            // As in ZooKeeper, a malformed auth request gets no reply.
            Err(malformed @ DecodeError::Malformed(_)) if op == op_code::AUTH => return Err(malformed.into()),
            Err(DecodeError::Malformed(_)) => Err(ErrorCode::MARSHALLING_ERROR),
            Ok(Request::CloseSession) => {
                self.ending = Some(End::Orderly);
                Ok(Request::CloseSession)
            }
            Ok(request) => Ok(request),
        };
        let mut traced = Traced::of(self.config.current(&self.front).tracing.as_ref(), op);
        if let Some(traced) = &mut traced {
            traced.about(self.session, request.as_ref().ok());
        }
        let received = Received { at, op, traced };
        let waiting = WaitingRequest {
            xid,
            received,
            request,
            bytes,
            paced: false,
        };
        if self.outstanding.has_waiting() {
            self.outstanding.wait(waiting);
            return Ok(());
        }
        if let Some(waiting) = self.start(waiting)? {
            self.outstanding.wait(waiting);
        }
        Ok(())
    }

    /// Starts waiting requests, up to the next one that has to wait.
    fn start_waiting(&mut self) -> Result<(), Broken> {
        if let Some(HeldBack::Pace(_) | HeldBack::MissingRight(_)) = self.held_back.as_deref() {
            return Ok(());
        }
        while self.out.len() < MAX_UNSENT
            && let Some(waiting) = self.outstanding.take_waiting()
        {
            if let Some(waiting) = self.start(waiting)? {
                self.outstanding.put_back(waiting);
                break;
            }
        }
        Ok(())
    }

    /// Starts or answers a request. Returns the request if it has to wait: a read or an auth request for pending writes, or a
    /// write for admission.
    fn start(&mut self, waiting: WaitingRequest) -> Result<Option<WaitingRequest>, Broken> {
        let caught_up = matches!(self.held_back.take().as_deref(), Some(HeldBack::CaughtUp));
        let WaitingRequest {
            xid,
            received,
            request,
            bytes,
            paced,
        } = waiting;
        let request = match request {
            Ok(request) => request,
            Err(code) => return self.answer_known(xid, received, Err(code)).map(|()| None),
        };
        match request {
            // It changes the caller, and the node keeps the order of one caller's writes.
            Request::Auth { scheme, auth, .. } if !self.outstanding.has_pending() => {
                self.auth(xid, received, &scheme, auth.as_deref())?
            }
            Request::CloseSession
            | Request::Multi(_)
            | Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::SetAcl { .. } => {
                let (step, reply) = match self.step(&request) {
                    Ok(step) => step,
                    Err(code) => return self.answer_known(xid, received, Err(code)).map(|()| None),
                };
                let write = self.in_turn(step);
                match self.admit(&write, caught_up, paced) {
                    Admission::Permitted(permit) => self.write(xid, received, write, permit, reply)?,
                    Admission::Refused(refused) => self.answer_write(xid, received, refused, reply)?,
                    Admission::TooFast(code) => self.answer_known(xid, received, Err(code))?,
                    Admission::Waits => {
                        let request = Ok(request);
                        return Ok(Some(WaitingRequest {
                            xid,
                            received,
                            request,
                            bytes,
                            paced: true,
                        }));
                    }
                }
            }
            Request::Sync { path } => {
                let node = self.front.node().clone();
                let barrier: Barrier = Box::pin(async move { node.read_barrier().await });
                self.outstanding
                    .add_pending(xid, received, PendingOutcome::Sync(path, barrier));
            }
            // The replies of a ZooKeeper that has neither feature configured.
            Request::Sasl { .. } => self.answer_known(xid, received, Ok(Reply::Token(None)))?,
            Request::Reconfig { .. } => {
                self.answer_known(xid, received, Err(ErrorCode::RECONFIG_DISABLED))?
            }
            read_or_auth => {
                if self.outstanding.has_pending() {
                    let request = Ok(read_or_auth);
                    return Ok(Some(WaitingRequest {
                        xid,
                        received,
                        request,
                        bytes,
                        paced,
                    }));
                }
                self.read(xid, received, &read_or_auth)?;
            }
        }
        Ok(None)
    }

    fn auth(
        &mut self,
        xid: i32,
        received: Received,
        scheme: &str,
        shown: Option<&[u8]>,
    ) -> Result<(), Broken> {
        let config = self.front.config();
        let super_digest = config.super_digest.as_deref();
        let node = self.front.node();
        let is_good = |id, secret: &Secret| {
            let standing = node.read_facts(|store| Standing::of(store, id, secret, node.now_ms()));
            matches!(standing, Standing::Good { .. })
        };
        let code = match self
            .identities
            .add_credentials(scheme, shown, super_digest, is_good)
        {
            Ok(()) => {
                self.watches.set_identities(self.identities.all().clone());
                self.keepalive.set_identities(self.identities.all().clone());
                ErrorCode::OK
            }
            Err(error) => {
                if error == AuthError::Exposed {
                    warn!(
                        address = %self.client.address,
                        scheme,
                        "ZooKeeper front end: rejected a token or the superuser's password that a client sent without TLS, where others may \
                         have read it. Revoke the token, or change the password, and configure the client for the TLS port"
                    );
                }
                self.ending = Some(End::Early("authentication failed".into()));
                self.outstanding.forget_waiting();
                self.held_back = None;
                ErrorCode::AUTH_FAILED
            }
        };
        // The reply has no zxid, as in ZooKeeper.
        self.write_notices()?;
        self.write_reply(xid, received, Zxid(0), code, None);
        Ok(())
    }

    /// Returns the step that a write request takes, and the form of its reply.
    fn step(&mut self, request: &Request) -> Result<(Step, WriteReply), ErrorCode> {
        Ok(match request {
            Request::CloseSession => (Step::CloseSession, WriteReply::CloseSession),
            Request::Multi(items) => {
                let op = |item| self.op(item, true).unwrap_or_else(translate::refused_with);
                let step = Step::Multi(items.iter().map(op).collect());
                (
                    step,
                    WriteReply::Multi(items.iter().map(Shape::in_multi).collect()),
                )
            }
            write => (
                Step::Write(self.op(write, false)?),
                WriteReply::One(Shape::of(write)),
            ),
        })
    }

    /// Returns the request of the connection's next write.
    fn in_turn(&self, step: Step) -> znode_store::Request {
        let turn = Turn {
            since: self.since,
            number: self.counted_writes + self.outstanding.pending_writes(),
        };
        znode_store::Request {
            session: Some(self.session),
            request_id: None,
            caller: self.identities.all().clone(),
            command: Command::InTurn { turn, step },
        }
    }

    /// Acquires an admission permit for a write. The write first waits for the pace of large writes, unless it is `paced`, and then while the node
    /// is overloaded: ZooKeeper does not reject requests then, but stops reading. A write that the client has no right to waits for the pending
    /// ones, which may give it the right to its own contenders, and then until the node has `caught_up`.
    fn admit(&mut self, write: &znode_store::Request, caught_up: bool, paced: bool) -> Admission {
        let node = self.front.node();
        if !paced && let Some(wait) = node.large_write_wait(write) {
            self.held_back = Some(Box::new(HeldBack::Pace(wait)));
            return Admission::Waits;
        }
        let Ok(permit) = node.permit_to_wait(write) else {
            let (node, work, caller) = (node.clone(), Work::of(write), write.caller.clone());
            let room = Box::pin(async move { node.room(work, &caller).await });
            self.held_back = Some(Box::new(HeldBack::Overload(room)));
            return Admission::Waits;
        };
        match node.refusal(write) {
            None => match node.too_fast(write) {
                None => Admission::Permitted(permit),
                Some(refusal) => Admission::TooFast(translate::code(&refusal)),
            },
            Some(refused) if caught_up => Admission::Refused(refused),
            Some(_) => {
                if !self.outstanding.has_pending() {
                    let node = node.clone();
                    let barrier: Barrier = Box::pin(async move {
                        // The permit is the client's share of the read barriers, too.
                        let _permit = permit;
                        node.read_barrier().await
                    });
                    self.held_back = Some(Box::new(HeldBack::MissingRight(barrier)));
                }
                Admission::Waits
            }
        }
    }

    fn write(
        &mut self,
        xid: i32,
        received: Received,
        write: znode_store::Request,
        permit: AdmissionPermit,
        reply: WriteReply,
    ) -> Result<(), Broken> {
        self.closes |= matches!(reply, WriteReply::CloseSession);
        let node = self.front.node();
        let proposal = trace::within(received.traced.as_deref(), || node.submit_in(write, permit))?;
        self.outstanding
            .add_pending(xid, received, PendingOutcome::Write(proposal, reply));
        Ok(())
    }

    /// Answers a request whose outcome is already known, in its order.
    fn answer_known(&mut self, xid: i32, received: Received, outcome: Outcome) -> Result<(), Broken> {
        if self.outstanding.has_pending() {
            self.outstanding
                .add_pending(xid, received, PendingOutcome::Known(outcome));
            return Ok(());
        }
        self.answer(xid, received, self.position(), outcome)
    }

    fn position(&self) -> Zxid {
        self.front.node().read_facts(|store| store.zxid())
    }

    fn read(&mut self, xid: i32, received: Received, request: &Request) -> Result<(), Broken> {
        let reader = LocalReader {
            session: self.session,
            caller: self.identities.all(),
            watches: &self.watches,
            node: self.front.node(),
        };
        let ReadResult { zxid, outcome } = reader.read(request)?;
        self.answer(xid, received, zxid, outcome)
    }

    /// Answers the first pending request, which has completed.
    fn finish(&mut self, xid: i32, received: Received, completed: Completed) -> Result<(), Broken> {
        match completed {
            Completed::Write(Ok(applied), reply) => {
                self.counted_writes += 1;
                self.keepalive.confirmed();
                self.answer_write(xid, received, applied, reply)
            }
            // The write was not executed, so the next write gets its turn. Later writes that are pending have
            // theirs already.
            Completed::Write(Err(ProposeError::Unavailable(unavailable)), _)
                if unavailable.read_only && self.outstanding.pending_writes() == 0 =>
            {
                self.answer(xid, received, self.position(), Err(ErrorCode::SYSTEM_ERROR))
            }
            // The outcome is unknown, and the client has to find out, as with any ZooKeeper.
            Completed::Write(Err(error), _) => Err(error.into()),
            // A sync does not confirm the session: the leader has proven its leadership, but only a heartbeat
            // renews sessions.
            Completed::Sync(Ok(()), path) => {
                self.answer(xid, received, self.position(), Ok(Reply::Path(path)))
            }
            Completed::Sync(Err(unavailable), _) => Err(unavailable.into()),
            Completed::Known(outcome) => self.answer(xid, received, self.position(), outcome),
        }
    }

    fn answer_write(
        &mut self,
        xid: i32,
        received: Received,
        applied: Applied,
        reply: WriteReply,
    ) -> Result<(), Broken> {
        let Applied { zxid, outcome } = applied;
        let outcome = match (outcome, reply) {
            // The session belongs to another connection now, or an earlier write of this connection was not
            // applied.
            (
                Err(
                    refusal @ (Refusal::SessionMoved(_)
                    | Refusal::OutOfTurn { .. }
                    | Refusal::SessionEnded(_)
                    // The write was rejected before its turn was counted, so no later write could be applied.
                    | Refusal::NotYourSession(_)
                    | Refusal::Unauthenticated(Unproven::Token | Unproven::Expired)
                    | Refusal::NoSession(_)),
                ),
                _,
            ) => return Err(Broken::Turn(refusal)),
            (Ok(_), WriteReply::CloseSession) => {
                // Notifications caused by the deletion of the session's own znodes precede the reply.
                self.write_notices()?;
                self.write_reply(xid, received, zxid, ErrorCode::OK, None);
                return Ok(());
            }
            (Ok(reply), WriteReply::One(shape)) => Ok(translate::reply(reply, shape)),
            (Ok(znode_store::Reply::Multi(replies)), WriteReply::Multi(shapes)) => {
                let results = replies.into_iter().zip(shapes);
                let results = results.map(|(reply, shape)| translate::result(reply, shape));
                Ok(Reply::Results(results.collect()))
            }
            (Ok(other), WriteReply::Multi(_)) => unreachable!("a multi was answered by {other}"),
            (Err(refusal), WriteReply::Multi(shapes)) => {
                let results = translate::failed_multi(&refusal, shapes.len());
                results
                    .map(Reply::Results)
                    .ok_or_else(|| translate::code(&refusal))
            }
            (Err(refusal), WriteReply::One(_) | WriteReply::CloseSession) => Err(translate::code(&refusal)),
        };
        self.answer(xid, received, zxid, outcome)
    }

    /// Writes the reply to a request, after all notifications that the client has to receive first.
    fn answer(&mut self, xid: i32, received: Received, zxid: Zxid, outcome: Outcome) -> Result<(), Broken> {
        self.write_notices()?;
        match &outcome {
            Ok(reply) => self.write_reply(xid, received, zxid, ErrorCode::OK, Some(reply)),
            Err(code) => self.write_reply(xid, received, zxid, *code, None),
        }
        Ok(())
    }

    fn answer_pings(&mut self, pings: u32) -> Result<(), Broken> {
        if pings > 0 {
            self.write_notices()?;
            let zxid = self.position();
            for _ in 0..pings {
                let received = Received {
                    at: Instant::now(),
                    op: op_code::PING,
                    traced: None,
                };
                self.write_reply(xid::PING, received, zxid, ErrorCode::OK, None);
            }
        }
        Ok(())
    }

    /// Writes notifications of all changes in the last state that this connection has read.
    fn write_notices(&mut self) -> Result<(), WatchesLost> {
        loop {
            match self.watches.try_next() {
                Ok(Some(notice)) => write_notice(&self.client, &mut self.out, &notice),
                Ok(None) => return Ok(()),
                // All notifications are written.
                Err(WatchesLost::SessionEnded) if self.closes => return Ok(()),
                Err(lost) => return Err(lost),
            }
        }
    }

    /// Writes the notifications that are available, so that they are sent together. An error is reported by
    /// the next `watches.next` instead, after these were sent.
    fn write_available_notices(&mut self) {
        while self.out.len() < MAX_UNSENT
            && let Ok(Some(notice)) = self.watches.try_next()
        {
            write_notice(&self.client, &mut self.out, &notice);
        }
    }

    fn write_reply(
        &mut self,
        xid: i32,
        received: Received,
        zxid: Zxid,
        err: ErrorCode,
        body: Option<&Reply>,
    ) {
        let zxid = zxid.0.cast_signed();
        ReplyHeader { xid, zxid, err }.write_frame(body, &mut self.out);
        self.client.sent(zxid);
        self.client.answered(received, err);
    }

    /// Sends as much as the socket accepts now.
    fn send(&mut self, stream: &mut Sender<'_>) -> Result<(), io::Error> {
        stream.send(&mut self.out)?;
        if self.out.is_empty() && self.out.capacity() > KEPT_CAPACITY {
            self.out = BytesMut::new();
        }
        Ok(())
    }
}

/// Decision about a write.
enum Admission {
    Permitted(AdmissionPermit),
    /// The client has no right to the write.
    Refused(Applied),
    /// The namespace has no request left at this moment.
    TooFast(ErrorCode),
    Waits,
}

/// Waits until the first waiting request may be started; never completes if it does not wait for this.
async fn release(held_back: &mut Option<Box<HeldBack>>) -> Result<(), Unavailable> {
    match held_back.as_deref_mut() {
        Some(HeldBack::Pace(wait)) => {
            wait.passed().await;
            *held_back = None;
        }
        Some(HeldBack::Overload(room)) => {
            room.await;
            *held_back = None;
        }
        Some(HeldBack::MissingRight(barrier)) => {
            barrier.await?;
            *held_back = Some(Box::new(HeldBack::CaughtUp));
        }
        Some(HeldBack::CaughtUp) => {}
        None => std::future::pending().await,
    }
    Ok(())
}

fn write_notice(client: &Client, out: &mut BytesMut, notice: &lock_node::Notice) {
    let zxid = notice.zxid.0.cast_signed();
    ReplyHeader::write_notification(zxid, &translate::notification(notice), out);
    client.sent(zxid);
}
