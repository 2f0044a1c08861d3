//! Who may do what: tokens, roles and certificates, and what each command needs. ZooKeeper's lists ([`crate::model::acl`]) say
//! what the makers of a znode allow; this says what the operators of the cluster do. Both have to allow.
//!
//! | word | meaning |
//! |---|---|
//! | [`Right`] | to read, to lock, to write, to break locks, to administer |
//! | [`PathGrant`] | rights at a path and at all below it |
//! | role | a name for some grants; `admin` has all rights, `anonymous` is everybody's |
//! | [`Token`] | a secret that stands for a role: only its hash is known here |
//! | [`Principal`] | whose a session is: a token's, a certificate's, or nobody's in particular |
//!
//! A state is open at first, and then all of this costs one test. It is secured by a command, in log order like everything
//! else, and no command opens it again: whoever had stolen an administrator's token for a moment could else take all
//! protection away for good. The way back is a backup from before.
//!
//! The decision is made in apply, before anything is changed and before anything is answered from memory: what was proven
//! when a request was taken in may be revoked by the time it is carried out. Grants only add, so who may do something at
//! a path may do it at everything below.

pub(crate) mod access_snapshot;
mod manage;
pub(crate) mod needs;
pub(crate) mod session_use;
pub(crate) mod table;
pub(crate) mod visibility;
