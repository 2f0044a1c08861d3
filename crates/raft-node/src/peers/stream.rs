//! What a connection of peers is made of: TCP, and nothing else in a program that serves anybody. With the feature
//! `simulation` it may also be a simulated one.

#[cfg(feature = "simulation")]
pub(crate) use crate::simulation::{PeerListener, PeerStream, ReadHalf, WriteHalf};

#[cfg(not(feature = "simulation"))]
pub use tokio::net::{
    TcpListener as PeerListener, TcpStream as PeerStream,
    tcp::{OwnedReadHalf as ReadHalf, OwnedWriteHalf as WriteHalf},
};
