//! `SUBSCRIBE` and `PSUBSCRIBE` on the channels by which Redisson and Spring Integration wake waiters. Every end of a hold is a message,
//! whatever has ended it, at every node: so a waiter is also woken by the release of a client of HTTP or of ZooKeeper, and `PUBLISH` has nothing
//! to do. There are no other channels.
//!
//! One task of the node reads the events of locks, from the first subscription on, and hands the ends of holds to the subscribed connections.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use lock_node::{EventPosition, FeedEvent, FeedEventKind, MAX_FEED_EVENTS, Node, SessionEvent};
use tokio::sync::{broadcast, watch};
use znode_store::{LockName, Right};

use crate::keys::{Failure, Keys};
use crate::name;
use crate::reentrant;
use crate::reply::Reply;

/// Maximum number of channels and patterns of a connection. Redisson puts five on one, and Spring one.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 64;

/// Number of ends of holds that a connection may be behind. It then learns that it has missed some.
const BACKLOG: usize = 1_024;

/// Time between two reads of the events while all places of subscribers of the node's feed are taken.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// End of the name of a channel of Spring Integration. The registry `R` with the lock `k` has the key `R:k`, and the channel `R-channel:R:k`;
/// before its version 6 it has one channel `R-channel`.
const REGISTRY_SUFFIX: &[u8] = b"-channel";

/// End of the pattern by which Spring Integration subscribes to all channels of a registry.
const PATTERN_SUFFIX: &[u8] = b"-channel:*";

/// Message of Redisson's channels.
const REDISSON_MESSAGE: &[u8] = b"0";

/// News for subscribed connections.
#[derive(Debug, Clone)]
pub(crate) enum Wake {
    /// A hold of the lock has ended.
    Ended(LockName),
    /// Some ends are missing.
    Missed,
}

/// Ends of holds, from the node to the connections.
pub(crate) struct Wakes {
    sender: broadcast::Sender<Wake>,
    /// Position after which events are read; `None` before the first subscription.
    begin: watch::Sender<Option<EventPosition>>,
}

impl Wakes {
    pub fn new() -> Self {
        Self {
            sender: broadcast::Sender::new(BACKLOG),
            begin: watch::Sender::new(None),
        }
    }

    /// Subscribes to all ends of holds from now on.
    fn subscribe(&self, node: &Node) -> broadcast::Receiver<Wake> {
        let receiver = self.sender.subscribe();
        self.begin.send_if_modified(|begin| {
            let is_first = begin.is_none();
            if is_first {
                *begin = Some(EventPosition::all_of(node.read_facts(|store| store.zxid())));
            }
            is_first
        });
        receiver
    }

    /// Hands the ends of holds to the subscribers. Never returns.
    pub async fn follow(&self, node: &Node) {
        let mut begin = self.begin.subscribe();
        let begun = begin.wait_for(Option::is_some).await.map(|begin| *begin);
        let mut position = begun
            .expect("the sender lives as long as this")
            .expect("waited for it");
        let mut changes = None;
        loop {
            let is_end = |event: &FeedEvent| ended_lock(event).is_some();
            let page = node.feed_events(Some(position), MAX_FEED_EVENTS, is_end, |store, page| {
                position = EventPosition::all_of(store.zxid());
                page
            });
            // Nobody may be subscribed any more.
            if page.more {
                let _ = self.sender.send(Wake::Missed);
            }
            for event in &page.latest {
                if let Some(lock) = ended_lock(event) {
                    let _ = self.sender.send(Wake::Ended(lock.clone()));
                }
            }
            if changes.is_none() {
                // An event before this is read in the next round.
                changes = node.subscribe_feed().ok();
                tokio::time::sleep(POLL_INTERVAL).await;
            } else if let Some(feed) = &mut changes
                && feed.changed().await.is_err()
            {
                changes = None;
            }
        }
    }
}

/// Returns the lock of which the event ends a hold.
fn ended_lock(event: &FeedEvent) -> Option<&LockName> {
    match &event.what {
        FeedEventKind::ToSession {
            event: SessionEvent::Lost { hold, .. },
            ..
        } => Some(&hold.lock),
        _ => None,
    }
}

/// Subscriptions of a connection.
#[derive(Default)]
pub(crate) struct Subscriptions {
    /// Channels of Redisson, each of one lock.
    locks: BTreeSet<Bytes>,
    /// Channels of registries of Spring Integration, without their end.
    registries: BTreeSet<Bytes>,
    /// The same of patterns.
    patterns: BTreeSet<Bytes>,
    receiver: Option<broadcast::Receiver<Wake>>,
}

/// Command about subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscribing {
    /// True for `SUBSCRIBE`, false for `UNSUBSCRIBE`.
    pub adds: bool,
    /// True for patterns.
    pub to_patterns: bool,
}

impl Subscribing {
    pub fn named(name: &str) -> Option<Self> {
        let (adds, to_patterns) = match name {
            "SUBSCRIBE" => (true, false),
            "UNSUBSCRIBE" => (false, false),
            "PSUBSCRIBE" => (true, true),
            "PUNSUBSCRIBE" => (false, true),
            _ => return None,
        };
        Some(Self { adds, to_patterns })
    }

    fn word(self) -> &'static str {
        match (self.adds, self.to_patterns) {
            (true, false) => "subscribe",
            (false, false) => "unsubscribe",
            (true, true) => "psubscribe",
            (false, true) => "punsubscribe",
        }
    }
}

/// Set of subscriptions that a channel belongs to.
#[derive(Debug, Clone, Copy)]
enum Place {
    Locks,
    Registries,
    Patterns,
}

/// Returns where a channel or a pattern belongs, and what is stored there: a copy, because the bytes that have arrived are shared by other
/// commands.
fn place(channel: &[u8], how: Subscribing, keys: &Keys<'_>) -> Result<(Place, Bytes), Failure> {
    let (place, suffix) = match how.to_patterns {
        true => (Place::Patterns, PATTERN_SUFFIX),
        false => (Place::Registries, REGISTRY_SUFFIX),
    };
    let of_lock = reentrant::lock_of_channel(channel).filter(|key| reentrant::channel_of(key) == channel);
    if let Some(key) = of_lock.filter(|_| !how.to_patterns) {
        keys.lock(key)?;
        return Ok((Place::Locks, Bytes::copy_from_slice(channel)));
    }
    let registry = channel.strip_suffix(suffix).ok_or_else(|| {
        Failure::error(
            "ERR there are no channels but those by which Redisson and Spring Integration wait for locks",
        )
    })?;
    keys.lock(registry)?;
    Ok((place, Bytes::copy_from_slice(registry)))
}

impl Subscriptions {
    /// Returns whether there is one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.locks.len() + self.registries.len() + self.patterns.len()
    }

    /// Executes a command. Returns the reply for each channel.
    pub fn change(
        &mut self,
        how: Subscribing,
        channels: &[Bytes],
        wakes: &Wakes,
        keys: &Keys<'_>,
    ) -> Result<Vec<Reply>, Failure> {
        let all: Vec<_> = match channels.is_empty() && !how.adds {
            true => self.of(how),
            false => channels.to_vec(),
        };
        // A refused command changes nothing.
        let places: Result<Vec<_>, Failure> = all.iter().map(|channel| place(channel, how, keys)).collect();
        let places = places?;
        if how.adds && places.is_empty() {
            return Err(Failure::Error(format!(
                "ERR wrong number of arguments for '{}' command",
                how.word()
            )));
        }
        if how.adds && self.len() + places.len() > MAX_SUBSCRIPTIONS {
            return Err(Failure::Error(format!(
                "ERR a connection has at most {MAX_SUBSCRIPTIONS} subscriptions"
            )));
        }
        let mut replies = Vec::with_capacity(all.len().max(1));
        for (channel, (place, member)) in all.into_iter().zip(places) {
            match how.adds {
                true => self.set(place).insert(member),
                false => self.set(place).remove(&member),
            };
            replies.push(self.reply(how, Reply::Bulk(channel)));
        }
        if replies.is_empty() {
            replies.push(self.reply(how, Reply::Null));
        }
        match self.is_empty() {
            true => self.receiver = None,
            false => {
                self.receiver.get_or_insert_with(|| wakes.subscribe(keys.node));
            }
        }
        Ok(replies)
    }

    fn reply(&self, how: Subscribing, channel: Reply) -> Reply {
        Reply::Push(vec![Reply::text(how.word()), channel, Reply::count(self.len())])
    }

    /// Returns all channels, or all patterns.
    fn of(&self, how: Subscribing) -> Vec<Bytes> {
        let named = |registry: &Bytes, suffix: &[u8]| Bytes::from([registry.as_ref(), suffix].concat());
        match how.to_patterns {
            true => {
                let patterns = self.patterns.iter();
                patterns.map(|registry| named(registry, PATTERN_SUFFIX)).collect()
            }
            false => {
                let registries = self
                    .registries
                    .iter()
                    .map(|registry| named(registry, REGISTRY_SUFFIX));
                self.locks.iter().cloned().chain(registries).collect()
            }
        }
    }

    fn set(&mut self, place: Place) -> &mut BTreeSet<Bytes> {
        match place {
            Place::Locks => &mut self.locks,
            Place::Registries => &mut self.registries,
            Place::Patterns => &mut self.patterns,
        }
    }

    /// Waits for news. Without a subscription it never completes.
    pub async fn next(&mut self) -> Wake {
        match &mut self.receiver {
            None => std::future::pending().await,
            Some(receiver) => match receiver.recv().await {
                Ok(wake) => wake,
                Err(broadcast::error::RecvError::Lagged(_)) => Wake::Missed,
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            },
        }
    }

    /// Returns the messages for news: only about locks that the caller may see.
    pub fn messages(&self, wake: &Wake, keys: &Keys<'_>) -> Vec<Reply> {
        match wake {
            // Spring looks again by itself; its messages name the lock.
            Wake::Missed => self.locks.iter().map(redisson_message).collect(),
            Wake::Ended(lock) => {
                let Some(key) = name::key_of(keys.prefix, lock).filter(|_| keys.sees(lock)) else {
                    return Vec::new();
                };
                let mut messages = Vec::new();
                if let Some(channel) = self.locks.get(&reentrant::channel_of(&key)) {
                    messages.push(redisson_message(channel));
                }
                let has_key = |registry: &&Bytes| {
                    key.strip_prefix(registry.as_ref())
                        .is_some_and(|rest| rest.starts_with(b":"))
                };
                let body = || Reply::Bulk(Bytes::copy_from_slice(&key));
                for registry in self.registries.iter().filter(has_key) {
                    let channel = [registry.as_ref(), REGISTRY_SUFFIX].concat();
                    messages.push(message(channel.into(), body()));
                }
                for registry in self.patterns.iter().filter(has_key) {
                    let pattern = [registry.as_ref(), PATTERN_SUFFIX].concat();
                    let channel = [registry.as_ref(), REGISTRY_SUFFIX, b":", key.as_slice()].concat();
                    messages.push(Reply::Push(vec![
                        Reply::text("pmessage"),
                        Reply::Bulk(pattern.into()),
                        Reply::Bulk(channel.into()),
                        body(),
                    ]));
                }
                messages
            }
        }
    }
}

fn redisson_message(channel: &Bytes) -> Reply {
    message(channel.clone(), Reply::Bulk(Bytes::from_static(REDISSON_MESSAGE)))
}

fn message(channel: Bytes, body: Reply) -> Reply {
    Reply::Push(vec![Reply::text("message"), Reply::Bulk(channel), body])
}

impl Keys<'_> {
    /// Returns whether the caller may see the lock.
    fn sees(&self, lock: &LockName) -> bool {
        self.node.read_facts(|store| {
            let view = store.seen_by(self.caller);
            let allowed = view.may(Right::Lock, lock.znode());
            allowed.or_else(|_| view.may(Right::Read, lock.znode())).is_ok()
        })
    }
}
