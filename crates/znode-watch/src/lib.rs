//! ZooKeeper's watches as one table, without a network: decides which watchers a change of the tree
//! notifies.
//!
//! A Lockgate node applies commands to its [`Store`](znode_store::Store), and each command produces
//! [events](znode_store::ZnodeEvent). A front end arms watches for its clients, the node fires the
//! events in their order, and this crate returns [notices](Notice) for the watchers.
//!
//! # Vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | watcher | one connection of a client, with its proven identities; ends with the connection |
//! | [watch](WatchKind) | one kind at one path for one watcher; arming it again has no effect |
//! | [event](znode_store::ZnodeEvent) | one change of a znode |
//! | to fire an event | to notify the watchers whose watches it triggers |
//! | [notice](Notice) | the notification of one watcher |
//!
//! # Rules
//!
//! | a watch of this kind on `/a` | fires when | afterwards |
//! |---|---|---|
//! | [`Data`](WatchKind::Data) | `/a` is created or deleted, its data is set | is removed |
//! | [`Children`](WatchKind::Children) | the children of `/a` change, `/a` is deleted | is removed |
//! | [`Persistent`](WatchKind::Persistent) | any of these happens | stays |
//! | [`PersistentRecursive`](WatchKind::PersistentRecursive) | `/a` or a descendant is created or deleted, its data is set | stays |
//!
//! - **Order.** The creation of `/a/b` produces the notice for `/a/b` and then the one for the
//!   children of `/a`; so does its deletion. Changes by several operations of one command follow
//!   the order of the operations. This is the order of the store's events, and each watcher gets
//!   its notices in it. There is no promise about the order between two watchers.
//! - **At most once.** A watcher gets one notice of an event, however many of its watches it
//!   triggers. All triggered one-shot watches are removed.
//! - **Only readers.** A notice goes only to watchers that may read the znode as it is at the
//!   event, or as it was before a deletion. The one-shot watch of a watcher that may not read is
//!   still removed. Both rules are ZooKeeper's since the correction of CVE-2024-23944.
//! - **No missed event.** [`Watches::rearm`] arms the watches of a client that reconnects through
//!   another node, and reports the changes since it left. [`Watches::catch_up`] does the same for
//!   all watchers when a node's state is replaced.
//!
//! The specification is the behaviour of ZooKeeper 3.8 (`DataTree`, `WatchManager`) with two
//! corrections of 3.9: the kinds of one watcher's watches at one path are independent
//! (ZOOKEEPER-4466), and a removal removes the watches of its type and no others (ZOOKEEPER-4471,
//! ZOOKEEPER-4472).
//!
//! # Cost
//!
//! An event costs one lookup of its path, and one of each ancestor at a depth with recursive
//! watches; without any watch, one comparison. Firing allocates nothing. A watch takes about 40
//! bytes, and its path, which all of its watchers share. The cost of arming, removing and re-arming
//! does not depend on the number of watches. [`WatchLimits`] bounds the memory.
//!
//! # Example
//!
//! ```
//! use znode_store::{Command, CreateMode, CreatePath, Acl, EntryContext, Event, Identities, Op, Request, Store, ZPath};
//! use znode_watch::{WatchKind, WatchLimits, Watches};
//!
//! let mut store = Store::new();
//! let mut watches = Watches::new(WatchLimits::default(), 0x5eed);
//!
//! // A client checks whether the znode exists, and leaves a watch.
//! let client = watches.connect(Identities::none());
//! let path = ZPath::parse("/greeting").unwrap();
//! assert!(store.stat(&path).is_none());
//! watches.arm(client, WatchKind::Data, &path).unwrap();
//!
//! // Another client creates it.
//! let create = Op::Create {
//!     path: CreatePath::parse("/greeting", false).unwrap(),
//!     data: "hello".into(),
//!     acl: Acl::open(),
//!     mode: CreateMode::Persistent,
//!     parents: false,
//! };
//! let mut events = Vec::new();
//! let entry = EntryContext { time_ms: 1_700_000_000_000, term: 1 };
//! let applied = store.apply(&entry, Request::anonymous(Command::Write(create)), &mut events);
//!
//! let mut notices = Vec::new();
//! for event in &events {
//!     if let Event::Znode(event) = event {
//!         watches.fire(applied.zxid, event, store.visibility(), |watcher, notice| notices.push((watcher, notice.to_string())));
//!     }
//! }
//! assert_eq!(notices, [(client, "created /greeting at 1".to_owned())]);
//! assert_eq!(watches.counts().watches, 0);
//! ```
//!
//! # Deliberately absent
//!
//! - Delivery of notices, and the treatment of clients that do not read: no channels, no tasks, no
//!   time.
//! - Reads. The front end that answers a request decides whether it may read, and whether the znode
//!   must exist.
//! - Replication. Watches live on the node to which their client is connected, and end with the
//!   connection.
//! - Waits for locks. Events of their own grant them, which trigger no watch.
//!
//! # Where to look
//!
//! `watches` decides; `catch_up` serves clients and nodes that were behind; `kind` defines the
//! kinds and their triggers; `table` is the layout in memory. tests/scripts states the rules one by
//! one.
#![no_std]
extern crate alloc;

mod kind;
mod limits;
mod notice;

mod watches;
mod catch_up;

mod slab;
mod table;

pub use catch_up::WatchLists;
pub use kind::{WatchKind, WatcherType};
pub use limits::{TooManyWatches, WatchLimits, units};
pub use notice::Notice;
pub use watches::{NoWatch, WatchCounts, WatcherId, Watches};
