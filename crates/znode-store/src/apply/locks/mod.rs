//! Steps of the lock protocol.

pub(crate) mod acquire;
pub(crate) mod configure;
pub(crate) mod grant_waiters;
pub(crate) mod many;
pub(crate) mod modes;
pub(crate) mod release_request;
pub(crate) mod resolve;
