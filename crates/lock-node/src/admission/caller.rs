//! Names of callers, for resources of which one caller gets a share, and for the queue in which callers take turns.

use std::fmt;
use std::net::IpAddr;

use listener::client_network;
use znode_store::{Identities, Identity, Principal, Request, SessionId};

use super::Work;

/// Caller, as it shares resources with others: the proven identity, or else the address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// A principal that has proven its identity.
    Principal(Principal),
    /// A caller without an identity, from this address if it is known.
    Network(Option<IpAddr>),
}

impl Caller {
    /// Returns the caller with these identities.
    pub fn of(caller: &Identities) -> Self {
        match Principal::of(caller) {
            Principal::Nobody => Self::Network(caller.iter().find_map(|identity| match identity {
                Identity::Ip(ip) => Some(client_network(*ip)),
                _ => None,
            })),
            principal => Self::Principal(principal),
        }
    }

    /// Returns the caller under which a request is queued on its way to the leader, or `None` for the cluster's own work. A request that this
    /// node makes for a call of a session is queued under the session's owner, as `owner_of` returns it: there may be as many as calls.
    pub fn in_queue(
        request: &Request,
        owner_of: impl FnOnce(SessionId) -> Option<Principal>,
    ) -> Option<Self> {
        match (Work::of(request), request.session) {
            (Work::Own, None) => None,
            (Work::Own, Some(session)) => Some(match owner_of(session) {
                None | Some(Principal::Nobody) => Self::Network(None),
                Some(owner) => Self::Principal(owner),
            }),
            (Work::New | Work::Keep, _) => Some(Self::of(&request.caller)),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(principal) => principal.fmt(f),
            Self::Network(Some(address)) => address.fmt(f),
            Self::Network(None) => Ok(()),
        }
    }
}

/// Returns the key of a caller for shared resources.
pub fn shared_by(caller: &Identities) -> String {
    Caller::of(caller).to_string()
}

#[cfg(test)]
mod tests {
    use znode_store::{AttemptId, Command, LockCommand, LockName, TokenId, WithdrawCause};

    use super::*;

    #[test]
    fn withdrawals_of_the_node_are_queued_under_the_owner_of_their_session() {
        let session = SessionId(7);
        let owner = Principal::Token(TokenId([7; 16]));
        let own = Request::internal(Command::CloseSession { session });
        assert_eq!(Caller::in_queue(&own, |_| Some(owner.clone())), None);
        let withdrawal = LockCommand::WithdrawMany {
            holders: vec![(LockName::parse("a").unwrap(), "b".into())],
            attempt: AttemptId(1),
            cause: WithdrawCause::TimedOut,
        };
        let of_call = Request {
            session: Some(session),
            ..Request::internal(Command::Lock(withdrawal))
        };
        for (owner_of, caller) in [
            (Some(owner.clone()), Caller::Principal(owner)),
            (Some(Principal::Nobody), Caller::Network(None)),
            (None, Caller::Network(None)),
        ] {
            assert_eq!(Caller::in_queue(&of_call, |_| owner_of), Some(caller));
        }
    }
}
