//! The door: who calls is found out here, and whether it is let in, before a body is read or a handler runs.
//!
//! What is proven at the door counts by what this node knows. What is changed in the log is decided there again, in log order,
//! with all that was proven; so a token that was revoked meanwhile changes nothing any more, whichever node let it in.

mod bearer;
mod needs;
mod unknown;
mod unsecured;
mod vigil;

use std::sync::Arc;

use access_token::{Secret, Standing};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use znode_store::{Identity, Refusal, Store, TokenId, Unproven};

use super::audit;
use super::exchange::now_ms;
use super::peer::Peer;
use super::problem::{Code, Problem};
use super::{Api, Shared};

pub use self::needs::Needs;
pub use self::unknown::UnknownTokens;
pub use self::vigil::{Vigil, while_allowed};
pub use access_token::{OperatorToken, TokenText};

/// The door of one address.
#[derive(Clone)]
pub struct Door {
    api: Shared,
    /// What each of its methods needs.
    needs: Arc<[(Method, Needs)]>,
}

impl Door {
    pub fn new(api: Shared, needs: Vec<(Method, Needs)>) -> Self {
        let needs = needs.into();
        Self { api, needs }
    }

    /// A method that is not served needs nothing: that is told to everybody, by the document as well.
    fn needs(&self, method: &Method) -> Needs {
        let method = if method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        let mut of = self.needs.iter().filter(|(served, _)| served == method);
        of.next().map_or(Needs::Nothing, |(_, needs)| *needs)
    }
}

/// Lets a request in to its handler, which learns who calls, or refuses it.
pub async fn enter(State(door): State<Door>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    match let_in(&door, &head).await {
        Ok(peer) => {
            head.extensions.insert(peer);
            next.run(Request::from_parts(head, body)).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn let_in(door: &Door, head: &Parts) -> Result<Peer, Problem> {
    let api = &*door.api;
    let peer = Peer::of(&head.extensions);
    let needs = door.needs(&head.method);
    if needs == Needs::Nothing {
        return Ok(peer);
    }
    let shown = match bearer::shown(&head.headers) {
        Ok(shown) => shown,
        Err(problem) => return Err(refuse(api, &peer, None, head, problem)),
    };
    let named = shown.as_ref().map(TokenText::name);
    let proven = match shown {
        None => Ok(peer.clone()),
        Some(TokenText::Operator(secret)) => of_operator(api, peer.clone(), &secret),
        Some(TokenText::Of(id, secret)) => of_token(api, peer.clone(), id, &secret).await,
    };
    let somebody = match proven {
        Ok(somebody) => somebody,
        Err(problem) => return Err(refuse(api, &peer, named, head, problem)),
    };
    match require(api, needs, &somebody).await {
        Ok(()) => Ok(somebody),
        Err(problem) => Err(refuse(api, &somebody, named, head, problem)),
    }
}

/// Gives an account of who was not let in, and with which token, for whoever looks for who goes on using it.
fn refuse(api: &Api, peer: &Peer, shown: Option<String>, head: &Parts, problem: Problem) -> Problem {
    if matches!(problem.code(), Code::Unauthenticated | Code::Forbidden) {
        audit::refused(&api.refusals, peer, shown, head, &problem);
    }
    problem
}

/// Its token is this node's own, so another node's does not count here.
fn of_operator(api: &Api, peer: Peer, secret: &Secret) -> Result<Peer, Problem> {
    match &api.config().operator {
        Some(operator) if operator.is(secret) => Ok(peer.with(Identity::Super, None)),
        _ => Err(refused(Unproven::Token)),
    }
}

async fn of_token(api: &Api, peer: Peer, id: TokenId, secret: &Secret) -> Result<Peer, Problem> {
    let look = || api.node.read(|store| Standing::of(store, id, secret, now_ms()));
    let mut known = look();
    if matches!(known, Standing::Unknown) && !api.unknown.is_known_to_be_none(id) {
        let Some(_place) = api.unknown.place() else {
            return Err(Problem::busy(
                "many callers show tokens that this node does not know yet",
            ));
        };
        api.node.read_barrier().await?;
        known = look();
        if matches!(known, Standing::Unknown) {
            api.unknown.is_none(id);
        }
    }
    match known {
        Standing::Good { expires_at_ms } => Ok(peer.with(Identity::Token(id), expires_at_ms)),
        Standing::Bad(unproven) => Err(refused(unproven)),
        Standing::Unknown => Err(refused(Unproven::Token)),
    }
}

async fn require(api: &Api, needs: Needs, peer: &Peer) -> Result<(), Problem> {
    unsecured::refuse(api, peer)?;
    let caller = peer.identities();
    let look = |store: &Store| needs.require(store.seen_by(&caller));
    // Who is refused by what this node knows need not be asked about again.
    api.node.read(look)?;
    if !peer.is_operator() && api.node.read(|store| needs.is_of_now(store)) {
        api.node.read_barrier().await?;
        api.node.read(look)?;
    }
    Ok(())
}

fn refused(unproven: Unproven) -> Problem {
    Refusal::from(unproven).into()
}
