//! ZooKeeper's client protocol: every record in both directions, without any I/O.
//!
//! A connection is a stream of [frames](frame). The first one from the client is a [`ConnectRequest`], the first one from
//! the server a [`ConnectResponse`]; neither has a header. After that each frame from the client is a [`RequestHeader`]
//! and the body of a [`Request`], and each frame from the server a [`ReplyHeader`] and, if its error is 0, the body of a
//! [`Reply`], or of a [`Notification`]. What a body is, is not written in it: a request's header names its operation,
//! and a reply is read by who knows the request.
//!
//! ```
//! use bytes::BytesMut;
//! use zk_wire::{ErrorCode, Reader, Reply, ReplyHeader, Request, RequestHeader, frame};
//!
//! // A client asks.
//! let mut wire = BytesMut::new();
//! let request = Request::Sync { path: "/a".to_owned() };
//! request.write_frame(7, &mut wire);
//!
//! // The server reads that, and answers.
//! let body = frame::take(&mut wire, frame::DEFAULT_MAX_LENGTH)?.expect("all of it has come");
//! let mut from = Reader::new(body);
//! let header = RequestHeader::decode(&mut from)?;
//! assert_eq!(Request::decode(header.op, &mut from)?, request);
//! let header = ReplyHeader { xid: header.xid, zxid: 42, err: ErrorCode::OK };
//! header.write_frame(Some(&Reply::Path("/a".to_owned())), &mut wire);
//!
//! // The client knows what it has asked for.
//! let body = frame::take(&mut wire, frame::DEFAULT_MAX_LENGTH)?.expect("all of it has come");
//! let mut from = Reader::new(body);
//! assert_eq!(ReplyHeader::decode(&mut from)?, header);
//! assert_eq!(Reply::decode(&request, &mut from)?, Reply::Path("/a".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is refused, and what is not
//!
//! - Bytes after a record are left unread: ZooKeeper ignores them, and records have grown that way (the handshake's
//!   `readOnly`). Who wants to know asks [`Reader::end`].
//! - A byte other than 0 is true. A text must be UTF-8 (ZooKeeper puts U+FFFD in place of what is not, which no path may
//!   have), a length or count must not be below -1 (ZooKeeper takes such a count for 0), and nothing may be longer than
//!   its frame.
//! - Null is told from empty where ZooKeeper takes both: data, credentials, tokens, a list of ACL entries, the servers of a
//!   reconfiguration. It reads as empty where it means the same: in the scheme or id of an ACL entry, and in the prefix of
//!   getEphemerals. A null path or list of paths, which no client sends, is refused. ZooKeeper, too, fails on most of them,
//!   if only because it runs into a null pointer.
//! - Numbers that stand for something (flags, modes, types of watchers) are not checked.
//!
//! Nothing is allocated because of a length that the bytes claim; what is decoded is at most some twenty times as large as its
//! frame, if that is full of empty texts. Buffers are slices of the frame and keep all of it in memory: who stores one for long copies it.
//!
//! # What is absent, on purpose
//!
//! What the records mean, which of them are allowed when, and anything that waits. Four-letter words, which come in the
//! place of a first frame. What servers of an ensemble say to each other.

mod decode_error;
mod jute;
pub mod frame;

mod connect;
mod header;
pub mod op_code;
mod error_code;

mod stat;
mod acl;

mod request;
mod reply;

mod create;
mod write;
mod read;
mod watches;
mod multi;
mod auth;
mod reconfig;

pub use acl::AclEntry;
pub use connect::{ConnectRequest, ConnectResponse};
pub use create::CreateCall;
pub use decode_error::DecodeError;
pub use error_code::ErrorCode;
pub use frame::FrameError;
pub use header::{ReplyHeader, RequestHeader, xid};
pub use jute::{Reader, Writer};
pub use multi::MultiResult;
pub use reply::{Outcome, Reply};
pub use request::Request;
pub use stat::Stat;
pub use watches::{Notification, SetWatches, event_type, keeper_state, watch_mode, watcher_type};
