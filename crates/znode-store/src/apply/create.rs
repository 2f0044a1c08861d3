//! Creations of znodes by clients: kind, path, checks, and missing parents.

use alloc::string::{String, ToString};

use crate::apply::context::Context;
use crate::apply::tree_queries::creates_by_lock_alone;
use crate::apply::znodes;
use crate::locks::name;
use crate::model::acl::Acl;
use crate::model::command::CreateMode;
use crate::model::data::Data;
use crate::model::digits::{SEQUENCE_DIGITS, push_sequence};
use crate::model::ids::SessionId;
use crate::model::path::{CreatePath, ZPath};
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::model::stat::{Kind, MAX_TTL_MS};
use crate::store::Store;
use crate::tree::NewZnode;

/// Time after which an empty znode is removed that a caller created for its contenders with only the right to lock. Such a caller may not delete
/// the znode itself.
const LOCK_PARENT_TTL_MS: u64 = 60_000;

/// Operands of [`Op::Create`](crate::Op::Create).
pub(crate) struct Creation {
    pub(crate) path: CreatePath,
    pub(crate) data: Data,
    pub(crate) acl: Acl,
    pub(crate) mode: CreateMode,
    pub(crate) parents: bool,
}

/// Creates a znode, or refuses the operation without any effect.
pub(crate) fn create(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: Option<SessionId>,
    creation: Creation,
) -> Outcome {
    let Creation {
        path,
        data,
        acl,
        mode,
        parents,
    } = creation;
    store.limits.check_size(&data)?;
    let kind = match (mode, session) {
        (CreateMode::Persistent | CreateMode::PersistentSequential, _) => Kind::Persistent,
        (CreateMode::Container, _) => Kind::Container,
        (CreateMode::Ttl { ttl_ms } | CreateMode::TtlSequential { ttl_ms }, _) => match ttl_ms {
            1..=MAX_TTL_MS => Kind::Ttl(ttl_ms),
            _ => return Err(Refusal::BadTtl(ttl_ms)),
        },
        (CreateMode::Ephemeral | CreateMode::EphemeralSequential, Some(session)) => Kind::Ephemeral(session),
        (CreateMode::Ephemeral | CreateMode::EphemeralSequential, None) => {
            return Err(Refusal::SessionRequired);
        }
    };
    let acl = acl.as_set_by(cx.caller)?;
    if path.parent.is_root() && path.name.is_empty() && !mode.is_sequential() {
        return Err(Refusal::NodeExists(ZPath::root()));
    }
    let data = data.into();
    let place = store.tree.place_below(&path.parent);
    // The parents of contenders are swept when they were empty for a while, but some recipes create them only once. So a contender brings them.
    let brings_parents =
        parents || mode.is_ephemeral() && acl.is_open() && creates_by_lock_alone(store, cx, &path.parent);
    if !place.has_parent() && !brings_parents {
        return Err(Refusal::NoNode(path.parent.clone()));
    }
    store.tree.may_create_at(&place, &acl, cx.caller)?;
    let parent = place.has_parent().then_some(place.ancestor);
    let parent_path = &path.parent;
    let path = if mode.is_sequential() {
        let sequence = store.tree.next_sequence(parent, parent_path)?;
        let mut name = String::with_capacity(path.name.len() + SEQUENCE_DIGITS);
        name.push_str(&path.name);
        push_sequence(&mut name, sequence);
        path.parent.join(&name)
    } else {
        path.parent.join(&path.name)
    };
    let path = path.map_err(|bad| Refusal::BadPath(bad.to_string()))?;
    let kind = match kind {
        Kind::Persistent | Kind::Container if creates_by_lock_alone(store, cx, &path) => {
            Kind::Ttl(LOCK_PARENT_TTL_MS)
        }
        kind => kind,
    };
    if mode.is_ephemeral() && name::is_reserved(&path) {
        return Err(name::written_by_locks_alone(&path));
    }
    if parent.is_some_and(|parent| store.tree.child(parent, path.name()).is_some()) {
        return Err(Refusal::NodeExists(path));
    }
    store.tree.may_have_children(&place, store.limits.children)?;
    cx.add_long_paths(place.long_bytes(), parent_path)?;
    let owner = match kind {
        Kind::Ephemeral(session) => Some(session),
        Kind::Persistent | Kind::Container | Kind::Ttl(_) => None,
    };
    if let Some(session) = owner {
        store
            .sessions
            .may_own_more(session, &path, store.limits.ephemerals)?;
    }
    store.tree.check_quotas_of_creation(&place, &path, &data, owner)?;
    let parent = znodes::create_missing(store, cx, place, &acl);
    let child = NewZnode {
        path: &path,
        kind,
        data,
        acl: &acl,
    };
    let index = znodes::add_child(store, cx, parent, parent_path, child);
    let stat = store.tree.node(index).stat();
    Ok(Reply::Created { path, stat })
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use crate::model::digits::MAX_SEQUENCE;
    use crate::{Command, EntryContext, Op, Request};

    use super::*;

    fn sequential(store: &mut Store) -> Outcome {
        let op = Op::Create {
            path: CreatePath::parse("/q/n", true).expect("it is a path"),
            data: Data::empty(),
            acl: Acl::open(),
            mode: CreateMode::PersistentSequential,
            parents: true,
        };
        let entry = EntryContext { time_ms: 0, term: 1 };
        let request = Request::anonymous(Command::Write(op));
        store.apply(&entry, request, &mut Vec::new()).outcome
    }

    #[test]
    fn sequence_numbers_end_with_ten_digits_and_never_become_negative() {
        let mut store = Store::new();
        sequential(&mut store).expect("the first one");
        let parent = ZPath::parse("/q").expect("it is a path");
        let index = store.tree.find(&parent).expect("it was created");
        for (creations, name) in [
            (i32::MAX as u64, "/q/n2147483647"),
            (i32::MAX as u64 + 1, "/q/n2147483648"),
            (MAX_SEQUENCE, "/q/n9999999999"),
        ] {
            store.tree.pretend_creations(index, creations);
            match sequential(&mut store) {
                Ok(Reply::Created { path, .. }) => assert_eq!(path.as_str(), name),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(sequential(&mut store), Err(Refusal::SequenceExhausted(parent)));
    }
}
