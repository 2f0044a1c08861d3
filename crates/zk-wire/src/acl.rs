//! Who may do what with a znode, as it is written.

use crate::{DecodeError, Reader, Writer};

/// Rights, and who has them. Nothing is checked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct AclEntry {
    pub perms: i32,
    pub scheme: String,
    pub id: String,
}

impl AclEntry {
    /// Appends the record.
    pub fn encode(&self, to: &mut Writer<'_>) {
        to.int(self.perms);
        to.text(&self.scheme);
        to.text(&self.id);
    }

    /// Reads the record. A scheme or id that is null reads as empty: there is no scheme of that name, and the id of
    /// `auth`, the one for which ZooKeeper takes null, is not looked at.
    pub fn decode(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            perms: from.int()?,
            scheme: from.nullable_text()?.unwrap_or_default(),
            id: from.nullable_text()?.unwrap_or_default(),
        })
    }

    pub(crate) fn encode_list(entries: &[Self], to: &mut Writer<'_>) {
        to.vector(entries, |to, entry| entry.encode(to));
    }

    pub(crate) fn encode_nullable_list(entries: Option<&[Self]>, to: &mut Writer<'_>) {
        to.nullable_vector(entries, |to, entry| entry.encode(to));
    }
}
