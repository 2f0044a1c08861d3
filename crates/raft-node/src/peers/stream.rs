//! What a connection of peers is made of: TCP, with TLS over it where the node is configured so, and nothing else in a program
//! that serves anybody. With the feature `simulation` it may also be a simulated one, which nobody listens to.

use std::io;

use tokio::net::TcpStream;
use transport_security::{HandshakeError, PeerName, PeerTls, Stream};

use crate::config::NodeId;

#[cfg(feature = "simulation")]
pub(crate) use crate::simulation::{PeerListener, PeerStream, Protected, ReadHalf, WriteHalf};

#[cfg(not(feature = "simulation"))]
pub use tokio::net::{TcpListener as PeerListener, TcpStream as PeerStream};
#[cfg(not(feature = "simulation"))]
pub use transport_security::{ReadHalf, Stream as Protected, WriteHalf};

/// What is spoken on with the node `to`, which was called.
pub async fn protect_called(stream: PeerStream, to: NodeId, tls: Option<&PeerTls>) -> io::Result<Protected> {
    let socket = match socket_of(stream) {
        Ok(socket) => socket,
        Err(simulated) => return Ok(simulated),
    };
    let stream = match tls {
        Some(tls) => tls.connect(to, socket).await?,
        None => Stream::Plain(socket),
    };
    Ok(protected(stream))
}

/// What is spoken on with who has called, and which node its certificate says that is. Without TLS every caller is whom it says
/// it is.
pub async fn protect_accepted(
    stream: PeerStream,
    tls: Option<&PeerTls>,
) -> Result<(Protected, Option<PeerName>), HandshakeError> {
    let socket = match socket_of(stream) {
        Ok(socket) => socket,
        Err(simulated) => return Ok((simulated, None)),
    };
    let Some(tls) = tls else {
        return Ok((protected(Stream::Plain(socket)), None));
    };
    let (stream, name) = tls.accept(socket).await?;
    Ok((protected(stream), Some(name)))
}

#[cfg(not(feature = "simulation"))]
fn socket_of(stream: PeerStream) -> Result<TcpStream, Protected> {
    Ok(stream)
}

#[cfg(not(feature = "simulation"))]
fn protected(stream: Stream) -> Protected {
    stream
}

#[cfg(feature = "simulation")]
fn socket_of(stream: PeerStream) -> Result<TcpStream, Protected> {
    match stream {
        PeerStream::Tcp(socket) => Ok(socket),
        PeerStream::Simulated(line) => Err(Protected::Simulated(line)),
    }
}

#[cfg(feature = "simulation")]
fn protected(stream: Stream) -> Protected {
    Protected::Real(stream)
}
