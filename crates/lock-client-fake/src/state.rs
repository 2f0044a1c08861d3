//! State of the cluster: the state machine, and what it has reported. It knows nothing of HTTP.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use znode_store::{
    ContenderEnd, EntryContext, Event, Refusal, Reply, Request, SessionId, Store, ZnodeEvent, Zxid,
};

use crate::documents;

/// Term of the only leader.
pub(crate) const TERM: u64 = 1;

/// Event of a session's stream.
#[derive(Clone)]
pub(crate) struct Notice {
    pub(crate) session: SessionId,
    pub(crate) zxid: Zxid,
    pub(crate) word: &'static str,
    pub(crate) data: Value,
}

/// State with its history, which is as short as a test.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) changes: Vec<(Zxid, ZnodeEvent)>,
    pub(crate) notices: Vec<Notice>,
    /// Ids drawn so far. A fake needs unique ones, not random ones.
    drawn: u64,
}

/// State that connections and the test share.
#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Notifies of every applied command.
    applied: watch::Sender<()>,
}

impl Shared {
    /// Reads the state.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.state.lock())
    }

    /// Applies a command, and notifies all waiting requests.
    pub(crate) fn apply(&self, request: Request) -> Result<Reply, Refusal> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let mut state = self.state.lock();
        let mut events = Vec::new();
        let applied = state
            .store
            .apply(&EntryContext { time_ms, term: TERM }, request, &mut events);
        for event in events {
            state.note(applied.zxid, time_ms, event);
        }
        drop(state);
        self.applied.send_replace(());
        applied.outcome
    }

    /// Returns an id that was never drawn before.
    pub(crate) fn draw(&self) -> u64 {
        let mut state = self.state.lock();
        state.drawn += 1;
        state.drawn
    }

    /// Waits until `look` finds something. Returns `None` at the deadline.
    pub(crate) async fn until<T>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut(&State) -> Option<T>,
    ) -> Option<T> {
        let mut applied = self.applied.subscribe();
        loop {
            if let Some(found) = self.read(&mut look) {
                return Some(found);
            }
            let changed = async { applied.changed().await.expect("the sender lives as long as this") };
            match deadline {
                None => changed.await,
                Some(at) => timeout_at(at, changed).await.ok()?,
            }
        }
    }
}

impl State {
    fn note(&mut self, zxid: Zxid, time_ms: u64, event: Event) {
        let (session, word, data) = match event {
            Event::Znode(change) => return self.changes.push((zxid, change)),
            // The hold continues as another one.
            Event::HoldEnded {
                how: ContenderEnd::Upgraded,
                ..
            } => return,
            Event::HoldEnded { hold, how, by } => (hold.session, "lost", documents::lost(&hold, &how, by)),
            Event::RevokeRequested {
                session,
                lock,
                holder,
                by,
                reason,
            } => {
                let at = documents::time(time_ms);
                let data = json!({ "lock": lock.as_str(), "holder": holder, "by": &*by, "reason": &*reason, "requested_at": at });
                (session, "release_requested", data)
            }
            Event::SessionEnded { session, .. } => (session, "session_ended", json!({})),
            _ => return,
        };
        self.notices.push(Notice {
            session,
            zxid,
            word,
            data,
        });
    }
}
