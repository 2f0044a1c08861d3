//! A panic in any task of a node ends the node. A task that is gone is missed by nobody: its queue fills, its callers
//! wait, and a node that lives on without its log, its deadlines or its replication is worse than one that is down,
//! because nobody takes its place. So the panic is told to [`crate::Node::failed`], and whoever runs the node stops it.
//!
//! Nothing here decides what a program does with the panic itself: the server ends its process at once, before anything
//! is unwound (`lockgate serve`); a program that embeds a node may do otherwise.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::peers::Gate;

/// Ends the node if the code that holds it panics. Nothing happens when it is dropped otherwise, as when a task is
/// cancelled.
pub(crate) struct Alarm {
    gate: Arc<Gate>,
    what: &'static str,
}

impl Alarm {
    /// `what` is who panics, for people.
    pub fn new(gate: &Arc<Gate>, what: &'static str) -> Self {
        let gate = gate.clone();
        Self { gate, what }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What it said is in the report of the panic itself.
            self.gate.fail(format!("{} has panicked", self.what));
        }
    }
}

/// The tasks that a node consists of.
pub(crate) struct Tasks {
    gate: Arc<Gate>,
    tasks: TaskTracker,
}

impl Tasks {
    /// None yet. A panic of one ends the node of `gate`.
    pub fn new(gate: Arc<Gate>, tasks: TaskTracker) -> Self {
        Self { gate, tasks }
    }

    /// Starts a task. A panic names it by its function.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&self, task: F) {
        let alarm = Alarm::new(&self.gate, std::any::type_name::<F>());
        self.tasks.spawn(async move {
            let _alarm = alarm;
            task.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::sync::watch;

    use super::*;
    use crate::types::DiskId;

    async fn careless() {
        tokio::task::yield_now().await;
        panic!("as a test wants it");
    }

    #[tokio::test]
    async fn a_panic_is_the_nodes_failure_and_names_the_task() {
        let failure = watch::Sender::new(None);
        let gate = Gate::new(
            1,
            "test".into(),
            DiskId([1; 16]),
            None,
            BTreeMap::new(),
            failure.clone(),
        );
        let gate = Arc::new(gate);
        let tracker = TaskTracker::new();
        let tasks = Tasks::new(gate.clone(), tracker.clone());
        tasks.spawn(async {});
        tasks.spawn(std::future::pending());
        let cancelled = tokio::spawn(async move {
            let _alarm = Alarm::new(&gate, "a task");
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
