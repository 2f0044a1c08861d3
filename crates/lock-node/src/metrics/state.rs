//! Metrics of the state: znodes, sessions, locks and watches, each with its limit; and of the work in flight. Every node has all of the
//! state, so these are equal everywhere and must not be summed.

use std::fmt;

use znode_store::LockCounts;

use crate::node::Node;
use instruments::text_format::Sheet;
use raft_node::status::ClusterStatus;

/// Number of locks that are counted before the state is unlocked for a moment: nothing is applied meanwhile.
const LOCKS_AT_ONCE: usize = 2_048;

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
    sheet.gauge("znodes", "Znodes that there are, the root among them", znodes)?;
    let help = "The last position that was applied here";
    sheet.gauge("applied_zxid", help, status.applied_zxid)?;
    sheet.gauge("sessions", "Sessions that live", sessions)?;
    let help = "How many sessions there may be";
    sheet.gauge("sessions_limit", help, limits.sessions)?;
    let help = "Whether the cluster is secured (1), or everybody may do everything (0)";
    sheet.gauge("secured", help, u64::from(is_secured))?;
    sheet.gauge("locks", "Locks that are held or waited for", locks.locks)?;
    sheet.gauge("lock_holders", "How many hold a lock", locks.holders)?;
    sheet.gauge("lock_waiters", "How many wait for a lock", locks.waiters)?;
    below_prefixes(sheet, node)?;
    let watches = node.watch_counts();
    sheet.gauge(
        "watches",
        "Watches that clients of this node have",
        watches.watches,
    )?;
    let help = "How many watches they may have";
    sheet.gauge("watches_limit", help, node.config().watches.limits.per_node)?;
    session_events(sheet, node)?;
    admission(sheet, node)
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
    let help = "Locks below a configured prefix that are held or waited for";
    sheet.gauges("lock_prefix_locks", help, each(|counts| counts.locks))?;
    let help = "How many hold a lock below a configured prefix";
    sheet.gauges("lock_prefix_holders", help, each(|counts| counts.holders))?;
    let help = "How many wait for a lock below a configured prefix";
    sheet.gauges("lock_prefix_waiters", help, each(|counts| counts.waiters))
}

/// Counts in portions, with other work in between, so the sum may be of no single moment.
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
    let help = "Streams of sessions' events that are open at this node";
    sheet.gauge("event_streams", help, counts.streams)?;
    let help = "Session events that are stored for streams that resume";
    sheet.gauge("event_backlog", help, counts.kept)?;
    let help = "What these take, in bytes";
    sheet.gauge("event_backlog_bytes", help, counts.kept_bytes)?;
    sheet.counter("events_told", "Session events that were delivered", counts.told)?;
    let help =
        "How often a stream began with the present state because what it asked for was not known any more";
    sheet.counter("event_resets", help, counts.resets)
}

fn admission(sheet: &mut Sheet<'_>, node: &Node) -> fmt::Result {
    let counts = node.admission_counts();
    let help = "Proposals in flight: those that want something new, and those that keep or release something";
    let outstanding = [("new", counts.new), ("keep", counts.kept)];
    sheet.gauges(
        "proposals",
        help,
        outstanding.map(|(work, count)| ([("work", work)], count)),
    )?;
    sheet.gauge("proposals_bytes", "What these have, in bytes", counts.bytes)?;
    let help = "How many new ones there may be: fewer while they take too long";
    sheet.gauge("proposals_limit", help, counts.limit)?;
    let help = "Requests that were refused because there were as many as there may be";
    let [new, keep] = counts.refused;
    let refused = [("new", new), ("keep", keep)];
    sheet.counters(
        "proposals_refused",
        help,
        refused.map(|(work, count)| ([("work", work)], count)),
    )?;
    let help = "Sessions that were not opened because too many were";
    sheet.counter("session_openings_refused", help, counts.openings_refused)
}
