//! Metrics of the state and of the work in flight. The state has znodes, sessions, locks and watches, each with its limit. Every node has the whole
//! state, so its metrics are equal on all nodes and must not be summed.

use std::fmt;

use znode_store::{LockCounts, NamespaceQuota, NamespaceView};

use crate::node::Node;
use instruments::text_format::Sheet;
use raft_node::status::ClusterStatus;

/// Number of locks that are counted before the state is unlocked for a moment, because no command is applied meanwhile.
const LOCKS_AT_ONCE: usize = 2_048;

/// Maximum number of namespaces with metrics of their own, the first ones by name. Each is up to fourteen series at every node, and a monitoring
/// system takes some thousands of each target.
pub const MAX_NAMESPACES_MEASURED: usize = 256;

pub(super) fn write(sheet: &mut Sheet<'_>, node: &Node, status: &ClusterStatus) -> fmt::Result {
    let (znodes, sessions, locks, limits, is_secured) = node.read(|store| {
        let (znodes, sessions) = (store.node_count(), store.session_count());
        (
            znodes,
            sessions,
            store.lock_counts(),
            store.limits(),
            store.is_secured(),
        )
    });
    sheet.gauge("znodes", "Znodes, including the root", znodes)?;
    let help = "Last position of the state that this node applied";
    sheet.gauge("applied_zxid", help, status.applied_zxid)?;
    sheet.gauge("sessions", "Live sessions", sessions)?;
    let help = "Limit on the number of sessions";
    sheet.gauge("sessions_limit", help, limits.sessions)?;
    let help = "Whether the cluster is secured (1) or open to all callers (0)";
    sheet.gauge("secured", help, u64::from(is_secured))?;
    sheet.gauge("locks", "Locks with holders or waiters", locks.locks)?;
    sheet.gauge("lock_holders", "Holders of locks", locks.holders)?;
    sheet.gauge("lock_waiters", "Waiters for locks", locks.waiters)?;
    below_prefixes(sheet, node)?;
    namespaces(sheet, node)?;
    let watches = node.watch_counts();
    sheet.gauge("watches", "Watches of the clients of this node", watches.watches)?;
    let help = "Limit on the number of watches of this node";
    sheet.gauge("watches_limit", help, node.config().watches.limits.per_node)?;
    session_events(sheet, node)?;
    admission(sheet, node)
}

/// Writes usage, quotas and refusals of namespaces.
fn namespaces(sheet: &mut Sheet<'_>, node: &Node) -> fmt::Result {
    let views: Vec<NamespaceView> =
        node.read(|store| store.namespaces().take(MAX_NAMESPACES_MEASURED).collect());
    let each = |of: &dyn Fn(&NamespaceView, NamespaceQuota) -> Option<u64>| {
        let mut samples = Vec::new();
        for view in &views {
            let name = view.namespace.as_str();
            let with =
                |quota: NamespaceQuota| Some(([("namespace", name), ("of", quota.word())], of(view, quota)?));
            samples.extend(NamespaceQuota::ALL.into_iter().filter_map(with));
        }
        samples
    };
    let help = "Amount that a namespace with quotas uses";
    sheet.gauges(
        "namespace_amount",
        help,
        each(&|view, quota| view.usage.of(quota)),
    )?;
    let help = "Quota of a namespace";
    sheet.gauges(
        "namespace_quota",
        help,
        each(&|view, quota| view.quotas.of(quota)),
    )?;
    let help = "Requests of this node's clients that a quota of a namespace refused";
    let refused = each(&|view, quota| Some(node.refused_by_quota(&view.namespace, quota)));
    sheet.counters("namespace_refused", help, refused)
}

fn below_prefixes(sheet: &mut Sheet<'_>, node: &Node) -> fmt::Result {
    let counted: Vec<(&str, LockCounts)> = node
        .observers()
        .metrics
        .lock_prefixes()
        .map(|prefix| (prefix, count_below(node, prefix)))
        .collect();
    let each = |of: fn(&LockCounts) -> usize| {
        let counted = counted.iter();
        counted.map(move |(prefix, counts)| ([("prefix", *prefix)], of(counts)))
    };
    let help = "Locks below a configured prefix with holders or waiters";
    sheet.gauges("lock_prefix_locks", help, each(|counts| counts.locks))?;
    let help = "Holders of locks below a configured prefix";
    sheet.gauges("lock_prefix_holders", help, each(|counts| counts.holders))?;
    let help = "Waiters for locks below a configured prefix";
    sheet.gauges("lock_prefix_waiters", help, each(|counts| counts.waiters))
}

/// Counts the locks below a prefix. It unlocks the state between portions, so the sum may not be the count at any single moment.
fn count_below(node: &Node, prefix: &str) -> LockCounts {
    let mut sum = LockCounts::default();
    let mut after = None;
    loop {
        let (counts, last) = node.read(|store| {
            let after = after.as_ref().map(|lock: &znode_store::LockName| lock.as_str());
            store.lock_counts_below(prefix, after, LOCKS_AT_ONCE)
        });
        sum.locks += counts.locks;
        sum.holders += counts.holders;
        sum.waiters += counts.waiters;
        if last.is_none() {
            return sum;
        }
        after = last;
    }
}

fn session_events(sheet: &mut Sheet<'_>, node: &Node) -> fmt::Result {
    let counts = node.session_event_counts();
    let help = "Open streams of session events at this node";
    sheet.gauge("event_streams", help, counts.streams)?;
    let help = "Session events stored for streams that resume";
    sheet.gauge("event_backlog", help, counts.kept)?;
    let help = "Size of the stored session events, in bytes";
    sheet.gauge("event_backlog_bytes", help, counts.kept_bytes)?;
    sheet.counter("events_told", "Session events that were delivered", counts.told)?;
    let help =
        "Streams that began with the current state because the requested events were not stored any more";
    sheet.counter("event_resets", help, counts.resets)
}

fn admission(sheet: &mut Sheet<'_>, node: &Node) -> fmt::Result {
    let counts = node.admission_counts();
    let help = "Proposals in flight: new work, and work that keeps or releases something";
    let outstanding = [("new", counts.new), ("keep", counts.kept)];
    sheet.gauges(
        "proposals",
        help,
        outstanding.map(|(work, count)| ([("work", work)], count)),
    )?;
    sheet.gauge(
        "proposals_bytes",
        "Size of the proposals in flight, in bytes",
        counts.bytes,
    )?;
    let help = "Current limit of new proposals in flight, which is lower while proposals take too long";
    sheet.gauge("proposals_limit", help, counts.limit)?;
    let help = "Requests rejected because the limit of proposals in flight was reached";
    let [new, keep] = counts.refused;
    let refused = [("new", new), ("keep", keep)];
    sheet.counters(
        "proposals_refused",
        help,
        refused.map(|(work, count)| ([("work", work)], count)),
    )?;
    let help = "Session openings rejected by the rate limit";
    sheet.counter("session_openings_refused", help, counts.openings_refused)?;
    let help = "Answers to refused and to long requests, and large writes, that were delayed because their caller had many of them";
    sheet.counter("answers_delayed", help, counts.answers_delayed)
}
