//! The end of a client: closes the sessions that it and its clones have opened, and everything that they still ask for fails at once.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::client::LockClient;
use crate::error::{Error, Loss};
use crate::session_core::Core;

/// Maximum time for closing all sessions: a commit takes milliseconds. Without a majority it is in vain, and the sessions expire.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// The sessions of a client and its clones.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Those that are open; none after the shutdown has begun.
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    shut_down: bool,
    sessions: Vec<Weak<Core>>,
}

impl Sessions {
    /// Adds one; refused after the shutdown.
    pub(crate) fn add(&self, session: &Arc<Core>) -> Result<(), Error> {
        let mut open = self.open.lock();
        if open.shut_down {
            return Err(Error::Stopped);
        }
        open.sessions.retain(|session| session.strong_count() > 0);
        open.sessions.push(Arc::downgrade(session));
        Ok(())
    }

    fn shut_down(&self) -> Vec<Arc<Core>> {
        let mut open = self.open.lock();
        open.shut_down = true;
        let sessions = std::mem::take(&mut open.sessions);
        sessions.iter().filter_map(Weak::upgrade).collect()
    }
}

impl LockClient {
    /// Closes all sessions of this client and its clones, and ends the client. Guards are lost with [`Loss::Stopped`], at once; calls that
    /// are under way, and later ones, fail with [`Error::Stopped`].
    ///
    /// It takes a second at most. A session that could not be closed within that expires.
    pub async fn shut_down(&self) {
        let sessions = self.sessions.shut_down();
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
        self.stopped.cancel();
    }
}

/// Whether a client was shut down; for its requests.
pub(crate) type Stopped = CancellationToken;
