//! Namespaces at this node: the rates of their requests, and the refusals by their quotas. The quotas are in the state; the rates are counted
//! by each node for its own clients, because a count for the whole cluster would be one more command for each request.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;
use znode_store::{
    Command, CreatePath, LOCK_ROOT, LockCommand, NamespaceName, NamespaceQuota, Op, Refusal, Request, Step,
    Store, namespace_of,
};

use super::openings::Bucket;
use super::work::Work;
use raft_log::sync::Mutex;

/// Number of buckets above which the full ones are removed. A full bucket is as good as none.
const MAX_BUCKETS: usize = 1_024;

/// Rates of namespaces, and numbers of refusals by their quotas.
#[derive(Debug, Default)]
pub struct Namespaces(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    buckets: HashMap<NamespaceName, Bucket>,
    refused: HashMap<(NamespaceName, NamespaceQuota), u64>,
}

impl Namespaces {
    /// Takes a token of each namespace that a request changes and that has a rate, or returns the refusal. A request that keeps or releases
    /// something takes none.
    pub fn refusal(&self, store: &Store, request: &Request, now: Instant) -> Option<Refusal> {
        if !store.has_namespaces() || Work::of(request) != Work::New {
            return None;
        }
        let mut named = BTreeSet::new();
        add_named(&request.command, &mut named);
        let rates = named.into_iter().filter_map(|name| {
            let view = store.namespace(name)?;
            Some((view.namespace, view.quotas.requests_per_second?))
        });
        let rates: Vec<(NamespaceName, u32)> = rates.collect();
        let mut state = self.0.lock();
        let too_fast = rates
            .iter()
            .find(|(name, rate)| !state.has_token(name, *rate, now));
        let Some((namespace, rate)) = too_fast else {
            for (name, _) in &rates {
                state.buckets.get_mut(name).expect("it was filled").tokens -= 1.0;
            }
            return None;
        };
        Some(Refusal::NamespaceQuotaExceeded {
            namespace: namespace.clone(),
            quota: NamespaceQuota::RequestsPerSecond,
            limit: u64::from(*rate),
            would_be: u64::from(*rate) + 1,
        })
    }

    /// Counts a refusal if it is one by a quota of a namespace.
    pub fn note(&self, refusal: &Refusal) {
        match refusal {
            Refusal::Multi { refusal, .. } => self.note(refusal),
            Refusal::NamespaceQuotaExceeded { namespace, quota, .. } => {
                let mut state = self.0.lock();
                *state.refused.entry((namespace.clone(), *quota)).or_default() += 1;
            }
            _ => {}
        }
    }

    /// Returns the number of refusals of requests of this node's clients by a quota.
    pub fn refused(&self, namespace: &NamespaceName, quota: NamespaceQuota) -> u64 {
        let state = self.0.lock();
        let count = state.refused.get(&(namespace.clone(), quota));
        count.copied().unwrap_or_default()
    }
}

impl State {
    /// Returns whether the bucket of a namespace has a token. Its burst is the rate of one second.
    fn has_token(&mut self, name: &NamespaceName, rate: u32, now: Instant) -> bool {
        let rate = f64::from(rate);
        if !self.buckets.contains_key(name) {
            if self.buckets.len() >= MAX_BUCKETS {
                // No bucket is below its rate for longer than a second.
                self.buckets.retain(|_, bucket| bucket.age(now).as_secs() == 0);
            }
            self.buckets.insert(name.clone(), Bucket::full(rate, now));
        }
        let bucket = self.buckets.get_mut(name).expect("it was just inserted");
        bucket.fill(now, rate, rate);
        bucket.tokens >= 1.0
    }
}

/// Adds the namespaces that a command names.
fn add_named<'c>(command: &'c Command, named: &mut BTreeSet<&'c str>) {
    match command {
        Command::Write(op)
        | Command::InTurn {
            step: Step::Write(op),
            ..
        } => named.extend(of_op(op)),
        Command::Multi(ops)
        | Command::InTurn {
            step: Step::Multi(ops),
            ..
        } => named.extend(ops.iter().filter_map(of_op)),
        Command::Mirror(steps) => named.extend(steps.iter().filter_map(|step| namespace_of(step.path()))),
        Command::Lock(LockCommand::Acquire { wish, .. } | LockCommand::AcquireBounded { wish, .. }) => {
            named.extend(namespace_of(wish.lock.znode()))
        }
        Command::Lock(LockCommand::AcquireMany { wishes, .. }) => {
            named.extend(wishes.iter().filter_map(|wish| namespace_of(wish.lock.znode())));
        }
        Command::Lock(
            LockCommand::Upgrade { lock, .. }
            | LockCommand::Revoke { lock, .. }
            | LockCommand::ChangeLease { lock, .. },
        ) => named.extend(namespace_of(lock.znode())),
        _ => {}
    }
}

fn of_op(op: &Op) -> Option<&str> {
    match op {
        Op::Create { path, .. } => of_creation(path),
        Op::Delete { path, .. }
        | Op::DeleteRecursive { path }
        | Op::Set { path, .. }
        | Op::SetAcl { path, .. }
        | Op::Check { path, .. } => namespace_of(path),
        Op::Held { lock, .. } => namespace_of(lock.znode()),
    }
}

fn of_creation(path: &CreatePath) -> Option<&str> {
    match path.parent.as_str() {
        "/" | LOCK_ROOT => Some(&path.name),
        _ => namespace_of(&path.parent),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use znode_store::{EntryContext, LockName, Quotas};

    use super::*;

    fn store(rates: &[(&str, u32)]) -> Store {
        let (mut store, entry) = (Store::new(), EntryContext { time_ms: 1, term: 1 });
        for (name, rate) in rates {
            let command = Command::SetQuotas {
                namespace: NamespaceName::parse(name).unwrap(),
                quotas: Some(Quotas {
                    requests_per_second: Some(*rate),
                    ..Quotas::default()
                }),
            };
            let applied = store.apply(&entry, Request::anonymous(command), &mut Vec::new());
            applied.outcome.unwrap();
        }
        store
    }

    fn check(path: &str) -> Op {
        let path = znode_store::ZPath::parse(path).unwrap();
        Op::DeleteRecursive { path }
    }

    fn ask(ops: &[&str]) -> Request {
        Request::anonymous(Command::Multi(ops.iter().map(|path| check(path)).collect()))
    }

    #[test]
    fn rate_is_counted_for_each_namespace_with_a_burst_of_one_second() {
        let (namespaces, mut now) = (Namespaces::default(), Instant::now());
        let store = store(&[("a", 2), ("b", 10)]);
        let refused = |request: &Request, now| namespaces.refusal(&store, request, now);
        let of = |ops: &[&str], now| refused(&ask(ops), now).is_some();
        assert!(!of(&["/a/x", "/locks/a/y"], now), "one token for one namespace");
        assert!(!of(&["/locks/a"], now));
        assert!(of(&["/a"], now));
        // A request that is refused takes no token of another namespace.
        for _ in 0..20 {
            assert!(of(&["/b", "/a"], now));
        }
        for _ in 0..10 {
            assert!(!of(&["/b"], now));
        }
        assert!(of(&["/b"], now));
        assert!(!of(&["/c"], now) && !of(&["/ab"], now), "they have no quotas");
        now += Duration::from_millis(500);
        assert!(!of(&["/a"], now) && of(&["/a"], now));
        now += Duration::from_secs(60);
        assert!(!of(&["/a"], now) && !of(&["/a"], now) && of(&["/a"], now));
        let refusal = refused(&ask(&["/a"]), now).unwrap();
        assert_eq!(
            refusal.to_string(),
            "the quota of namespace a for requests_per_second is 2, and this would make it 3"
        );
    }

    #[test]
    fn releases_take_no_token() {
        let (namespaces, now) = (Namespaces::default(), Instant::now());
        let store = store(&[("a", 1)]);
        let release = Request::anonymous(Command::Lock(LockCommand::Release {
            lock: LockName::parse("a/x").unwrap(),
            holder: "nobody".into(),
        }));
        for _ in 0..10 {
            assert_eq!(namespaces.refusal(&store, &release, now), None);
        }
        assert_eq!(namespaces.refusal(&store, &ask(&["/a"]), now), None);
        assert!(namespaces.refusal(&store, &ask(&["/a"]), now).is_some());
    }

    #[test]
    fn refusals_are_counted_by_namespace_and_quota() {
        let (namespaces, a) = (Namespaces::default(), NamespaceName::parse("a").unwrap());
        let refusal = Refusal::NamespaceQuotaExceeded {
            namespace: a.clone(),
            quota: NamespaceQuota::Locks,
            limit: 1,
            would_be: 2,
        };
        namespaces.note(&refusal);
        namespaces.note(&Refusal::Multi {
            index: 0,
            refusal: refusal.into(),
        });
        namespaces.note(&Refusal::Internal);
        assert_eq!(namespaces.refused(&a, NamespaceQuota::Locks), 2);
        assert_eq!(namespaces.refused(&a, NamespaceQuota::Bytes), 0);
    }
}
