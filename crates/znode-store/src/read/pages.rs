//! Lists in pages with the rights of one caller. The number of visited elements bounds a page, and not the number of returned ones. The reason is
//! that a query blocks the apply loop, and a caller without rights could otherwise cause a visit of everything.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::access::table::CallerRights;
use crate::locks::view::{LockSummary, WaitView};
use crate::model::access::right::Right;
use crate::model::acl::Perms;
use crate::model::ids::{SessionId, Zxid};
use crate::model::path::{LOCK_ROOT, LockName, ZPath};
use crate::model::refusal::Refusal;
use crate::model::session::SessionView;
use crate::read::View;
use crate::tree::index::NodeIndex;

/// Maximum number of locks, sessions or ephemeral znodes that one page visits. This number takes 1 to 3 ms.
pub const MAX_LOOKED_AT: usize = 2_000;

/// Maximum number of waits in one part of a graph of waits. Each names up to [`crate::MAX_NAMED_BLOCKERS`] others.
const MAX_WAITS_AT_ONCE: usize = 500;

/// Page of the locks in use, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockPage {
    /// Locks that the caller may read.
    pub locks: Vec<LockSummary>,
    /// Name after which the next page begins; `None` on the last one. The policies let the caller read at its path, but the znode's own list may
    /// not.
    pub next_after: Option<LockName>,
}

/// Page of the sessions that a caller may use, by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPage {
    /// The requested sessions.
    pub sessions: Vec<SessionView>,
    /// Session after which the next page begins; `None` on the last one. It may belong to another caller.
    pub next_after: Option<SessionId>,
}

/// Page of the ephemeral znodes of a session, in order of creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EphemeralPage {
    /// Their paths.
    pub paths: Vec<ZPath>,
    /// Znode after which the next page begins; `None` on the last one.
    pub next_after: Option<(Zxid, ZPath)>,
}

/// Cursor in a graph of waits: a lock, and the number of its waiters that were returned already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphCursor {
    lock: LockName,
    waiters: usize,
}

/// Set of names of locks: one name, or all names with a prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Area {
    Beginning(String),
    Named(String),
}

impl Area {
    fn text(&self) -> &str {
        match self {
            Self::Beginning(text) | Self::Named(text) => text,
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Beginning(text) => name.starts_with(&**text),
            Self::Named(text) => name == text,
        }
    }
}

/// Returns the names of locks that begin with `prefix` and that a caller may read by the policies, as disjoint areas in the order of names.
fn readable(caller_rights: Option<&CallerRights<'_>>, prefix: &str) -> Vec<Area> {
    let everything = || Vec::from([Area::Beginning(prefix.into())]);
    let Some(grants) = caller_rights.and_then(CallerRights::listed) else {
        return everything();
    };
    let mut areas = BTreeSet::new();
    for grant in grants.iter().filter(|grant| grant.rights.contains(Right::Read)) {
        let path = grant.prefix.as_str();
        if grant.prefix.is_root() || path == LOCK_ROOT {
            return everything();
        }
        let Some(name) = path
            .strip_prefix(LOCK_ROOT)
            .and_then(|rest| rest.strip_prefix('/'))
        else {
            continue;
        };
        if name.starts_with(prefix) {
            areas.insert(Area::Named(name.into()));
        }
        let below = format!("{name}/");
        if below.starts_with(prefix) {
            areas.insert(Area::Beginning(below));
        } else if prefix.starts_with(&*below) {
            areas.insert(Area::Beginning(prefix.into()));
        }
    }
    let is_within_another = |area: &Area| {
        let others = areas.iter().filter(|other| *other != area);
        others
            .filter(|other| matches!(other, Area::Beginning(_)))
            .any(|other| other.has(area.text()))
    };
    let mut disjoint: Vec<Area> = areas
        .iter()
        .filter(|area| !is_within_another(area))
        .cloned()
        .collect();
    disjoint.sort_unstable_by(|a, b| a.text().cmp(b.text()));
    disjoint
}

impl View<'_> {
    /// Returns up to `count` of the locks in use that the caller may read, by name: with names that begin with `prefix` and follow `after`.
    /// Only names that the caller may read by the policies are visited, at most [`MAX_LOOKED_AT`] of them. So a page may show fewer than
    /// `count`, or none, and not be the last one.
    pub fn locks_page(&self, prefix: &str, after: Option<&str>, count: usize) -> Result<LockPage, Refusal> {
        let caller_rights = self.caller_rights()?;
        let (mut locks, mut looked_at, mut last) = (Vec::new(), 0, None::<&LockName>);
        let areas = readable(caller_rights.as_ref(), prefix);
        for area in &areas {
            let in_area = self.store.locks.page(area.text(), after);
            for (lock, queue) in in_area.take_while(|(lock, _)| area.has(lock.as_str())) {
                if looked_at == MAX_LOOKED_AT || locks.len() == count {
                    let next_after = last.cloned();
                    return Ok(LockPage { locks, next_after });
                }
                looked_at += 1;
                last = Some(lock);
                if self.is_listed_for(lock) {
                    locks.push(self.store.locks.summary_of(lock, queue));
                }
            }
        }
        Ok(LockPage {
            locks,
            next_after: None,
        })
    }

    /// Returns whether the znode of a lock exists and its own list lets the caller read it.
    fn is_listed_for(&self, lock: &LockName) -> bool {
        let tree = &self.store.tree;
        let node = tree.find(lock.znode());
        node.is_some_and(|node| tree.acl(node).allows(Perms::READ, self.caller))
    }

    /// Returns up to `count` of the sessions that the caller may use and that are `asked` for, by id, after `after`. At most
    /// [`MAX_LOOKED_AT`] sessions are visited, including those of other owners. So a page may show fewer than `count`, or none, and not be the
    /// last one.
    pub fn sessions_page(
        &self,
        after: Option<SessionId>,
        count: usize,
        asked: impl Fn(&SessionView) -> bool,
    ) -> Result<SessionPage, Refusal> {
        let is_all = self
            .caller_rights()?
            .is_none_or(|rights| rights.administers_all());
        let (mut sessions, mut last) = (Vec::new(), None);
        for (looked_at, (id, session)) in self.store.sessions.following(after).enumerate() {
            if looked_at == MAX_LOOKED_AT || sessions.len() == count {
                return Ok(SessionPage {
                    sessions,
                    next_after: last,
                });
            }
            last = Some(id);
            if is_all || session.owner.is(self.caller) {
                sessions.extend(Some(session.view(id)).filter(&asked));
            }
        }
        Ok(SessionPage {
            sessions,
            next_after: None,
        })
    }

    /// Returns up to `count` of the ephemeral znodes of a session whose paths begin with `prefix` and that follow `after`, in the order of
    /// their creation. By the policies it needs a caller that may use the session, and returns only paths that the caller may know. At most
    /// [`MAX_LOOKED_AT`] are visited, or those of one transaction if there are more.
    pub fn ephemerals_page(
        &self,
        session: SessionId,
        prefix: &str,
        after: Option<&(Zxid, ZPath)>,
        count: usize,
    ) -> Result<EphemeralPage, Refusal> {
        self.may_use(session)?;
        self.store.sessions.require(session)?;
        let caller_rights = self.caller_rights()?;
        let state = self.store.sessions.get(session).expect("it lives");
        let first = after.map_or(Zxid(0), |(czxid, _)| *czxid);
        let (mut looked_at, mut more) = (Vec::<(Zxid, ZPath)>::new(), false);
        for &(czxid, index) in state
            .ephemerals
            .range((Bound::Included((first, NodeIndex::ROOT)), Bound::Unbounded))
        {
            // Znodes of one position have another order on other replicas, so a page does not end between them.
            if looked_at.len() >= MAX_LOOKED_AT && looked_at.last().is_some_and(|(last, _)| *last != czxid) {
                more = true;
                break;
            }
            looked_at.push((czxid, self.store.tree.path(index)));
        }
        looked_at.sort_unstable();
        let is_known = |path: &ZPath| match &caller_rights {
            Some(caller_rights) => {
                caller_rights.may(Right::Read, path) || caller_rights.may(Right::Lock, path)
            }
            None => true,
        };
        let (mut paths, mut last) = (Vec::new(), None);
        for found in looked_at
            .into_iter()
            .filter(|found| after.is_none_or(|after| found > after))
        {
            if paths.len() == count {
                more = true;
                break;
            }
            if found.1.as_str().starts_with(prefix) && is_known(&found.1) {
                paths.push(found.1.clone());
            }
            last = Some(found);
        }
        Ok(EphemeralPage {
            paths,
            next_after: last.filter(|_| more),
        })
    }

    /// Returns a part of the graph of waits, over the locks whose names begin with `prefix` and that the caller may read, from the end of
    /// an earlier part. Also returns the beginning of the next part, if there is one. Like a page it visits only names that the caller may
    /// read by the policies, at most [`MAX_LOOKED_AT`] of them.
    pub fn wait_graph_part(
        &self,
        prefix: &str,
        from: Option<&GraphCursor>,
    ) -> Result<(Vec<WaitView>, Option<GraphCursor>), Refusal> {
        let caller_rights = self.caller_rights()?;
        let (mut waits, mut looked_at) = (Vec::new(), 0);
        let first = from.map_or("", |from| from.lock.as_str());
        let areas = readable(caller_rights.as_ref(), prefix);
        for area in &areas {
            let in_area = self.store.locks.page_from(area.text(), first);
            for (lock, queue) in in_area.take_while(|(lock, _)| area.has(lock.as_str())) {
                let done = match from {
                    Some(from) if from.lock == *lock => from.waiters,
                    _ => 0,
                };
                let ended_at = |waiters| GraphCursor {
                    lock: lock.clone(),
                    waiters,
                };
                if looked_at == MAX_LOOKED_AT {
                    return Ok((waits, Some(ended_at(done))));
                }
                looked_at += 1;
                if !self.is_listed_for(lock) {
                    continue;
                }
                let room = MAX_WAITS_AT_ONCE - waits.len();
                if let Some(told) = self.store.locks.wait_views(lock, queue, done, room, &mut waits) {
                    return Ok((waits, Some(ended_at(done + told))));
                }
            }
        }
        Ok((waits, None))
    }
}
