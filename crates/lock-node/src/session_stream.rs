//! The events of one session, followed from a position on: what happened to its locks, and the watches of whoever follows, in
//! one order. How they travel to a client, and whether its session lives, is the front end's matter.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use znode_store::{Identities, SessionFate, SessionId, Store, ZPath, Zxid};
use znode_watch::{Notice, TooManyWatches, WatchKind};

use crate::replica::Replica;
use observers::hub::session_events::{EventPosition, Following, SessionEvent, StreamLost, TooManyStreams};
use observers::hub::{Hub, Watcher};
use raft_node::Unavailable;

/// So many events are taken at a time: nothing is applied while they are.
const TAKEN_AT_ONCE: usize = 256;

/// How a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamBegin {
    /// With the present state: whoever follows knows nothing yet.
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

/// What is told to whoever follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Where it stands: who comes back after this has been told all up to here, and nothing beyond.
    pub at: EventPosition,
    /// What happened.
    pub what: ToldWhat,
}

/// Of a session, or of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToldWhat {
    /// Something happened to the session.
    Session {
        /// When, in milliseconds since 1970, by the log.
        time_ms: u64,
        /// What.
        event: SessionEvent,
    },
    /// A watch has fired, and is gone.
    Watch {
        /// Which.
        number: u32,
        /// What it saw.
        notice: Notice,
    },
}

/// A session's events from a position on. They end when it is dropped.
pub struct SessionStream {
    replica: Arc<Replica>,
    following: Following,
    watchers: Vec<(u32, Watcher)>,
    /// Watches that have fired and were not told yet.
    fired: Vec<(u32, Notice)>,
    /// Everything up to here was told.
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
        let events = &replica.hub.sessions;
        let begin = match after {
            None => StreamBegin::New,
            Some(after) if after.zxid() <= store.zxid() && events.knows_all_after(after) => {
                StreamBegin::Resumed
            }
            Some(_) => StreamBegin::Reset,
        };
        let rest_is_known =
            begin == StreamBegin::Resumed && after.is_some_and(|after| events.has_any_after(session, after));
        match store.session_fate(session) {
            SessionFate::Live => {}
            // It learns how it ended.
            SessionFate::Ended if rest_is_known => {}
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
            hub: &replica.hub,
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

    /// What has happened since it was asked last, in order, and up to where everything is told with it. Part of it, if there is
    /// much: then [`SessionStream::changed`] is ready at once.
    pub fn take(&mut self) -> Result<(Vec<Told>, EventPosition), StreamLost> {
        let replica = self.replica.clone();
        // With the state locked no command is half told.
        let store = replica.store.read();
        let (taken, more) = self.following.take(store.zxid(), TAKEN_AT_ONCE)?;
        gather(&mut self.watchers, &mut self.fired, Watcher::try_fired);
        let reached = match taken.last() {
            Some(last) if more => last.at,
            _ => EventPosition::all_of(store.zxid()),
        };
        let mut told: Vec<Told> = taken
            .into_iter()
            .map(|kept| Told {
                at: kept.at,
                what: ToldWhat::Session {
                    time_ms: kept.time_ms,
                    event: kept.event,
                },
            })
            .collect();
        let before = self.told;
        self.fired.retain(|(number, notice)| {
            // A change from before the beginning is told late, and moves nobody back.
            let at = EventPosition::of_watch(notice.zxid, *number).max(before);
            let is_due = at <= reached;
            if is_due {
                let what = ToldWhat::Watch {
                    number: *number,
                    notice: notice.clone(),
                };
                told.push(Told { at, what });
            }
            !is_due
        });
        told.sort_by_key(|told| told.at);
        self.told = self.told.max(reached);
        Ok((told, self.told))
    }

    /// Up to where everything was told.
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
            // None: whoever follows is let go as well, and told why.
            fired.extend(notice.map(|notice| (*number, notice)));
            false
        }
    });
    before - watchers.len()
}

/// The state at the position at which a stream begins, and the watches that it begins with.
pub struct StreamLook<'a> {
    store: &'a Store,
    hub: &'a Arc<Hub>,
    begin: StreamBegin,
    watchers: Vec<(u32, Watcher)>,
    fired: Vec<(u32, Notice)>,
}

impl StreamLook<'_> {
    /// The state.
    pub fn store(&self) -> &Store {
        self.store
    }

    /// How the stream begins.
    pub fn begin(&self) -> StreamBegin {
        self.begin
    }

    /// Arms a watch for one notice under a number of its own. `caller` is who will be told.
    pub fn watch(
        &mut self,
        number: u32,
        path: &ZPath,
        kind: WatchKind,
        caller: Identities,
    ) -> Result<(), TooManyWatches> {
        let watcher = self.hub.watch(path, kind, caller)?;
        self.watchers.push((number, watcher));
        Ok(())
    }

    /// The watch of this number has missed something: it is told at once, and not armed.
    pub fn missed(&mut self, number: u32, notice: Notice) {
        self.fired.push((number, notice));
    }

    /// The position at which the stream begins.
    pub fn zxid(&self) -> Zxid {
        self.store.zxid()
    }
}
