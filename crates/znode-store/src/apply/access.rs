//! Changes of the access policies.

use alloc::sync::Arc;

use crate::apply::context::Context;
use crate::model::access::command::{AccessChange, AccessCommand};
use crate::model::access::principal::Principal;
use crate::model::event::Event;
use crate::model::reply::Outcome;
use crate::store::Store;

/// Changes the access policies, or refuses the change without any effect. Expired tokens are removed in any case.
pub(crate) fn access_command(store: &mut Store, cx: &mut Context<'_>, command: AccessCommand) -> Outcome {
    let access = Arc::make_mut(&mut store.access);
    access.sweep(cx.now_ms);
    let by = Principal::of(cx.caller);
    let reply = access.execute(&command, &by, cx.now_ms)?;
    // This command sets a rule of the state and changes no rights, so it has no event.
    if command == AccessCommand::EndWaitsWithRights {
        return Ok(reply);
    }
    let change = AccessChange { by, command };
    cx.events.push(Event::AccessChanged(change.into()));
    Ok(reply)
}
