//! Feed of recent events of all locks and sessions, for people who observe the cluster: the latest ones, a few times a
//! second, however many there are. The description of an event is in `event_feed_types.rs`; the node keeps the events.
//!
//! Programs must not depend on it: it skips events that come too fast, and reports that it did. Programs follow a
//! session, a watch, or the log.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use axum::response::Response;
use listener::Share;
use lock_node::{EventPosition, FeedEvent, FeedEventKind, FeedPage, MAX_FEED_SUBSCRIBERS};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;
use znode_store::{Identities, LockName, Right, Store, ZPath};

use super::auth::{RequiredPermission, RevocationWatch};
use super::event_feed_types::{ClusterFeedEntry, HappenedEvent, serialize_event};
use super::event_types::{StreamEndedEvent, event, keep_alive, position, retry};
use super::extract::{HandlerResult, ensure_freshness, query};
use super::lock_types::{SeenLock, SummaryAnswer};
use super::openapi::words;
use super::problem::{Code, Problem};
use super::{Peer, Shared};

/// Minimum time between two messages. People do not read faster, and a busy node spends next to nothing on observers.
const MIN_MESSAGE_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of events in a message. A screen shows half as many.
const MAX_EVENTS_PER_MESSAGE: usize = 100;

/// Maximum number of earlier events at the beginning of a stream.
pub const MAX_LAST: usize = 1000;

/// Maximum time between two writes, so that both sides detect a dead connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time after which clients reconnect when a stream has ended.
const RECONNECT_DELAY_MS: u64 = 1000;

/// Header with the last event that a client received; browsers send it by themselves.
static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Header that makes proxies pass on each message at once.
static ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only events of locks whose names begin with this.
    prefix: Option<String>,
    /// Number of earlier events at the beginning.
    #[serde(default)]
    #[param(value_type = Option<words::LastCount>)]
    last: usize,
    /// Last position or id that the client received: later events are sent at the beginning.
    #[param(value_type = Option<words::EventId>)]
    zxid: Option<String>,
    /// Include the current state of the locks of the events.
    #[serde(default)]
    locks: bool,
    /// Include events of the cluster: leader, members, alarms.
    #[serde(default)]
    cluster: bool,
}

/// `GET /v1/events`
pub async fn events(State(api): State<Shared>, peer: Peer, uri: Uri, headers: HeaderMap) -> HandlerResult {
    let params: EventsQuery = query(&uri)?;
    if params.last > MAX_LAST {
        return Err(Problem::bad_request(format!("last is at most {MAX_LAST}")));
    }
    let header = headers
        .get(&LAST_EVENT_ID)
        .map(|last| last.to_str().unwrap_or("?"));
    let after = header.or(params.zxid.as_deref()).map(position).transpose()?;
    ensure_freshness(&api, false).await?;
    let revocation = RevocationWatch::begin(&api.node, &peer);
    let too_many = |what: String| Problem::new(Code::TooManyRequests, what);
    let share = api.feed_shares.take(peer.shared_by(), 1).ok_or_else(|| {
        let most = MAX_FEED_SUBSCRIBERS / 2;
        too_many(format!(
            "this caller has {most} subscriptions at this node, its maximum"
        ))
    })?;
    let changes = api.node.subscribe_feed().map_err(|_| {
        too_many(format!(
            "this node has {MAX_FEED_SUBSCRIBERS} observers, its maximum"
        ))
    })?;
    let feed = Feed::new(api, peer.identities(), share, revocation, changes, params, after);
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

/// An open stream.
struct Feed {
    api: Shared,
    caller: Identities,
    _share: Share,
    revocation: RevocationWatch,
    changes: watch::Receiver<u64>,
    prefix: Option<String>,
    with_locks: bool,
    with_cluster: bool,
    /// Number of events of the cluster that were sent or skipped.
    of_cluster: u64,
    /// Position up to which events were sent or skipped; `None` before the first.
    at: Option<EventPosition>,
    /// Number of events at the beginning.
    first: Option<usize>,
    next_check: Instant,
    keep_alive: Interval,
    closing: CancellationToken,
    is_over: bool,
}

impl Feed {
    fn new(
        api: Shared,
        caller: Identities,
        share: Share,
        revocation: RevocationWatch,
        changes: watch::Receiver<u64>,
        params: EventsQuery,
        after: Option<EventPosition>,
    ) -> Self {
        let mut keep_alive = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            closing: api.locks.closing(),
            api,
            caller,
            _share: share,
            revocation,
            changes,
            prefix: params.prefix,
            with_locks: params.locks,
            with_cluster: params.cluster,
            of_cluster: 0,
            // A client that names its position gets the events since then.
            first: Some(if after.is_some() { MAX_LAST } else { params.last }),
            at: after,
            next_check: Instant::now() + MIN_MESSAGE_INTERVAL,
            keep_alive,
            is_over: false,
        }
    }

    /// Returns the text to write next, or `None` at the end. It is called only when the text before has left this
    /// program, so nothing accumulates for a client that does not read.
    async fn next(&mut self) -> Option<String> {
        let mut text = String::new();
        if let Some(count) = self.first.take() {
            retry(&mut text, RECONNECT_DELAY_MS);
            self.write_message(&mut text, count, true);
            return Some(text);
        }
        while !self.is_over && text.is_empty() {
            let (changes, next_check) = (&mut self.changes, self.next_check);
            // In this order, so that a change is not marked as seen before it is read.
            let due = async {
                tokio::time::sleep_until(next_check).await;
                if changes.changed().await.is_err() {
                    // The node is gone, so no event follows.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = self.closing.cancelled() => self.end(&mut text, "node_stops"),
                // Checked before each message: its events require the rights that the caller has now.
                refusal = self.revocation.revoked(|view| view.admission()) => {
                    tracing::debug!(%refusal, "event feed: ended a stream whose reader lost its permission");
                    self.end(&mut text, "access_lost");
                }
                () = due => self.write_message(&mut text, MAX_EVENTS_PER_MESSAGE, false),
                _ = self.keep_alive.tick() => match self.at {
                    Some(at) => keep_alive(&mut text, at),
                    None => self.write_message(&mut text, 0, true),
                },
            }
        }
        (!text.is_empty()).then_some(text)
    }

    fn write_message(&mut self, text: &mut String, count: usize, even_if_empty: bool) {
        let (caller, with_locks) = (&self.caller, self.with_locks);
        let with_cluster = self.with_cluster;
        let (of_cluster, through) = self.api.node.cluster_events(self.of_cluster, count);
        self.of_cluster = through;
        let is_selected = |it: &FeedEvent| matches_prefix(&it.what, self.prefix.as_deref());
        let render = |store: &Store, mut page: FeedPage| {
            page.latest.retain(|it| may_see(store, caller, &it.what));
            let locks = match with_locks {
                true => locks_of(&page),
                false => BTreeSet::new(),
            };
            let at = EventPosition::all_of(store.zxid());
            let events: Vec<_> = page.latest.iter().map(|it| serialize_event(store, it)).collect();
            let summaries: Vec<_> = locks.iter().map(|lock| SeenLock::now(store, lock)).collect();
            let document = HappenedEvent {
                more: page.more,
                events,
                locks: summaries.iter().map(SummaryAnswer::from).collect(),
                cluster: with_cluster.then(|| match may_see_cluster(store, caller) {
                    true => of_cluster
                        .iter()
                        .map(|it| ClusterFeedEntry::from(&**it))
                        .collect(),
                    false => Vec::new(),
                }),
            };
            let has_content = even_if_empty || document.has_content();
            if has_content {
                event(text, Some(at), "happened", &document);
            }
            at
        };
        self.at = Some(self.api.node.feed_events(self.at, count, is_selected, render));
        self.next_check = Instant::now() + MIN_MESSAGE_INTERVAL;
    }

    fn end(&mut self, text: &mut String, reason: &'static str) {
        event(text, None, "stream_ended", &StreamEndedEvent { reason });
        self.is_over = true;
    }
}

/// Locks of the events in a message.
fn locks_of(page: &FeedPage) -> BTreeSet<LockName> {
    page.latest.iter().filter_map(|it| it.what.lock()).collect()
}

fn matches_prefix(what: &FeedEventKind, prefix: Option<&str>) -> bool {
    match prefix {
        None => true,
        Some(prefix) => what.lock().is_some_and(|lock| lock.as_str().starts_with(prefix)),
    }
}

/// Returns whether the caller may see an event: those of a lock require access to its history, those of sessions and
/// access control the rights of an administrator.
fn may_see(store: &Store, caller: &Identities, what: &FeedEventKind) -> bool {
    let view = store.seen_by(caller);
    match what.lock() {
        Some(lock) => view.lock_history(&lock).is_ok(),
        None => view.may(Right::Administer, &ZPath::root()).is_ok(),
    }
}

/// Returns whether the caller may see events of the cluster, as it may see its state.
fn may_see_cluster(store: &Store, caller: &Identities) -> bool {
    RequiredPermission::ReadCluster
        .require(store.seen_by(caller))
        .is_ok()
}
