//! Packets of the network.

/// Id of a connection.
pub type ConnId = u64;

/// Packet that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// Request for a connection.
    Call,
    /// The connection was accepted.
    Accepted,
    /// The connection was refused: no process listens.
    Refused,
    /// The next bytes, or the end, in one direction.
    Parcel(usize),
    /// One end is notified that the connection is broken.
    Reset(usize),
}

impl Packet {
    pub(crate) fn kind(self) -> u64 {
        match self {
            Self::Call => 0,
            Self::Accepted => 1,
            Self::Refused => 2,
            Self::Parcel(direction) => 3 + direction as u64,
            Self::Reset(end) => 5 + end as u64,
        }
    }
}
