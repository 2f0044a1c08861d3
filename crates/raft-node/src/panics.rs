//! Panics: a panic in any task of a node stops the node. Otherwise it would go unnoticed that a task is gone:
//! its queue fills and its callers wait. A node that runs without its log, its deadlines or its replication
//! is worse than one that is down, because no other node replaces it. So the panic is reported to
//! [`crate::RaftNode::failed`], and the program that runs the node stops it.
//!
//! This module does not decide what a program does with the panic itself: the server ends its process at
//! once, before unwinding (`lockgate serve`); a program that embeds a node may react differently.

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// Handle to report that a node has failed; [`crate::RaftNode::failed`] waits for it.
#[derive(Debug, Clone)]
pub struct Failure(watch::Sender<Option<String>>);

impl Failure {
    /// Creates a handle that reports to the receivers of `sender`.
    pub fn new(sender: watch::Sender<Option<String>>) -> Self {
        Self(sender)
    }

    /// Returns whether a failure was reported.
    #[cfg(test)]
    pub fn is_reported(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Reports that the node has failed. The first reason is kept.
    pub fn report(&self, reason: String) {
        self.0.send_if_modified(|failure| match failure {
            Some(_) => false,
            None => {
                *failure = Some(reason);
                true
            }
        });
    }
}

/// Guard that reports a panic of the code that owns it. Dropping it without a panic has no effect, for
/// example when a task is cancelled.
pub struct PanicGuard {
    failure: Failure,
    what: &'static str,
}

impl PanicGuard {
    /// Creates a guard. `what` names the code, for operators.
    pub fn new(failure: &Failure, what: &'static str) -> Self {
        let failure = failure.clone();
        Self { failure, what }
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The message is in the report of the panic itself.
            self.failure.report(format!("{} has panicked", self.what));
        }
    }
}

/// Tasks of a node.
pub struct Tasks {
    failure: Failure,
    tasks: TaskTracker,
}

impl Tasks {
    /// Creates an empty set. A panic of a task is reported to `failure`.
    pub fn new(failure: Failure, tasks: TaskTracker) -> Self {
        Self { failure, tasks }
    }

    /// Starts a task. The report of a panic names it by its function.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&self, task: F) {
        let guard = PanicGuard::new(&self.failure, std::any::type_name::<F>());
        self.tasks.spawn(async move {
            let _guard = guard;
            task.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn careless() {
        tokio::task::yield_now().await;
        panic!("as a test wants it");
    }

    #[tokio::test]
    async fn panic_fails_the_node_and_names_the_task() {
        let failure = watch::Sender::new(None);
        let handle = Failure::new(failure.clone());
        let tracker = TaskTracker::new();
        let tasks = Tasks::new(handle.clone(), tracker.clone());
        tasks.spawn(async {});
        tasks.spawn(std::future::pending());
        let cancelled = tokio::spawn(async move {
            let _guard = PanicGuard::new(&handle, "a task");
            std::future::pending::<()>().await;
        });
        cancelled.abort();
        assert!(cancelled.await.unwrap_err().is_cancelled());
        assert_eq!(*failure.borrow(), None);

        tasks.spawn(careless());
        let mut failed = failure.subscribe();
        let reason = failed.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        assert!(
            reason.contains("careless") && reason.ends_with("has panicked"),
            "{reason}"
        );
    }
}
