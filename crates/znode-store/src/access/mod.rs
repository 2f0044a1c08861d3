//! Access policies: tokens, roles and certificates, and the rights that each command needs. ZooKeeper's lists ([`crate::model::acl`]) say
//! what the creators of a znode allow; the policies say what the operators of the cluster allow. A command
//! needs the permission of both. This module depends on the values of the model, and on no other part of the state.
//!
//! | word | meaning |
//! |---|---|
//! | [`Right`](crate::Right) | to read, to lock, to write, to break locks, to administer |
//! | [`PathGrant`](crate::PathGrant) | rights at a path and at all below it |
//! | role | name of a list of grants; `admin` has all rights, `anonymous` belongs to all callers |
//! | [`Token`](crate::Token) | secret that stands for a role; the state has only its hash |
//! | [`Principal`](crate::Principal) | owner of a session: a token, a certificate, or a caller without identity |
//!
//! A state is open at first, and then the policies cost one test per command. A command in the log secures it, and no command opens it again:
//! otherwise a thief with an administrator's token could remove all protection for good. Only a restore of an earlier backup opens it again.
//!
//! The apply step makes the decision, before it changes anything and before it returns a recorded outcome. An earlier decision would be wrong,
//! because an identity that was valid on receipt may be revoked before the command is applied. Grants only add rights, so a right at a path is a
//! right at everything below it.

pub(crate) mod access_snapshot;
mod manage;
pub(crate) mod needs;
pub(crate) mod session_use;
pub(crate) mod table;
pub(crate) mod visibility;
