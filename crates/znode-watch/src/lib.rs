//! Who is told of which change of the tree: ZooKeeper's watches, as one table without a network around it.
//!
//! A node of Lockgate applies commands to its [`Store`](znode_store::Store), and each command has
//! [events](znode_store::ZnodeEvent). This crate decides who hears of them: a front end arms watches for its
//! clients, the node fires the events in their order, and what comes out is [notices](Notice) for watchers.
//!
//! # Vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | watcher | one connection of a client, with what it has proven to be; ends with the connection |
//! | [watch](WatchKind) | one kind at one path for one watcher. Arming it twice is arming it once |
//! | [event](znode_store::ZnodeEvent) | what happened to a znode |
//! | to fire | to find those whom an event concerns |
//! | [notice](Notice) | what one of them is told |
//!
//! # The rules
//!
//! | a watch of this kind on `/a` | is told of | and then |
//! |---|---|---|
//! | [`Data`](WatchKind::Data) | `/a` created, deleted, its data changed | has ended |
//! | [`Children`](WatchKind::Children) | the children of `/a` changed, `/a` deleted | has ended |
//! | [`Persistent`](WatchKind::Persistent) | all of these | stays |
//! | [`PersistentRecursive`](WatchKind::PersistentRecursive) | `/a`, or anything below it, created, deleted, its data changed | stays |
//!
//! - **In order.** The creation of `/a/b` is told as `/a/b` created, then the children of `/a` changed; its deletion
//!   as `/a/b` deleted, then the children of `/a` changed. What several operations of one command changed is told in
//!   the order of the operations. This is the order in which the store has its events, and each watcher is told in it;
//!   nothing is promised about two watchers.
//! - **Once.** Of one event a watcher is told once, however many of its watches it concerns; and all of those that fire
//!   once have ended with it.
//! - **Only who may read.** A notice goes to those who may read the znode as it is when the event happens; of a
//!   deletion, as it was. The one-shot watch of somebody who may not read has ended nevertheless. Both as in ZooKeeper
//!   since the correction of CVE-2024-23944.
//! - **Nothing is missed.** [`Watches::rearm`] arms the watches of a client that comes back from another node, and tells
//!   what happened since it left; [`Watches::catch_up`] does as much for all watchers when a node's state is replaced.
//!
//! The specification is what ZooKeeper 3.8 does (`DataTree`, `WatchManager`), with what 3.9 has corrected: the kinds of
//! watches of one watcher at one path do not disturb each other (ZOOKEEPER-4466), and a removal ends the watches of its
//! type and no others (ZOOKEEPER-4471, ZOOKEEPER-4472).
//!
//! # What it costs
//!
//! An event costs a look at those who watch its path, and a look at each path above it at whose depth there are
//! recursive watches; if nobody watches anything, a comparison. Nothing is allocated to fire. A watch has about 40 bytes
//! wherever it is, and the path, which all who watch it share. Arming, removing and re-arming cost the same however many
//! watches there are. [`WatchLimits`] bound it all.
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
//! // A client looks whether the znode exists, and leaves a watch.
//! let client = watches.connect(Identities::none());
//! let path = ZPath::parse("/greeting").unwrap();
//! assert!(store.stat(&path).is_none());
//! watches.arm(client, WatchKind::Data, &path).unwrap();
//!
//! // Somebody creates it.
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
//! let mut told = Vec::new();
//! for event in &events {
//!     if let Event::Znode(event) = event {
//!         watches.fire(applied.zxid, event, store.sight(), |watcher, notice| told.push((watcher, notice.to_string())));
//!     }
//! }
//! assert_eq!(told, [(client, "created /greeting at 1".to_owned())]);
//! assert_eq!(watches.counts().watches, 0);
//! ```
//!
//! # What is absent, on purpose
//!
//! - How a notice travels, and what becomes of a client that does not read: no channels, no tasks, no time.
//! - Reading. Whether a request that leaves a watch may read, and whether the node must exist, is decided by whoever
//!   answers the request.
//! - Replication. Watches live on the node that their client is connected to, and end with it.
//! - Waits for locks. They are granted by events of their own, which are no watch's business.
//!
//! # Where to find what
//!
//! `watches` decides; `missed` is for those who come back; `kind` has the kinds and what concerns them; `table` is how
//! it all lies in memory. tests/scripts states the rules one by one.
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
pub use limits::{TooManyWatches, WatchLimits};
pub use notice::Notice;
pub use watches::{NoWatch, WatchCounts, WatcherId, Watches};
