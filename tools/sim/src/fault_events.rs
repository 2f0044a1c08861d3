//! Kinds of faults, and the events of the agenda that begin and repair them.

use crate::time::Micros;

/// Kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Some machines receive nothing from some others, in one direction or both.
    Partition,
    /// A link goes down and up repeatedly.
    Flapping,
    /// Links are slow, lose packets, and break connections.
    BadLinks,
    /// A process is killed.
    Kill,
    /// A machine loses power.
    PowerCut,
    /// All machines lose power at once.
    PowerCutOfAll,
    /// A node is shut down gracefully.
    Stop,
    /// A process is paused.
    Pause,
    /// A disk returns an error.
    DiskError,
    /// A disk is full.
    DiskFull,
    /// A disk is slow.
    SlowDisk,
    /// A wall clock jumps.
    WallClock,
    /// No client reaches a machine.
    ClientsCutOff,
    /// The leader is asked to hand over its leadership.
    MoveLeader,
    /// Packets from one machine to another are delayed.
    HeldUp,
    /// A machine restarts with an older copy of its disk.
    OldImage,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 16] = [
        Self::Partition,
        Self::Flapping,
        Self::BadLinks,
        Self::Kill,
        Self::PowerCut,
        Self::PowerCutOfAll,
        Self::Stop,
        Self::Pause,
        Self::DiskError,
        Self::DiskFull,
        Self::SlowDisk,
        Self::WallClock,
        Self::ClientsCutOff,
        Self::MoveLeader,
        Self::HeldUp,
        Self::OldImage,
    ];

    /// Kinds that leave a majority intact, so that in such a run sessions must always end in time. Each kind
    /// is listed as often as its weight.
    pub const GENTLE: [&[Self]; 3] = [
        &[
            Self::ClientsCutOff,
            Self::MoveLeader,
            Self::HeldUp,
            Self::WallClock,
        ],
        // A silent session lives through several leaders.
        &[Self::MoveLeader, Self::MoveLeader, Self::WallClock],
        // The last heartbeat of a session takes long to reach the leader.
        &[Self::HeldUp, Self::HeldUp, Self::ClientsCutOff],
    ];
}

/// Event of a fault.
#[derive(Debug)]
pub enum Fault {
    /// The next fault begins.
    Strike,
    /// Cut links are restored.
    Heal(Vec<(usize, usize)>),
    /// A link goes down or up, and continues to do so until a time.
    Flap {
        /// Source and target machine.
        link: (usize, usize),
        /// True if it is cut now.
        cut: bool,
        /// End of the flapping.
        until: Micros,
    },
    /// Links get their normal quality back.
    GoodLinks(Vec<(usize, usize)>),
    /// A process continues; the flag says whether its clock ran in the meantime.
    Resume(usize, bool),
    /// A disk has space again.
    Space(usize),
    /// A disk has its normal speed again.
    FastDisk(usize),
    /// Clients reach a machine again.
    ClientsBack(usize),
    /// An older copy replaces a disk, as soon as the cluster must survive that.
    OldImage(usize),
    /// A rejected node gets its newest disk back.
    NewestDisk(usize),
}
