//! Data of a node in the tree: bytes as a client wrote them, or the record of a contender, whose bytes follow from it.

use alloc::sync::Arc;

use crate::model::contender::Written;
use crate::model::data::Data;

/// Data of a node. Each of a million nodes has one, so it takes only the space of a slice pointer, which leaves room for one more variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeData {
    /// Allocated bytes, or null.
    Allocated(triomphe::Arc<[u8]>),
    /// Record of a contender, or no bytes.
    Other(Option<Arc<Written>>),
}

const _: () = assert!(size_of::<NodeData>() == size_of::<Data>());

impl NodeData {
    /// Returns the record of a contender as data.
    pub(crate) fn of_contender(record: Arc<Written>) -> Self {
        Self::Other(Some(record))
    }

    /// Returns the record of a contender.
    pub(crate) fn record(&self) -> Option<&Arc<Written>> {
        match self {
            Self::Other(record) => record.as_ref(),
            Self::Allocated(_) => None,
        }
    }

    /// Returns the bytes of data that is no record, or no bytes if it is null.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Allocated(bytes) => bytes,
            Self::Other(_) => &[],
        }
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Other(Some(record)) => record.json_bytes(),
            Self::Other(None) | Self::Allocated(_) => self.bytes().len(),
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Allocated(bytes) if bytes.is_empty())
    }

    /// Returns its share of a digest.
    pub(crate) fn digest(&self) -> u64 {
        match self {
            Self::Other(Some(record)) => record.digest(),
            Self::Other(None) | Self::Allocated(_) => Data::digest_of(self.bytes(), self.is_null()),
        }
    }

    /// Returns the data as clients read it. For a contender it encodes the record.
    pub(crate) fn to_data(&self) -> Data {
        match self {
            Self::Allocated(bytes) => Data(Some(bytes.clone())),
            Self::Other(None) => Data::empty(),
            Self::Other(Some(record)) => record.to_data(),
        }
    }
}

impl From<Data> for NodeData {
    fn from(Data(bytes): Data) -> Self {
        bytes.map_or(Self::Other(None), Self::Allocated)
    }
}
