//! Stream of one session's events from a position on: events of its locks, and the watches of the stream, in one order. The front end
//! transports them, and keeps the session alive.

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

/// Maximum number of events that are read at a time: nothing is applied meanwhile.
const TAKEN_AT_ONCE: usize = 256;

/// Beginning of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamBegin {
    /// With the present state: the client knows nothing yet.
    New,
    /// After the position that was named: all that has happened since follows.
    Resumed,
    /// With the present state, for not all that has happened after the position that was named is known here.
    Reset,
}

/// Why a session cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// There is no such session.
    #[error("there is no such session")]
    NoSession,
    /// It is over, and what happened at its end is not asked for, or not known any more.
    #[error("the session has ended")]
    SessionEnded,
    /// Too many do.
    #[error(transparent)]
    TooMany(#[from] TooManyStreams),
    /// This node cannot tell now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Item of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamedEvent {
    /// Position. A client that resumes after it has got everything up to here, and nothing beyond.
    pub at: EventPosition,
    /// Content.
    pub what: StreamedEventKind,
}

/// Of a session, or of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamedEventKind {
    /// Something happened to the session.
    Session {
        /// Time in milliseconds since 1970, by the log.
        time_ms: u64,
        /// Event.
        event: SessionEvent,
    },
    /// A watch has fired, and is gone.
    Watch {
        /// Number.
        number: u32,
        /// Notice.
        notice: Notice,
    },
}

/// A session's events from a position on. They end when it is dropped.
pub struct SessionStream {
    replica: Arc<Replica>,
    following: SessionEventStream,
    watchers: Vec<(u32, Watcher)>,
    /// Watches that have fired and were not told yet.
    fired: Vec<(u32, Notice)>,
    /// Position up to which everything was delivered.
    told: EventPosition,
}

impl SessionStream {
    /// Begins, with the state locked: `look` reads and arms watches at the very position at which the stream begins.
    pub(crate) fn begin<T, E: From<FollowError>>(
        replica: &Arc<Replica>,
        session: SessionId,
        after: Option<EventPosition>,
        look: impl FnOnce(&mut StreamLook<'_>) -> Result<T, E>,
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
            // It learns how it ended.
            SessionFate::Ended if rest_is_known() => {}
            SessionFate::Ended => return Err(FollowError::SessionEnded.into()),
            SessionFate::Unknown => return Err(FollowError::NoSession.into()),
        }
        let told = match (begin, after) {
            (StreamBegin::Resumed, Some(after)) => after,
            _ => EventPosition::all_of(store.zxid()),
        };
        let following = events.follow(session, told).map_err(FollowError::from)?;
        if begin == StreamBegin::Reset {
            events.count_reset();
        }
        let mut looking = StreamLook {
            store: &store,
            notifier: &replica.observers.notifier,
            begin,
            watchers: Vec::new(),
            fired: Vec::new(),
        };
        let seen = look(&mut looking)?;
        let StreamLook { watchers, fired, .. } = looking;
        let stream = Self {
            replica: replica.clone(),
            following,
            watchers,
            fired,
            told,
        };
        Ok((seen, stream))
    }

    /// Returns the next items, in order, and the position up to which everything is delivered with them. If there are many, it returns a
    /// part; then [`SessionStream::changed`] is ready at once.
    pub fn take(&mut self) -> Result<(Vec<StreamedEvent>, EventPosition), StreamLost> {
        let replica = self.replica.clone();
        // With the state locked no command is half told.
        let store = replica.store.read();
        let (taken, more) = self.following.take(TAKEN_AT_ONCE)?;
        gather(&mut self.watchers, &mut self.fired, Watcher::try_fired);
        let reached = match taken.last() {
            Some(last) if more => last.at,
            _ => EventPosition::all_of(store.zxid()),
        };
        let mut told: Vec<StreamedEvent> = taken
            .into_iter()
            .map(|kept| StreamedEvent {
                at: kept.at,
                what: StreamedEventKind::Session {
                    time_ms: kept.time_ms,
                    event: kept.event,
                },
            })
            .collect();
        let before = self.told;
        self.fired.retain(|(number, notice)| {
            // The notice of an earlier change comes late, and must not move the stream back.
            let at = EventPosition::of_watch(notice.zxid, *number).max(before);
            let is_due = at <= reached;
            if is_due {
                let what = StreamedEventKind::Watch {
                    number: *number,
                    notice: notice.clone(),
                };
                told.push(StreamedEvent { at, what });
            }
            !is_due
        });
        told.sort_by_key(|told| told.at);
        self.told = self.told.max(reached);
        Ok((told, self.told))
    }

    /// Returns the position up to which everything was delivered.
    pub fn told(&self) -> EventPosition {
        self.told
    }

    /// Waits until there may be something to take. Given up, it misses nothing.
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

/// Takes out the watchers that have fired; returns how many.
fn gather(
    watchers: &mut Vec<(u32, Watcher)>,
    fired: &mut Vec<(u32, Notice)>,
    mut look: impl FnMut(&mut Watcher) -> Poll<Option<Notice>>,
) -> usize {
    let before = watchers.len();
    watchers.retain_mut(|(number, watcher)| match look(watcher) {
        Poll::Pending => true,
        Poll::Ready(notice) => {
            // None: the stream ends as well, with a reason.
            fired.extend(notice.map(|notice| (*number, notice)));
            false
        }
    });
    before - watchers.len()
}

/// The state at the position at which a stream begins, and the watches that it begins with.
pub struct StreamLook<'a> {
    store: &'a Store,
    notifier: &'a Arc<Notifier>,
    begin: StreamBegin,
    watchers: Vec<(u32, Watcher)>,
    fired: Vec<(u32, Notice)>,
}

impl StreamLook<'_> {
    /// The state.
    pub fn store(&self) -> &Store {
        self.store
    }

    /// Returns how the stream begins.
    pub fn begin(&self) -> StreamBegin {
        self.begin
    }

    /// Arms a watch for one notice, with a number. The notice is sent if `caller` may read the znode then.
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

    /// Delivers the notice of a watch that has missed a change, in place of arming it.
    pub fn missed(&mut self, number: u32, notice: Notice) {
        self.fired.push((number, notice));
    }

    /// The position at which the stream begins.
    pub fn zxid(&self) -> Zxid {
        self.store.zxid()
    }
}
