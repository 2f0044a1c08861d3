//! Values of the state machine's interface: commands, replies, events and their parts. Of the crate it imports only the stable hash.

pub(crate) mod access;
pub(crate) mod acl;
pub(crate) mod address;
pub(crate) mod command;
pub(crate) mod contender;
pub(crate) mod damage;
pub(crate) mod data;
pub(crate) mod digits;
mod display;
pub(crate) mod entry;
pub(crate) mod event;
pub(crate) mod identity;
pub(crate) mod ids;
pub(crate) mod limits;
pub(crate) mod lock;
pub(crate) mod mirrored;
pub(crate) mod namespace;
pub(crate) mod non_recursive_reply;
pub(crate) mod op_encoding;
pub(crate) mod path;
pub(crate) mod refusal;
pub(crate) mod reply;
pub(crate) mod session;
pub(crate) mod stat;
pub(crate) mod text;
