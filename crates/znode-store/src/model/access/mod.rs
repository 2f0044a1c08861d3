//! Values of access control: rights, roles, tokens, principals, and the commands that change them.

pub(crate) mod command;
mod display;
pub(crate) mod principal;
pub(crate) mod right;
pub(crate) mod role;
pub(crate) mod token;
