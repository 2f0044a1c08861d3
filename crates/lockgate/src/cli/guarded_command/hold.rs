//! The locks of a command: one, or several that were acquired in one step.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use lock_client::recipes::Leadership;
use lock_client::{Error, LockGuard, LockGuards, Loss, ReleaseRequest};

/// Locks that are held while the command runs.
pub enum Hold {
    /// One lock.
    One(LockGuard),
    /// Several locks, each once.
    Several(LockGuards),
    /// The lock of an election.
    Leadership(Leadership),
}

impl Hold {
    /// Returns the guards in the order of the arguments. There is at least one.
    pub fn guards(&self) -> &[LockGuard] {
        match self {
            Self::One(guard) => std::slice::from_ref(guard),
            Self::Several(guards) => guards.guards(),
            Self::Leadership(leadership) => std::slice::from_ref(leadership.guard()),
        }
    }

    /// Fails unless all locks are surely held at this moment.
    pub fn check(&self) -> Result<(), Error> {
        self.guards().iter().try_for_each(|guard| guard.check().map(drop))
    }

    /// Waits until one of the locks is lost. Returns its name and the reason.
    pub async fn lost(&self) -> (String, Loss) {
        first(self.guards().iter().map(|guard| {
            let lost = guard.lost();
            async move { (guard.lock().to_owned(), lost.await) }
        }))
        .await
    }

    /// Waits until the release of one of the locks is requested.
    pub async fn release_requested(&self) -> ReleaseRequest {
        first(self.guards().iter().map(LockGuard::release_requested)).await
    }

    /// Releases the locks. A leader whose resignation was requested in favour of a waiting candidate hands over to it.
    pub async fn release(self, request: Option<&ReleaseRequest>) -> Result<(), Error> {
        match (self, request) {
            (Self::One(guard), _) => guard.release().await.map(drop),
            (Self::Several(guards), _) => guards.release().await,
            (Self::Leadership(leadership), None) => leadership.resign().await,
            (Self::Leadership(leadership), Some(request)) => {
                match leadership.hand_over(&request.reason).await? {
                    None => Ok(()),
                    Some(leadership) => leadership.resign().await,
                }
            }
        }
    }
}

/// Returns the output of the first future that is ready.
async fn first<F: Future>(futures: impl Iterator<Item = F>) -> F::Output {
    let mut futures: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    poll_fn(|context| {
        for future in &mut futures {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}
