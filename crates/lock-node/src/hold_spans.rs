//! Spans of waiting for a lock and of holding it, for contenders whose acquire was traced. The trace is part of the contender ([`CallerAddress`]),
//! so any leader can collect the span of a hold at its end, whichever node took the request.
//!
//! The leader alone collects them, so that each is collected once. Spans that end between two leaders are lost.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use znode_store::{
    CallerAddress, Command, ContenderEnd, Event, Hold, LeaseChange, LockCommand, MAX_ADDRESS_BYTES, Store,
    TraceContext,
};

use crate::traces::{Collector, Scope, Span, SpanKind, new_span_id};

/// Adds the trace of its request to the contenders that a command makes.
pub(crate) fn mark(command: &mut Command, scope: &Scope) {
    let context = TraceContext {
        trace: u128::from_be_bytes(scope.trace),
        span: u64::from_be_bytes(scope.span),
    };
    let mark = |address: &mut CallerAddress| {
        let traced = address.traced(context);
        if traced.as_str().len() <= MAX_ADDRESS_BYTES {
            *address = traced;
        }
    };
    let Command::Lock(command) = command else { return };
    match command {
        LockCommand::Acquire { wish, .. } | LockCommand::AcquireBounded { wish, .. } => {
            mark(&mut wish.address)
        }
        LockCommand::AcquireMany { wishes, .. } => wishes.iter_mut().for_each(|wish| mark(&mut wish.address)),
        LockCommand::ChangeLease {
            change: LeaseChange::Replace { address, .. },
            ..
        } => mark(address),
        _ => {}
    }
}

/// Collects the spans that end with the events of one command. `store` is the state after it.
pub(crate) fn collect(collector: &dyn Collector, store: &Store, events: &[Event]) {
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::HoldBegan(hold) => {
                // An upgraded contender has waited before.
                let has_held = events[..at].iter().any(|before| {
                    matches!(before, Event::HoldEnded { hold: ended, how: ContenderEnd::Upgraded, .. }
                        if ended.lock == hold.lock && ended.holder == hold.holder)
                });
                if let Some(context) = hold.address.trace()
                    && let Some(came_ms) = store.contender_came_ms(&hold.lock, &hold.holder)
                    && let Some(granted_ms) = hold.since_ms
                    && came_ms < granted_ms
                    && !has_held
                {
                    collector.collect(span("wait", context, hold, came_ms, granted_ms));
                }
            }
            Event::HoldEnded { hold, how, .. } => {
                if let Some(context) = hold.address.trace()
                    && let Some(granted_ms) = hold.since_ms
                {
                    let mut span = span("hold", context, hold, granted_ms, store.time_ms());
                    span.attributes.push(("lockgate.ended", how.word().to_owned()));
                    span.failed = matches!(
                        how,
                        ContenderEnd::SessionExpired
                            | ContenderEnd::Broken { .. }
                            | ContenderEnd::Deleted
                            | ContenderEnd::MaxHold
                    );
                    collector.collect(span);
                }
            }
            _ => {}
        }
    }
}

fn span(name: &'static str, context: TraceContext, hold: &Hold, begin_ms: u64, end_ms: u64) -> Span {
    Span {
        trace: context.trace.to_be_bytes(),
        id: new_span_id(),
        parent: Some(context.span.to_be_bytes()),
        name: Cow::Borrowed(name),
        kind: SpanKind::Internal,
        begin: at(begin_ms),
        end: at(end_ms.max(begin_ms)),
        attributes: vec![
            ("lockgate.lock", hold.lock.to_string()),
            ("lockgate.mode", hold.mode.to_string()),
            ("lockgate.holder", hold.holder.to_string()),
            ("lockgate.session", hold.session.to_string()),
            ("lockgate.fencing_token", hold.fencing_token.0.to_string()),
        ],
        failed: false,
    }
}

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}
