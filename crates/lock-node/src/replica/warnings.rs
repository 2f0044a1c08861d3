//! Log lines about soft quotas: one in a cluster, by the leader.

use std::fmt::{Debug, Write};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};
use znode_store::{Acl, CreateMode, CreatePath, Op, Request};

use super::*;
use observers::ObserversConfig;
use raft_log::sync::Mutex;
use raft_node::codec;

/// Keeps the warnings, each as its fields.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    // There are no spans here.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").expect("a string takes everything");
    }
}

/// One entry that creates all of these, in term 1.
fn create_all(paths: &[(&str, &str)]) -> Proposal {
    let envelope = |(path, data): &(&str, &str)| {
        let op = Op::Create {
            path: CreatePath::parse(path, false).unwrap(),
            data: (*data).into(),
            acl: Acl::open(),
            mode: CreateMode::Persistent,
            parents: true,
        };
        let origin = Origin { node: 2, boot: 7 };
        let envelope = Envelope::new(origin, 1, Request::anonymous(Command::Write(op)));
        codec::encode(&envelope).into()
    };
    let batch = CommandBatch {
        time_ms: 1,
        envelopes: paths.iter().map(envelope).collect(),
    };
    Proposal {
        term: 1,
        commands: batch.encode(),
    }
}

#[test]
fn a_soft_quota_that_is_passed_is_warned_of_by_the_leader_alone() {
    let entry = create_all(&[
        ("/a", ""),
        ("/zookeeper/quota/a/zookeeper_limits", "count=2,bytes=-1"),
        ("/zookeeper/quota/a/zookeeper_stats", ""),
        ("/a/within", ""),
        ("/a/beyond", ""),
        ("/a/still-beyond", ""),
    ]);
    let warnings_of = |leads| {
        let origin = Origin { node: 1, boot: 7 };
        let observers = Observers::new(&ObserversConfig::default(), 1);
        let replica = Replica::new(origin, observers);
        if leads {
            replica
                .sessions
                .lead(1, Instant::now(), std::time::Duration::ZERO, []);
        }
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), || {
            replica
                .apply_commands(LogPosition { index: 1, term: 1 }, &entry)
                .unwrap();
        });
        assert_eq!(replica.store.read().node_count(), Store::new().node_count() + 7);
        warnings.0.lock().clone()
    };
    assert_eq!(
        warnings_of(true),
        ["message=a soft quota was passed path=\"/a\" of=znodes limit=2 used=3 "]
    );
    assert_eq!(warnings_of(false), [""; 0]);
}
