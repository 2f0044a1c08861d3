//! Data of a znode: bytes, no bytes, or null.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserializer, Serializer};

use crate::stable_hash;

/// Maximum data of one znode in bytes: ZooKeeper's default (`jute.maxbuffer`, just under 1 MiB).
pub const MAX_DATA_BYTES: usize = 1024 * 1024 - 1;

/// Data of a znode: some bytes, none, or null. ZooKeeper clients can write null, and distinguish it from no bytes. Cheap to clone.
///
/// It has no `Serialize` of its own: the log and snapshots mark null in another place than the bytes. See `bytes_alone`.
#[derive(Clone, PartialEq, Eq)]
pub struct Data(
    /// Allocated bytes, or `None` for no bytes. An allocation of no bytes stands for null, which is rarer. `triomphe::Arc` has no count of weak
    /// references, unlike the standard one. That saves eight bytes for each of a million znodes, and sixteen if the data then fits into the
    /// allocator's next smaller size.
    pub(crate) Option<triomphe::Arc<[u8]>>,
);

impl Data {
    /// Returns data of no bytes.
    pub fn empty() -> Self {
        Self(None)
    }

    /// Returns null.
    pub fn null() -> Self {
        Self(Some([].as_slice().into()))
    }

    /// Returns whether it is null.
    pub fn is_null(&self) -> bool {
        self.0.as_ref().is_some_and(|bytes| bytes.is_empty())
    }

    /// Returns the bytes, or no bytes if the data is null.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns the bytes, or `None` if the data is null.
    pub fn non_null(&self) -> Option<&[u8]> {
        (!self.is_null()).then(|| self.as_bytes())
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Returns whether there are no bytes. Null has none either.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns its share of a digest.
    pub(crate) fn digest(&self) -> u64 {
        Self::digest_of(self.as_bytes(), self.is_null())
    }

    /// Returns the share of data with these bytes in a digest.
    pub(crate) fn digest_of(bytes: &[u8], is_null: bool) -> u64 {
        let bytes = stable_hash::of_bytes(bytes);
        // Any value would do that differs from the hash of no bytes.
        if is_null { !bytes } else { bytes }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<&[u8]> for Data {
    fn from(bytes: &[u8]) -> Self {
        Self((!bytes.is_empty()).then(|| bytes.into()))
    }
}

/// `None` is null.
impl From<Option<&[u8]>> for Data {
    fn from(bytes: Option<&[u8]>) -> Self {
        bytes.map_or_else(Self::null, Self::from)
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Self((!bytes.is_empty()).then(|| bytes.into()))
    }
}

impl From<&str> for Data {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.non_null().map(core::str::from_utf8) {
            None => f.write_str("null"),
            Some(Ok(text)) => write!(f, "{text:?}"),
            Some(Err(_)) => write!(f, "({} bytes)", self.len()),
        }
    }
}

/// Encoding of data as one run of bytes, for places where null is marked elsewhere or cannot be: null becomes no bytes.
pub(crate) mod bytes_alone {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(data: &Data, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(data.as_bytes())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Data, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Data;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Data, E> {
                Ok(bytes.into())
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Data, E> {
                Ok(bytes.into())
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}
