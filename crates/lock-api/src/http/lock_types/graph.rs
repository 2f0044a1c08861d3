//! Graph of waits: each waiter with the contenders that it waits for.

use serde::Serialize;
use utoipa::ToSchema;
use znode_store::{OwnerView, WaitView};

use super::views::SessionNames;
use crate::http::openapi::words;

/// Answer of `GET /v1/lock-graph`.
#[derive(Serialize, ToSchema)]
pub struct GraphAnswer<'a> {
    /// Waiting contenders.
    pub waits: Vec<WaitAnswer<'a>>,
    /// `true` if these are all waits.
    pub complete: bool,
}

/// A waiting contender, and the contenders that it waits for.
#[derive(Serialize, ToSchema)]
pub struct WaitAnswer<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    /// Waiting contender.
    waiter: PartyAnswer<'a>,
    /// Some of the contenders that it waits for; empty if the lock is drained or closed.
    waits_for: Vec<PartyAnswer<'a>>,
    /// `true` if it waits for more contenders than these.
    more: bool,
}

#[derive(Serialize, ToSchema)]
pub struct PartyAnswer<'a> {
    #[schema(value_type = words::SessionId)]
    session: String,
    #[schema(value_type = words::SessionName)]
    session_name: &'a str,
    #[schema(value_type = words::Owner)]
    owner: &'a str,
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    /// `holds` or `waits`.
    #[schema(value_type = words::Standing)]
    standing: &'static str,
}

impl<'a> PartyAnswer<'a> {
    fn new(party: &'a OwnerView, names: &'a SessionNames) -> Self {
        Self {
            session: party.session.to_string(),
            session_name: names.name(party.session),
            owner: &party.owner,
            holder: &party.holder,
            standing: if party.waits { "waits" } else { "holds" },
        }
    }
}

impl<'a> WaitAnswer<'a> {
    /// Describes the wait of one contender.
    pub fn new(wait: &'a WaitView, names: &'a SessionNames) -> Self {
        let parties = wait.waits_for.iter();
        Self {
            lock: wait.lock.as_str(),
            waiter: PartyAnswer::new(&wait.waiter, names),
            waits_for: parties.map(|party| PartyAnswer::new(party, names)).collect(),
            more: wait.more,
        }
    }
}
