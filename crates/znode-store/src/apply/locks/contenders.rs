//! Changes of a contender's znode, which the steps of the lock protocol share.

use crate::apply::context::Context;
use crate::model::event::ContenderEnd;
use crate::store::Store;
use crate::store::resolve::ResolvedContender;

impl Store {
    /// Removes the znode of a contender, and with it the contender.
    pub(crate) fn remove_contender(
        &mut self,
        cx: &mut Context<'_>,
        found: &ResolvedContender,
        how: ContenderEnd,
    ) {
        self.remove_child(cx, found.index, found.lock.znode(), &found.path, how);
    }

    /// Writes a record that was changed back to its znode.
    pub(crate) fn rewrite(&mut self, cx: &mut Context<'_>, found: &mut ResolvedContender) {
        let record = found
            .record
            .as_ref()
            .expect("only records of our own making are changed");
        found.holds = record.holds();
        let data = self.locks.write(&found.path, found.number, record);
        self.replace_data(cx, found.index, &found.path, data);
    }
}
