//! Access policies: tokens, roles and certificates, and the rights that each command needs. ZooKeeper's lists ([`crate::model::acl`]) say
//! what the creators of a znode allow; the policies say what the operators of the cluster allow. Both have to allow. It knows the values of
//! the model, and no other owner.
//!
//! | word | meaning |
//! |---|---|
//! | [`Right`](crate::Right) | to read, to lock, to write, to break locks, to administer |
//! | [`PathGrant`](crate::PathGrant) | rights at a path and at all below it |
//! | role | name of a list of grants; `admin` has all rights, `anonymous` belongs to all callers |
//! | [`Token`](crate::Token) | secret that stands for a role; the state has only its hash |
//! | [`Principal`](crate::Principal) | owner of a session: a token, a certificate, or nobody in particular |
//!
//! A state is open at first, and then the policies cost one test. A command secures it, in log order like everything else, and no command
//! opens it again: a thief with an administrator's token could otherwise remove all protection for good. The way back is an earlier backup.
//!
//! Apply makes the decision, before anything is changed and before a recorded outcome is returned: an identity that was valid on receipt may
//! be revoked before the command is applied. Grants only add, so a right at a path is a right at everything below it.

pub(crate) mod access_snapshot;
mod manage;
pub(crate) mod needs;
pub(crate) mod session_use;
pub(crate) mod table;
pub(crate) mod visibility;
