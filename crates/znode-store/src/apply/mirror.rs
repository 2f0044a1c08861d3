//! Commands that copy znodes of another server as they are there: with versions, times, lists and counters of sequential names, none of
//! which an ordinary command can set. Positions (zxids) are this store's own. Where the other tree comes from is not known here.

use alloc::vec::Vec;

use crate::apply::context::Context;
use crate::model::acl::{MAX_ACL_BYTES, Perms};
use crate::model::digits::MAX_SEQUENCE;
use crate::model::event::ContenderEnd;
use crate::model::mirrored::{MirrorStep, Mirrored, MirroredKind};
use crate::model::path::ZPath;
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::model::stat::MAX_TTL_MS;
use crate::store::Store;
use crate::tree::MirroredNode;
use crate::tree::index::NodeIndex;
use crate::tree::quota::is_stats_of_quota;

impl Store {
    /// Takes all steps or none.
    pub(crate) fn mirror(&mut self, cx: &mut Context<'_>, steps: Vec<MirrorStep>) -> Outcome {
        let (events_before, count) = (cx.events.len(), steps.len() as u32);
        self.tree.begin();
        for (index, step) in (0..).zip(steps) {
            let taken = match step {
                MirrorStep::Put(znode) => self.put_mirrored(cx, znode),
                MirrorStep::Remove { path } => self.remove_mirrored(cx, &path),
            };
            if let Err(refusal) = taken {
                cx.events.truncate(events_before);
                self.roll_back();
                return Err(Refusal::Multi {
                    index,
                    refusal: refusal.into(),
                });
            }
        }
        self.tree.commit();
        Ok(Reply::Mirrored(count))
    }

    fn put_mirrored(&mut self, cx: &mut Context<'_>, znode: Mirrored) -> Result<(), Refusal> {
        self.check_mirrored(&znode)?;
        let found = self.tree.find(&znode.path);
        let Mirrored {
            path,
            mut data,
            acl,
            kind,
            version,
            aversion,
            ctime_ms,
            mtime_ms,
            creations,
        } = znode;
        // What a quota has used is counted here, whatever is said of it elsewhere.
        if let Some(index) = found.filter(|_| is_stats_of_quota(&path)) {
            data = self.tree.node(index).data.clone();
        }
        let mirrored = MirroredNode {
            kind: kind.kind(),
            data,
            acl,
            version,
            aversion,
            ctime_ms,
            mtime_ms,
            creations,
        };
        let Some(index) = found else {
            let above = path.parent().expect("the root is always found");
            let place = self.tree.place_below(&above);
            if !place.has_parent() {
                return Err(Refusal::NoNode(above));
            }
            self.require_of_mirror(cx, place.ancestor, &[Perms::CREATE], &above)?;
            self.tree.may_have_children(&place, self.limits.children)?;
            self.add_mirrored(cx, place.ancestor, &path, mirrored);
            return Ok(());
        };
        let is_own = match index {
            NodeIndex::ROOT => kind != MirroredKind::Persistent,
            _ => index.is_special() || self.tree.node(index).session().is_some(),
        };
        if is_own {
            return Err(Refusal::NotMirrored(path));
        }
        self.require_of_mirror(cx, index, &[Perms::WRITE, Perms::ADMIN], &path)?;
        self.mirror_node(cx, index, &path, mirrored);
        Ok(())
    }

    fn check_mirrored(&self, znode: &Mirrored) -> Result<(), Refusal> {
        self.limits.check_size(&znode.data)?;
        let entries = znode.acl.entries();
        let bytes =
            |texts: usize, entry: &crate::model::acl::AclEntry| texts + entry.scheme.len() + entry.id.len();
        if entries.is_empty() || entries.iter().fold(0, bytes) > MAX_ACL_BYTES {
            let why = alloc::format!(
                "that of {} is empty, or has more than {MAX_ACL_BYTES} bytes",
                znode.path
            );
            return Err(Refusal::InvalidAcl(why));
        }
        match znode.kind {
            MirroredKind::Persistent | MirroredKind::Container | MirroredKind::Ttl(1..=MAX_TTL_MS) => {}
            MirroredKind::Ttl(ttl_ms) => return Err(Refusal::BadTtl(ttl_ms)),
        }
        // One more than the last number: none is left.
        match znode.creations <= MAX_SEQUENCE + 1 {
            true => Ok(()),
            false => Err(Refusal::SequenceExhausted(znode.path.clone())),
        }
    }

    fn remove_mirrored(&mut self, cx: &mut Context<'_>, path: &ZPath) -> Result<(), Refusal> {
        let Some(index) = self.tree.find(path) else {
            return Ok(());
        };
        let node = self.tree.node(index);
        if index.is_special() {
            return Err(Refusal::Undeletable(path.clone()));
        }
        if node.session().is_some() {
            return Err(Refusal::NotMirrored(path.clone()));
        }
        if node.num_children() > 0 {
            return Err(Refusal::NotEmpty(path.clone()));
        }
        let parent = node.parent;
        self.require_of_mirror(cx, parent, &[Perms::DELETE], path)?;
        self.remove_node(cx, index, path, ContenderEnd::Deleted);
        Ok(())
    }

    /// In a secured state the caller administers everything, and the lists are a part of the copy. In an open state any caller can send
    /// such commands, and then only the lists protect a znode.
    fn require_of_mirror(
        &self,
        cx: &Context<'_>,
        index: NodeIndex,
        all_of: &[Perms],
        path: &ZPath,
    ) -> Result<(), Refusal> {
        if self.access.is_secured() {
            return Ok(());
        }
        let acl = self.tree.acl(index);
        all_of
            .iter()
            .try_for_each(|perms| acl.require(*perms, cx.caller, path))
    }
}
