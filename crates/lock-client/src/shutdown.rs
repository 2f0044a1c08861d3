//! Open sessions of a client and its clones, which the shutdown of the client closes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::error::{Error, Loss};
use crate::session_core::Core;

/// Maximum time for closing all sessions. A commit takes milliseconds; without a majority none succeeds, and the sessions expire.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Sessions of a client and its clones.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    shut_down: bool,
    sessions: Vec<Weak<Core>>,
}

impl Sessions {
    /// Adds a session. Fails after the shutdown has begun.
    pub(crate) fn add(&self, session: &Arc<Core>) -> Result<(), Error> {
        let mut open = self.open.lock();
        if open.shut_down {
            return Err(Error::Stopped);
        }
        open.sessions.retain(|session| session.strong_count() > 0);
        open.sessions.push(Arc::downgrade(session));
        Ok(())
    }

    /// Marks all sessions as lost, and closes them within [`CLOSE_WITHIN`]. Later sessions are refused.
    pub(crate) async fn close_all(&self) {
        let sessions = self.begin_shutdown();
        for session in &sessions {
            session.life.lose(Loss::Stopped);
        }
        let closing = join_all(sessions.iter().map(|session| async move {
            if let Err(error) = session.close().await {
                tracing::debug!(session = session.id, %error, "a session was not closed at the end of its client");
            }
        }));
        if tokio::time::timeout(CLOSE_WITHIN, closing).await.is_err() {
            tracing::warn!("not all sessions could be closed at the end of their client, and they expire");
        }
    }

    fn begin_shutdown(&self) -> Vec<Arc<Core>> {
        let mut open = self.open.lock();
        open.shut_down = true;
        let sessions = std::mem::take(&mut open.sessions);
        sessions.iter().filter_map(Weak::upgrade).collect()
    }
}
