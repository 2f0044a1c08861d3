//! Ephemeral znodes need a session: each has a live owner, or one whose end still removes them.

use znode_store::{SessionFate, SessionId, Store, ZPath};

use super::Check;

/// Positions between two checks of the whole tree, unless a session has ended. A check costs as much as the
/// tree has znodes.
const EVERY: u32 = 64;

/// Checker of the tree.
#[derive(Default)]
pub struct Ephemerals {
    since: u32,
}

impl Ephemerals {
    /// Checks the state after a command, which may have `ended` a session.
    pub fn check(&mut self, store: &Store, ended: bool) -> Check {
        self.since += 1;
        if ended || self.since >= EVERY {
            self.since = 0;
            walk(store, &ZPath::root(), &|owner| {
                store.session_fate(owner) == SessionFate::Live || store.is_ending(owner)
            })?;
        }
        Ok(())
    }
}

fn walk(store: &Store, path: &ZPath, lives: &impl Fn(SessionId) -> bool) -> Check {
    for name in store.children(path).unwrap_or_default() {
        let child = path.join(&name).map_err(|bad| bad.to_string())?;
        let stat = store.stat(&child);
        if let Some(owner) = stat.and_then(|stat| stat.ephemeral_owner.session())
            && !lives(owner)
        {
            return Err(format!("{child} belongs to {owner}, which has ended"));
        }
        walk(store, &child, lives)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use znode_store::{
        Acl, Command, CreateMode, CreatePath, EntryContext, Identities, Op, Password, Request,
    };

    use super::*;

    #[test]
    fn ephemeral_without_a_live_owner_is_a_violation() {
        let mut store = Store::new();
        let (session, mut events) = (SessionId(7), Vec::new());
        let open = Command::OpenSession {
            session,
            password: Password([0; 16]),
            timeout_ms: 2_000,
            name: "".into(),
            address: "".into(),
        };
        let create = Command::Write(Op::Create {
            path: CreatePath::parse("/e", false).expect("a path"),
            data: "".into(),
            acl: Acl::open(),
            mode: CreateMode::Ephemeral,
            parents: false,
        });
        let entry = EntryContext { time_ms: 1, term: 1 };
        store.apply(&entry, Request::anonymous(open), &mut events);
        let request = Request {
            session: Some(session),
            request_id: None,
            caller: Identities::none(),
            command: create,
        };
        assert!(store.apply(&entry, request, &mut events).outcome.is_ok());
        assert_eq!(Ephemerals::default().check(&store, true), Ok(()));
        assert!(walk(&store, &ZPath::root(), &|_| false).is_err());
    }
}
