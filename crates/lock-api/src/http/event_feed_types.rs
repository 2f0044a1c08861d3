//! Documents of `GET /v1/events`: the word of an event, and all details known about it.

use lock_node::{Alarm, ClusterEvent, ClusterEventKind, FeedEvent, FeedEventKind, SessionEvent};
use serde::Serialize;
use utoipa::ToSchema;
use znode_store::{ContenderEnd, Hold, SessionId, Store};

use super::event_types::{limit_of, reason_of};
use super::extract::Timestamp;
use super::lock_types::{ModeWord, SummaryAnswer};
use super::openapi::words;
use super::problem::mode_word;

/// `happened`
#[derive(Serialize, ToSchema)]
pub struct HappenedEvent<'a> {
    /// `true` if more events happened since the last message than it contains.
    pub more: bool,
    /// Events, in order.
    pub events: Vec<FeedEntry<'a>>,
    /// Current state of the locks of these events, if requested.
    pub locks: Vec<SummaryAnswer<'a>>,
    /// Events of the cluster, if requested: as this node saw them, by its clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<ClusterFeedEntry>)]
    pub cluster: Option<Vec<ClusterFeedEntry<'a>>>,
}

impl HappenedEvent<'_> {
    /// Returns whether the message contains anything.
    pub fn has_content(&self) -> bool {
        self.more
            || !self.events.is_empty()
            || self.cluster.as_ref().is_some_and(|cluster| !cluster.is_empty())
    }
}

/// An event of the cluster. Its fields depend on the kind of event.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = ClusterEvent)]
pub struct ClusterFeedEntry<'a> {
    /// Identifier of the event, the same at every node that has seen it.
    #[schema(value_type = String)]
    id: String,
    #[schema(value_type = words::ClusterHappeningWord)]
    event: &'static str,
    #[schema(value_type = words::Time)]
    at: Option<Timestamp>,
    /// New leader, or node of an alarm.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    node_id: Option<u64>,
    /// Of `leader_changed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    term: Option<u64>,
    /// Of `members_changed`: the change, described for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    change: Option<&'a str>,
    /// Of alarms: their kind, as in the alarms of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    kind: Option<&'static str>,
    /// Of alarms: a description for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    detail: Option<&'a str>,
}

impl<'a> From<&'a ClusterEvent> for ClusterFeedEntry<'a> {
    fn from(happening: &'a ClusterEvent) -> Self {
        let mut entry = Self {
            id: happening.id(),
            at: Some(Timestamp(happening.time_ms)),
            ..Self::default()
        };
        match &happening.what {
            ClusterEventKind::LeaderChanged { leader, term } => {
                entry.event = "leader_changed";
                (entry.node_id, entry.term) = (Some(*leader), Some(*term));
            }
            ClusterEventKind::MembersChanged { index: _, change } => {
                entry.event = "members_changed";
                entry.change = Some(change);
            }
            ClusterEventKind::AlarmBegan(alarm) => {
                entry.event = "alarm_began";
                entry.alarm(alarm);
            }
            ClusterEventKind::AlarmOver(alarm) => {
                entry.event = "alarm_over";
                entry.alarm(alarm);
            }
        }
        entry
    }
}

impl<'a> ClusterFeedEntry<'a> {
    fn alarm(&mut self, alarm: &'a Alarm) {
        self.node_id = alarm.node_id;
        self.kind = Some(alarm.kind.word());
        self.detail = Some(&alarm.detail);
    }
}

/// An event. Its fields depend on the kind of event.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = FeedEvent)]
pub struct FeedEntry<'a> {
    /// Position of the event: the same at every node.
    #[schema(value_type = words::EventId)]
    id: String,
    #[schema(value_type = words::HappeningWord)]
    event: &'static str,
    #[schema(value_type = words::Time)]
    at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::LockName)]
    lock: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Holder)]
    holder: Option<String>,
    /// Owner of the hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::SessionId)]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::SessionName)]
    session_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ModeWord)]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Limit)]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Permits)]
    permits: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::FencingToken)]
    fencing_token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Owner)]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Note)]
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Address)]
    address: Option<String>,
    /// Of `lost`, `left_queue` and `session_ended`: the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    ended: Option<&'static str>,
    /// Principal that caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Reason)]
    reason: Option<&'a str>,
    /// Of `release_replied`: the holder's reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Reason)]
    answer: Option<&'a str>,
    /// Of `closed`: the time without grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::LockDelayMs)]
    delay_ms: Option<u32>,
    /// Of `access_changed`: the change, described for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    change: Option<String>,
}

/// Builds the description of an event.
pub fn serialize_event<'a>(store: &Store, happening: &'a FeedEvent) -> FeedEntry<'a> {
    let mut entry = FeedEntry {
        id: happening.at.to_string(),
        at: Some(Timestamp(happening.time_ms)),
        lock: happening.what.lock().map(|lock| lock.to_string()),
        ..FeedEntry::default()
    };
    match &happening.what {
        FeedEventKind::Queued { contender } => {
            entry.event = "queued";
            entry.holder = Some(contender.name().to_owned());
            // The holder may be gone by now, and is then described without its session.
            if let Some(session) = store
                .stat(contender)
                .and_then(|stat| stat.ephemeral_owner.session())
            {
                entry.session = Some(session.to_string());
                entry.session_name = store.session(session).map(|view| view.name.to_string());
            }
        }
        FeedEventKind::ToSession { session, event } => entry.of_session(*session, event),
        FeedEventKind::RevokeAnswered {
            session,
            lock: _,
            holder,
            answer,
        } => {
            entry.event = "release_replied";
            entry.session = Some(session.to_string());
            entry.holder = Some(holder.clone());
            entry.answer = Some(answer);
        }
        FeedEventKind::Closed { lock: _, delay_ms } => {
            entry.event = "closed";
            entry.delay_ms = Some(*delay_ms);
        }
        FeedEventKind::Opened(_) => entry.event = "opened",
        FeedEventKind::SessionOpened(session) => {
            entry.event = "session_opened";
            entry.session = Some(session.to_string());
            // The session may have ended by now, and is then described without its name.
            if let Some(view) = store.session(*session) {
                entry.session_name = Some(view.name.to_string());
                entry.address = Some(view.address.to_string());
            }
        }
        FeedEventKind::AccessChanged(change) => {
            entry.event = "access_changed";
            entry.change = Some(change.command.to_string());
            entry.by = Some(change.by.to_string());
        }
    }
    entry
}

impl<'a> FeedEntry<'a> {
    fn of_session(&mut self, session: SessionId, event: &'a SessionEvent) {
        self.session = Some(session.to_string());
        match event {
            SessionEvent::Granted(hold) => {
                self.event = "granted";
                self.hold(hold);
            }
            SessionEvent::Downgraded(grant) => {
                self.event = "downgraded";
                self.holder = Some(grant.holder.clone());
                self.mode = Some(mode_word(grant.mode));
                self.fencing_token = Some(grant.fencing_token.0);
            }
            SessionEvent::Lost { hold, how, by } => {
                self.event = "lost";
                self.hold(hold);
                self.end(how);
                self.by = by.as_deref().map(str::to_owned);
            }
            SessionEvent::LeftQueue { lock: _, holder, how } => {
                self.event = "left_queue";
                self.holder = Some(holder.clone());
                self.end(how);
                if let ContenderEnd::Broken { by, .. } = how {
                    self.by = Some(by.to_string());
                }
            }
            SessionEvent::RevokeRequested {
                lock: _,
                holder,
                by,
                reason,
            } => {
                self.event = "release_requested";
                self.holder = Some(holder.clone());
                self.by = Some(by.to_string());
                self.reason = Some(reason);
            }
            SessionEvent::Ended { expired } => {
                self.event = "session_ended";
                self.ended = Some(if *expired { "expired" } else { "closed" });
            }
        }
    }

    fn hold(&mut self, hold: &'a Hold) {
        self.holder = Some(hold.holder.to_string());
        self.session_name = Some(hold.session_name.to_string());
        self.mode = Some(mode_word(hold.mode));
        self.limit = limit_of(hold.mode);
        self.permits = Some(hold.permits);
        self.fencing_token = Some(hold.fencing_token.0);
        self.owner = Some(&hold.owner);
        self.note = Some(&hold.note);
        self.address = Some(hold.address.to_string());
    }

    fn end(&mut self, how: &'a ContenderEnd) {
        self.ended = Some(how.word());
        self.reason = reason_of(how);
    }
}
