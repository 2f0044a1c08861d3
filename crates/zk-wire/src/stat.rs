//! Stat of a znode.

use crate::{DecodeError, Reader, Writer};

/// Stat of a znode, with the server's own zxids, times (in milliseconds since 1970) and session ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct Stat {
    pub czxid: i64,
    pub mzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub cversion: i32,
    pub aversion: i32,
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub num_children: i32,
    pub pzxid: i64,
}

impl Stat {
    /// Appends the record of 68 bytes.
    pub fn encode(&self, to: &mut Writer<'_>) {
        to.long(self.czxid);
        to.long(self.mzxid);
        to.long(self.ctime);
        to.long(self.mtime);
        to.int(self.version);
        to.int(self.cversion);
        to.int(self.aversion);
        to.long(self.ephemeral_owner);
        to.int(self.data_length);
        to.int(self.num_children);
        to.long(self.pzxid);
    }

    /// Reads the record.
    pub fn decode(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            czxid: from.long()?,
            mzxid: from.long()?,
            ctime: from.long()?,
            mtime: from.long()?,
            version: from.int()?,
            cversion: from.int()?,
            aversion: from.int()?,
            ephemeral_owner: from.long()?,
            data_length: from.int()?,
            num_children: from.int()?,
            pzxid: from.long()?,
        })
    }
}
