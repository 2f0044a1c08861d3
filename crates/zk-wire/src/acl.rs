//! Access control lists of znodes.

use crate::{DecodeError, Reader, Writer};

/// Permissions of one identity. Values are not validated.
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

    /// Reads the record. A null scheme or id reads as empty: there is no scheme with an empty name, and the
    /// id of the scheme `auth`, the only one for which ZooKeeper accepts null, is ignored.
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
