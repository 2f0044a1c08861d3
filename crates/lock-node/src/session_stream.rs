//! Stream of one session's events after a position: the events of its locks, and the notices of the stream's watches, in one order. The front end
//! transports the events, and keeps the session alive.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use znode_store::{Identities, SessionFate, SessionId, Store, ZPath, Zxid};
use znode_watch::{Notice, TooManyWatches, WatchKind};

use crate::replica::Replica;
use observers::journal::EventPosition;
use observers::notifier::{Notifier, Watcher};
use observers::session_events::{SessionEvent, SessionEventStream, StreamLost, TooManyStreams};
use raft_node::Unavailable;

/// Maximum number of events that are read at a time, because no command is applied meanwhile.
const TAKEN_AT_ONCE: usize = 256;

/// Beginning of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamBegin {
    /// The stream begins with the current state, because the client named no position.
    New,
    /// The stream begins after the position that the client named: all later events follow.
    Resumed,
    /// The stream begins with the current state, because this node does not have all events after the position that the client named.
    Reset,
}

/// Reason for which a session cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// The session does not exist.
    #[error("there is no such session")]
    NoSession,
    /// The session has ended, and the stream would not contain its end: the client did not name a position, or this node does not have the events
    /// after it any more.
    #[error("the session has ended")]
    SessionEnded,
    /// There are too many streams of the session or of the node.
    #[error(transparent)]
    TooMany(#[from] TooManyStreams),
    /// This node cannot serve the request now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Event of a stream, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamedEvent {
    /// Position of the event. A client that resumes after it has received all earlier events, and none of the later ones.
    pub at: EventPosition,
    /// Content of the event.
    pub what: StreamedEventKind,
}

/// Content of an event: of the session, or of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamedEventKind {
    /// An event of the session.
    Session {
        /// Time of its log entry, in milliseconds since 1970.
        time_ms: u64,
        /// Content of the event.
        event: SessionEvent,
    },
    /// A watch has fired, and is disarmed.
    Watch {
        /// Number of the watch within the stream.
        number: u32,
        /// Notice of the change.
        notice: Notice,
    },
}

/// Events of one session after a position. Dropping the stream disarms its watches.
pub struct SessionStream {
    replica: Arc<Replica>,
    following: SessionEventStream,
    watchers: Vec<(u32, Watcher)>,
    /// Watches that have fired, whose notices were not delivered yet.
    fired: Vec<(u32, Notice)>,
    /// Position up to which everything was delivered.
    delivered: EventPosition,
}

impl SessionStream {
    /// Begins a stream with the state locked, so that `look` reads the state and arms watches exactly at the position at which the stream begins.
    pub(crate) fn begin<T, E: From<FollowError>>(
        replica: &Arc<Replica>,
        session: SessionId,
        after: Option<EventPosition>,
        look: impl FnOnce(&mut StreamOpening<'_>) -> Result<T, E>,
    ) -> Result<(T, Self), E> {
        let store = replica.store.read();
        let events = &replica.observers.session_events;
        let begin = match after {
            None => StreamBegin::New,
            Some(after) if after.zxid() <= store.zxid() && events.knows_all_after(after) => {
                StreamBegin::Resumed
            }
            Some(_) => StreamBegin::Reset,
        };
        let rest_is_known = || {
            begin == StreamBegin::Resumed && after.is_some_and(|after| events.has_any_after(session, after))
        };
        match store.session_fate(session) {
            SessionFate::Live => {}
            // The stream delivers the end of the session.
            SessionFate::Ended if rest_is_known() => {}
            SessionFate::Ended => return Err(FollowError::SessionEnded.into()),
            SessionFate::Unknown => return Err(FollowError::NoSession.into()),
        }
        let delivered = match (begin, after) {
            (StreamBegin::Resumed, Some(after)) => after,
            _ => EventPosition::all_of(store.zxid()),
        };
        let following = events.follow(session, delivered).map_err(FollowError::from)?;
        if begin == StreamBegin::Reset {
            events.count_reset();
        }
        let mut opening = StreamOpening {
            store: &store,
            notifier: &replica.observers.notifier,
            begin,
            watchers: Vec::new(),
            fired: Vec::new(),
        };
        let seen = look(&mut opening)?;
        let StreamOpening { watchers, fired, .. } = opening;
        let stream = Self {
            replica: replica.clone(),
            following,
            watchers,
            fired,
            delivered,
        };
        Ok((seen, stream))
    }

    /// Returns the next events, in order, and the position up to which everything is delivered with them. If there are many, it returns some of
    /// them; then [`SessionStream::changed`] completes at once.
    pub fn take(&mut self) -> Result<(Vec<StreamedEvent>, EventPosition), StreamLost> {
        let replica = self.replica.clone();
        // The lock of the state excludes a command whose events are only partly in the stream.
        let store = replica.store.read();
        let (taken, more) = self.following.take(TAKEN_AT_ONCE)?;
        gather(&mut self.watchers, &mut self.fired, Watcher::try_fired);
        let reached = match taken.last() {
            Some(last) if more => last.at,
            _ => EventPosition::all_of(store.zxid()),
        };
        let mut due: Vec<StreamedEvent> = taken
            .into_iter()
            .map(|kept| StreamedEvent {
                at: kept.at,
                what: StreamedEventKind::Session {
                    time_ms: kept.time_ms,
                    event: kept.event,
                },
            })
            .collect();
        let before = self.delivered;
        self.fired.retain(|(number, notice)| {
            // The notice of an earlier change may be late, and must not move the stream back.
            let at = EventPosition::of_watch(notice.zxid, *number).max(before);
            let is_due = at <= reached;
            if is_due {
                let what = StreamedEventKind::Watch {
                    number: *number,
                    notice: notice.clone(),
                };
                due.push(StreamedEvent { at, what });
            }
            !is_due
        });
        due.sort_by_key(|event| event.at);
        self.delivered = self.delivered.max(reached);
        Ok((due, self.delivered))
    }

    /// Returns the position up to which everything was delivered.
    pub fn delivered(&self) -> EventPosition {
        self.delivered
    }

    /// Waits until there may be events to take. Cancelling the wait loses no event.
    pub async fn changed(&mut self) {
        let (watchers, gathered) = (&mut self.watchers, &mut self.fired);
        let fired = poll_fn(
            |cx| match gather(watchers, gathered, |watcher| watcher.poll_fired(cx)) {
                0 => Poll::Pending,
                _ => Poll::Ready(()),
            },
        );
        tokio::select! {
            () = self.following.changed() => {}
            () = fired => {}
        }
    }
}

/// Moves the notices of fired watchers to `fired`, and removes these watchers. Returns their number.
fn gather(
    watchers: &mut Vec<(u32, Watcher)>,
    fired: &mut Vec<(u32, Notice)>,
    mut poll: impl FnMut(&mut Watcher) -> Poll<Option<Notice>>,
) -> usize {
    let before = watchers.len();
    watchers.retain_mut(|(number, watcher)| match poll(watcher) {
        Poll::Pending => true,
        Poll::Ready(notice) => {
            // Without a notice the watches are lost; the stream ends as well, and returns the reason.
            fired.extend(notice.map(|notice| (*number, notice)));
            false
        }
    });
    before - watchers.len()
}

/// Opening of a stream: the state at the position at which the stream begins, and its first watches.
pub struct StreamOpening<'a> {
    store: &'a Store,
    notifier: &'a Arc<Notifier>,
    begin: StreamBegin,
    watchers: Vec<(u32, Watcher)>,
    fired: Vec<(u32, Notice)>,
}

impl StreamOpening<'_> {
    /// Returns the state at the beginning of the stream.
    pub fn store(&self) -> &Store {
        self.store
    }

    /// Returns how the stream begins.
    pub fn begin(&self) -> StreamBegin {
        self.begin
    }

    /// Arms a watch for one notice, and gives it a number. The notice is delivered only if `caller` may read the znode at that time.
    pub fn watch(
        &mut self,
        number: u32,
        path: &ZPath,
        kind: WatchKind,
        caller: Identities,
    ) -> Result<(), TooManyWatches> {
        let watcher = self.notifier.watch(path, kind, caller)?;
        self.watchers.push((number, watcher));
        Ok(())
    }

    /// Delivers the notice of a change that a watch has missed, instead of arming the watch.
    pub fn missed(&mut self, number: u32, notice: Notice) {
        self.fired.push((number, notice));
    }

    /// Returns the position at which the stream begins.
    pub fn zxid(&self) -> Zxid {
        self.store.zxid()
    }
}
