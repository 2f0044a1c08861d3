//! Authentication and admission of callers, before a body is read or a handler runs.
//!
//! Authentication uses this node's state. A change is authorized again when it is applied, in the order of the log,
//! with all proven identities; so a revoked token has no effect any more, whichever node admitted it.

mod bearer;
mod required_permission;
mod unknown_tokens;
mod unsecured;
mod revocation_watch;

use access_token::{Secret, Standing};
use axum::http::request::Parts;
use znode_store::{Identity, Refusal, Store, TokenId, Unproven};

use super::Api;
use super::peer::Peer;
use super::problem::{Code, Problem};

pub use self::required_permission::RequiredPermission;
pub use self::revocation_watch::{RevocationWatch, while_allowed};
pub use self::unknown_tokens::UnknownTokens;
pub use access_token::{OperatorToken, TokenText};

/// Authenticates the caller of a request, whose proven identity is added to `peer`, and checks the route's requirement.
pub async fn authenticate(
    api: &Api,
    required: RequiredPermission,
    peer: &mut Peer,
    head: &Parts,
) -> Result<(), Problem> {
    if required == RequiredPermission::Public {
        return Ok(());
    }
    let shown = match bearer::shown(&head.headers) {
        Ok(shown) => shown,
        Err(problem) => return Err(refuse(api, peer, None, head, problem)),
    };
    let named = shown.as_ref().map(TokenText::name);
    let proven = match shown {
        None => Ok(()),
        Some(TokenText::Operator(secret)) => authenticate_operator(api, peer, &secret),
        Some(TokenText::Of(id, secret)) => authenticate_token(api, peer, id, &secret).await,
    };
    let allowed = match proven {
        Ok(()) => require(api, required, peer).await,
        Err(problem) => Err(problem),
    };
    allowed.map_err(|problem| refuse(api, peer, named, head, problem))
}

/// Logs the rejection of a caller, with the id of its token, so that an operator finds programs that still use it.
fn refuse(api: &Api, peer: &Peer, shown: Option<String>, head: &Parts, problem: Problem) -> Problem {
    if matches!(problem.code(), Code::Unauthenticated | Code::Forbidden) {
        api.audit_log.refused(peer, shown, head, &problem);
    }
    problem
}

/// Authenticates the operator by this node's own token. The operator token of another node is rejected.
fn authenticate_operator(api: &Api, peer: &mut Peer, secret: &Secret) -> Result<(), Problem> {
    match &api.config().operator {
        Some(operator) if operator.is(secret) => {
            peer.prove(Identity::Super, None);
            Ok(())
        }
        _ => Err(refused(Unproven::Token)),
    }
}

async fn authenticate_token(api: &Api, peer: &mut Peer, id: TokenId, secret: &Secret) -> Result<(), Problem> {
    let evaluate = || {
        api.node
            .read_facts(|store| Standing::of(store, id, secret, api.node.now_ms()))
    };
    let mut known = evaluate();
    if matches!(known, Standing::Unknown) && !api.unknown.is_known_absent(id) {
        let Some(_permit) = api.unknown.permit() else {
            return Err(Problem::busy(
                "too many callers send tokens that this node does not know yet",
            ));
        };
        api.node.read_barrier().await?;
        known = evaluate();
        if matches!(known, Standing::Unknown) {
            api.unknown.mark_absent(id);
        }
    }
    match known {
        Standing::Good { expires_at_ms } => {
            peer.prove(Identity::Token(id), expires_at_ms);
            Ok(())
        }
        Standing::Bad(unproven) => Err(refused(unproven)),
        Standing::Unknown => Err(refused(Unproven::Token)),
    }
}

async fn require(api: &Api, required: RequiredPermission, peer: &Peer) -> Result<(), Problem> {
    unsecured::refuse(api, peer)?;
    let caller = peer.identities();
    let check = |store: &Store| required.require(store.seen_by(&caller));
    // A caller that this node's state rejects needs no read barrier.
    api.node.read_facts(check)?;
    if required.may_need_barrier()
        && !peer.is_operator()
        && api.node.read_facts(|store| required.needs_barrier(store))
    {
        api.node.read_barrier().await?;
        api.node.read_facts(check)?;
    }
    Ok(())
}

fn refused(unproven: Unproven) -> Problem {
    Refusal::from(unproven).into()
}
