//! Event stream of a session. It delivers the events of the session as they happen, and counts as the session's
//! heartbeat while a client reads. The content of an event is defined in `event_types.rs`; the node decides which
//! events are sent, and in which order.
//!
//! # What an open stream proves
//!
//! A successful write proves that the bytes left this server, not that the client runs. The operating system of a
//! stopped client acknowledges until its buffers are full, and a network that was cut reports nothing at all. So a
//! stream counts as the heartbeat only for [`MAX_UNCONFIRMED_TTLS`] times the session's time to live. Then it ends, and
//! a client that reconnects is alive; browsers reconnect by themselves.

use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use axum::response::Response;
use lock_node::{
    EventPosition, FollowError, HeartbeatError, Node, Notice, SessionStream, StreamBegin, StreamLost,
    StreamOpening, StreamedEventKind,
};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use znode_store::{MAX_LOOKED_AT, Refusal, SessionId, SessionView, ZPath, ZnodeEventKind, Zxid};

use super::auth::RevocationWatch;
use super::event_types::{
    ExpiringEvent, RenewedEvent, ResetEvent, StateEvent, StreamEndedEvent, WatchEvent, WatchWish, event,
    keep_alive, position, retry, session_event,
};
use super::extract::HandlerResult;
use super::problem::Problem;
use super::sessions::target;
use super::watch::{KindWord, event_word, missed};
use super::{Peer, Shared};

/// Number of times to live for which a stream counts as the session's heartbeat. The session of a client that stopped
/// without a trace expires one time to live later. With a smaller number clients reconnect more often.
const MAX_UNCONFIRMED_TTLS: u32 = 2;

/// Renewals per time to live: one may fail, and the next one is still in time.
const RENEWALS_PER_TTL: u32 = 3;

/// Fraction of the time to live after which a session without a confirmed renewal is reported as `expiring`.
const DOUBTFUL: (u32, u32) = (2, 3);

/// Pause after a failed renewal. An election fails some of them.
const RENEWAL_RETRY: Duration = Duration::from_millis(200);

/// Maximum time between two writes. It lets both sides detect a dead connection, and keeps proxies from closing an idle
/// one.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time after which clients reconnect when a stream has ended. Without it browsers wait for some seconds.
const RECONNECT_DELAY_MS: u64 = 100;

/// Maximum number of watches of one stream.
pub const MAX_WATCHES: usize = 64;

/// Header with the last event that a client received; browsers send it by themselves.
static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Header that makes proxies pass on each message at once.
static ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Parsed request.
struct StreamRequest {
    heartbeat: bool,
    after: Option<EventPosition>,
    watches: Vec<WatchWish>,
}

impl StreamRequest {
    fn read(uri: &Uri, headers: &HeaderMap) -> Result<Self, Problem> {
        let Query(parameters): Query<Vec<(String, String)>> = Query::try_from_uri(uri)?;
        let mut params = Self {
            heartbeat: true,
            after: None,
            watches: Vec::new(),
        };
        let mut known = Vec::new();
        for (name, value) in parameters {
            if let Some(kind) = KindWord::of_stream(&name) {
                let path = ZPath::parse(&value)?;
                params.watches.push(WatchWish { kind, path });
                continue;
            }
            match (name.as_str(), value.as_str()) {
                ("heartbeat", "true") => params.heartbeat = true,
                ("heartbeat", "false") => params.heartbeat = false,
                ("heartbeat", _) => return Err(Problem::bad_request("heartbeat is true or false")),
                ("zxid", text) => params.after = Some(position(text)?),
                _ => {
                    return Err(Problem::bad_request(format!("unknown parameter {name:?}")));
                }
            }
            if known.contains(&name) {
                return Err(Problem::bad_request(format!("duplicate parameter {name}")));
            }
            known.push(name);
        }
        if params.watches.len() > MAX_WATCHES {
            return Err(Problem::bad_request(format!(
                "a stream has at most {MAX_WATCHES} watches"
            )));
        }
        if let Some(last) = headers.get(&LAST_EVENT_ID) {
            // A browser sends none before it has received one, and repeats the same address: the header is newer.
            let last = last.to_str().unwrap_or("?");
            params.after = Some(position(last)?);
        }
        Ok(params)
    }
}

/// Reason why a stream was not opened.
enum OpenError {
    Follow(FollowError),
    Other(Problem),
}

impl From<FollowError> for OpenError {
    fn from(error: FollowError) -> Self {
        Self::Follow(error)
    }
}

impl OpenError {
    fn problem(self, session: SessionId) -> Problem {
        match self {
            Self::Other(problem) => problem,
            Self::Follow(FollowError::NoSession) => Refusal::NoSession(session).into(),
            Self::Follow(FollowError::SessionEnded) => Refusal::SessionEnded(session).into(),
            Self::Follow(FollowError::TooMany(refusal)) => refusal.into(),
            Self::Follow(FollowError::Unavailable(unavailable)) => unavailable.into(),
        }
    }
}

/// `GET /v1/sessions/{session}/events`
pub async fn events(State(api): State<Shared>, peer: Peer, uri: Uri, headers: HeaderMap) -> HandlerResult {
    let session = target(&uri)?;
    let params = StreamRequest::read(&uri, &headers)?;
    let revocation = RevocationWatch::begin(&api.node, &peer);
    let begin =
        |opening: &mut StreamOpening<'_>| begin(opening, session, &params, &peer).map_err(OpenError::Other);
    let begun = api.node.follow_session(session, params.after, begin).await;
    let ((first, ttl), stream) = begun.map_err(|error| error.problem(session))?;
    let feed = Feed::new(&api, session, revocation, stream, params, ttl, first);
    let chunks = futures_util::stream::unfold(feed, |mut feed| async {
        let text = feed.next().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), feed))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(&ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// Builds the begin of a stream, and returns the session's time to live. Called with the state locked.
fn begin(
    opening: &mut StreamOpening<'_>,
    session: SessionId,
    params: &StreamRequest,
    peer: &Peer,
) -> Result<(String, Duration), Problem> {
    let caller = peer.identities();
    opening.store().seen_by(&caller).may_use(session)?;
    for (number, wish) in (0..).zip(&params.watches) {
        watch(opening, number, wish, params.after, peer)?;
    }
    // The state of the session is described with the state locked.
    let has_many = |view: SessionView| view.ephemerals as usize > MAX_LOOKED_AT;
    if opening.begin() != StreamBegin::Resumed && opening.store().session(session).is_some_and(has_many) {
        return Err(Problem::too_large_to_follow(session, MAX_LOOKED_AT));
    }
    let mut text = String::new();
    retry(&mut text, RECONNECT_DELAY_MS);
    if let (StreamBegin::Reset, Some(after)) = (opening.begin(), params.after) {
        let zxid = after.to_string();
        event(&mut text, None, "reset", &ResetEvent { zxid });
    }
    if opening.begin() != StreamBegin::Resumed {
        let at = EventPosition::all_of(opening.zxid());
        event(
            &mut text,
            Some(at),
            "state",
            &StateEvent::new(opening.store(), session),
        );
    }
    let view = opening.store().session(session);
    let ttl_ms = view.map_or(0, |view| u64::from(view.timeout_ms));
    Ok((text, Duration::from_millis(ttl_ms)))
}

/// Registers a watch. If the znode has changed since the caller saw it, the watch fires at once.
fn watch(
    opening: &mut StreamOpening<'_>,
    number: u32,
    wish: &WatchWish,
    after: Option<EventPosition>,
    peer: &Peer,
) -> Result<(), Problem> {
    let (caller, now) = (peer.identities(), opening.zxid());
    opening.store().seen_by(&caller).watch(&wish.path)?;
    let read = opening
        .store()
        .seen_by(&caller)
        .get(&wish.path)
        .map(|(_, stat)| stat);
    // A position of another cluster says nothing about this one.
    let after = after.map(|after| {
        if after.zxid() > now {
            EventPosition::all_of(Zxid(0))
        } else {
            after
        }
    });
    let fired = match (&read, after.is_some()) {
        (_, false) => None,
        (Ok(stat), true) => {
            // The stream has sent earlier events of the same command already.
            let is_news = |at: Zxid| after.is_none_or(|after| EventPosition::of_watch(at, number) > after);
            missed(wish.kind, stat, Zxid(0)).filter(|(_, at)| is_news(*at))
        }
        (Err(Refusal::NoNode(_)), true) if wish.kind.needs_reading() => Some((ZnodeEventKind::Deleted, now)),
        (Err(_), true) => None,
    };
    if let Some((kind, zxid)) = fired {
        let path = wish.path.clone();
        opening.missed(number, Notice { kind, path, zxid });
        return Ok(());
    }
    if wish.kind.needs_reading() {
        read?;
    }
    Ok(opening.watch(number, &wish.path, wish.kind.kind(), caller)?)
}

/// An open stream.
struct Feed {
    session: SessionId,
    /// Check that the reader may still have the stream.
    revocation: RevocationWatch,
    stream: SessionStream,
    watches: Vec<WatchWish>,
    renewal: Option<SessionRenewal>,
    /// Text to write next.
    first: Option<String>,
    at: EventPosition,
    keep_alive: Interval,
    closing: CancellationToken,
    is_over: bool,
}

impl Feed {
    fn new(
        api: &Shared,
        session: SessionId,
        revocation: RevocationWatch,
        stream: SessionStream,
        params: StreamRequest,
        ttl: Duration,
        first: String,
    ) -> Self {
        let every = (ttl / RENEWALS_PER_TTL).clamp(Duration::from_millis(1), KEEP_ALIVE);
        let mut keep_alive = tokio::time::interval_at(Instant::now() + every, every);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // A session that has ended has no time to live, and only the rest of its events is sent.
        let is_live = params.heartbeat && !ttl.is_zero();
        Self {
            at: stream.delivered(),
            renewal: is_live.then(|| SessionRenewal::new(api.node.clone(), session, ttl)),
            session,
            revocation,
            stream,
            watches: params.watches,
            first: Some(first),
            keep_alive,
            closing: api.locks.closing(),
            is_over: false,
        }
    }

    /// Returns the text to write next, or `None` at the end. It is called only when the text before has left this
    /// program, so nothing accumulates for a client that does not read, and its session is not renewed.
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while !self.is_over {
            let renewed = async {
                match &mut self.renewal {
                    Some(renewal) => renewal.next_news().await,
                    None => std::future::pending().await,
                }
            };
            let mut text = String::new();
            let session = self.session;
            tokio::select! {
                biased;
                () = self.closing.cancelled() => self.end(&mut text, "node_stops"),
                // Checked before each message: its events require the rights that the caller has now.
                refusal = self.revocation.revoked(|view| view.may_use(session)) => {
                    tracing::debug!(%session, %refusal, "session events: ended a stream whose reader lost its permission");
                    self.end(&mut text, "access_lost");
                }
                () = self.stream.changed() => self.write_events(&mut text),
                news = renewed => self.write_session_news(&mut text, news),
                _ = self.keep_alive.tick() => {
                    self.write_events(&mut text);
                    if text.is_empty() {
                        keep_alive(&mut text, self.at);
                    }
                }
            }
            if !text.is_empty() {
                return Some(text);
            }
        }
        None
    }

    fn write_events(&mut self, text: &mut String) {
        let events = match self.stream.take() {
            Ok((events, at)) => {
                self.at = at;
                events
            }
            Err(lost) => {
                return self.end(
                    text,
                    match lost {
                        StreamLost::TooSlow => "too_slow",
                        StreamLost::StateReplaced => "state_replaced",
                        StreamLost::NodeStops => "node_stops",
                    },
                );
            }
        };
        for delivered in events {
            match &delivered.what {
                StreamedEventKind::Session { time_ms, event } => {
                    self.is_over |= session_event(text, delivered.at, *time_ms, event);
                }
                StreamedEventKind::Watch { number, notice } => {
                    let fired = WatchEvent {
                        kind: self.watches[*number as usize].kind.word(),
                        event: event_word(notice.kind),
                        path: notice.path.as_str(),
                        zxid: notice.zxid.0,
                    };
                    event(text, Some(delivered.at), "watch", &fired);
                }
            }
        }
    }

    fn write_session_news(&mut self, text: &mut String, news: SessionNews) {
        match news {
            SessionNews::Expiring { left } => {
                let left_ms = left.as_millis() as u64;
                event(text, None, "expiring", &ExpiringEvent { left_ms });
            }
            SessionNews::Renewed { ttl } => {
                let ttl_ms = ttl.as_millis() as u64;
                event(text, None, "renewed", &RenewedEvent { ttl_ms });
            }
            SessionNews::Expired => {
                // Written before the end, so that a client that reconnects does not receive these events again.
                self.write_events(text);
                if !self.is_over {
                    keep_alive(text, self.at);
                    self.end(text, "renew");
                }
            }
        }
    }

    fn end(&mut self, text: &mut String, reason: &'static str) {
        event(text, None, "stream_ended", &StreamEndedEvent { reason });
        self.is_over = true;
    }
}

/// Change of a session's lifetime that the client is notified of.
enum SessionNews {
    /// No renewal was confirmed for two thirds of the time to live.
    Expiring { left: Duration },
    /// A renewal was confirmed after the client had been warned.
    Renewed { ttl: Duration },
    /// The stream does not count as a heartbeat any more.
    Expired,
}

type HeartbeatFuture = Pin<Box<dyn Future<Output = Result<Duration, HeartbeatError>> + Send>>;

/// Renewal of a session for as long as its stream counts as its heartbeat.
struct SessionRenewal {
    node: Node,
    session: SessionId,
    ttl: Duration,
    /// Renewal in progress, and the time at which it was begun.
    heartbeat: Option<(Instant, HeartbeatFuture)>,
    next: Instant,
    /// Begin of the last confirmed renewal.
    confirmed: Option<Instant>,
    /// Begin of the first renewal since then.
    began: Instant,
    /// Set once the client has been warned.
    is_expiring: bool,
}

impl SessionRenewal {
    fn new(node: Node, session: SessionId, ttl: Duration) -> Self {
        let now = Instant::now();
        Self {
            node,
            session,
            ttl,
            heartbeat: None,
            next: now,
            confirmed: None,
            began: now,
            is_expiring: false,
        }
    }

    /// Renews the session until the client has to be notified. Cancel safe: a later call continues.
    async fn next_news(&mut self) -> SessionNews {
        loop {
            let over_at = self.began + self.ttl * MAX_UNCONFIRMED_TTLS;
            let doubtful_at = self.confirmed.unwrap_or(self.began) + self.ttl * DOUBTFUL.0 / DOUBTFUL.1;
            let is_idle = self.heartbeat.is_none();
            let answer = async {
                match &mut self.heartbeat {
                    Some((_, heartbeat)) => heartbeat.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(over_at) => return SessionNews::Expired,
                answer = answer => {
                    let began = self.heartbeat.take().map_or(self.began, |(began, _)| began);
                    if let Some(ttl) = self.on_heartbeat(began, answer) {
                        return SessionNews::Renewed { ttl };
                    }
                }
                () = tokio::time::sleep_until(doubtful_at), if !self.is_expiring => {
                    self.is_expiring = true;
                    let lives_until = self.confirmed.map(|at| at + self.ttl);
                    let now = Instant::now();
                    let left = lives_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
                    return SessionNews::Expiring { left };
                }
                () = tokio::time::sleep_until(self.next), if is_idle => {
                    let (node, session) = (self.node.clone(), self.session);
                    let heartbeat = Box::pin(async move { node.heartbeat(session).await });
                    self.heartbeat = Some((Instant::now(), heartbeat));
                }
            }
        }
    }

    /// Records the answer to a renewal begun at `began`. Returns the time to live if the client had been warned and the
    /// renewal succeeded.
    fn on_heartbeat(&mut self, began: Instant, answer: Result<Duration, HeartbeatError>) -> Option<Duration> {
        match answer {
            Ok(ttl) => {
                self.confirmed = Some(began);
                self.next = began + ttl / RENEWALS_PER_TTL;
                std::mem::take(&mut self.is_expiring).then_some(ttl)
            }
            // The stream itself reports the end of the session, when this node applies it.
            Err(error) => {
                tracing::debug!(session = %self.session, %error, "session events: could not renew the session of a stream");
                self.next = Instant::now() + RENEWAL_RETRY.min(self.ttl / RENEWALS_PER_TTL);
                None
            }
        }
    }
}
