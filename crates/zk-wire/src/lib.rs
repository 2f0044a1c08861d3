//! ZooKeeper's client protocol: every record in both directions, without any I/O.
//!
//! A connection is a stream of [frames](frame). The client's first frame is a [`ConnectRequest`], the
//! server's first frame a [`ConnectResponse`]; neither has a header. After that each frame from the client is
//! a [`RequestHeader`] and the body of a [`Request`]. Each frame from the server is a [`ReplyHeader`] and, if
//! its error is 0, the body of a [`Reply`] or of a [`Notification`]. A body does not contain its type: the
//! request's header has the operation, and the client decodes a reply by the request that it has sent.
//!
//! ```
//! use bytes::BytesMut;
//! use zk_wire::{ErrorCode, Reader, Reply, ReplyHeader, Request, RequestHeader, frame};
//!
//! // The client sends a request.
//! let mut wire = BytesMut::new();
//! let request = Request::Sync { path: "/a".to_owned() };
//! request.write_frame(7, &mut wire);
//!
//! // The server decodes it and replies.
//! let body = frame::take(&mut wire, frame::DEFAULT_MAX_LENGTH)?.expect("the frame is complete");
//! let mut from = Reader::new(body);
//! let header = RequestHeader::decode(&mut from)?;
//! assert_eq!(Request::decode(header.op, &mut from)?, request);
//! let header = ReplyHeader { xid: header.xid, zxid: 42, err: ErrorCode::OK };
//! header.write_frame(Some(&Reply::Path("/a".to_owned())), &mut wire);
//!
//! // The client decodes the reply by its request.
//! let body = frame::take(&mut wire, frame::DEFAULT_MAX_LENGTH)?.expect("the frame is complete");
//! let mut from = Reader::new(body);
//! assert_eq!(ReplyHeader::decode(&mut from)?, header);
//! assert_eq!(Reply::decode(&request, &mut from)?, Reply::Path("/a".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Validation
//!
//! - Bytes after a record are left unread: ZooKeeper ignores them, and records have been extended that way
//!   (the handshake's `readOnly`). [`Reader::end`] checks for them.
//! - A byte other than 0 is true. A text must be UTF-8 (ZooKeeper replaces invalid bytes with U+FFFD, which
//!   no path may contain), a length or count must not be below -1 (ZooKeeper takes such a count for 0), and
//!   nothing may exceed its frame.
//! - Null is distinct from empty where ZooKeeper accepts both: data, credentials, tokens, a list of ACL
//!   entries, the servers of a reconfiguration. It reads as empty where both mean the same: in the scheme or
//!   id of an ACL entry, and in the prefix of getEphemerals. A null path or list of paths, which no client
//!   sends, is rejected. ZooKeeper fails on most of them, too, if only with a null pointer exception.
//! - Numbers with a meaning (flags, modes, types of watchers) are not validated.
//!
//! No memory is allocated for a claimed length. A decoded record is at most about twenty times as large as
//! its frame, if that is full of empty texts. Buffers are slices of the frame and keep all of it in memory,
//! so they should be copied to be stored for long.
//!
//! # Outside the scope
//!
//! The crate has no semantics of the records, no rules about when they are allowed, and no I/O. It does not
//! cover four-letter words, which take the place of a first frame, nor the protocol between the servers of an
//! ensemble.

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
