//! ZooKeeper client that moves from node to node. The cell judges the consequences.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockgate::lock_node::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zk_wire::{ConnectRequest, ConnectResponse, Reader, Request, frame};

use crate::faulty_cluster::FaultyCluster;

/// Time limit of an answer. A running node answers within this, unless a fault delays it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout of a session without heartbeats.
const SHORTEST_MS: i32 = 2_000;

impl FaultyCluster {
    /// Opens a session at the first node, writes, and resumes it at each of the others in turn.
    pub async fn reconnect_everywhere(&self) {
        let mut ticket = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: SHORTEST_MS,
            session_id: 0,
            password: Some(Bytes::from_static(&[0; 16])),
            read_only: Some(false),
        };
        let ids = self.ids();
        for id in ids.iter().chain(&ids) {
            let visit = tokio::time::timeout(ANSWER_TIMEOUT, self.visit(*id, &ticket)).await;
            // A node that does not answer has met its fault, or no longer runs.
            if let Ok(Ok(granted)) = visit {
                ticket.session_id = granted.session_id;
                ticket.password = granted.password;
            }
        }
    }

    /// Connects, and sends a request.
    async fn visit(&self, id: NodeId, ticket: &ConnectRequest) -> io::Result<ConnectResponse> {
        let mut stream = TcpStream::connect(self.zookeeper_address(id)).await?;
        let mut bytes = BytesMut::new();
        ticket.write_frame(&mut bytes);
        let ask = Request::SetData {
            path: "/fp".to_owned(),
            data: None,
            version: -1,
        };
        ask.write_frame(1, &mut bytes);
        stream.write_all(&bytes).await?;
        let granted = receive(&mut stream, &mut BytesMut::new()).await?;
        let granted = ConnectResponse::decode(&mut Reader::new(granted)).map_err(io::Error::other)?;
        // The content of the response does not matter; it has arrived.
        let mut rest = [0; 64];
        stream.read(&mut rest).await.map(|_| granted)
    }
}

async fn receive(stream: &mut TcpStream, inbox: &mut BytesMut) -> io::Result<Bytes> {
    loop {
        if let Some(body) = frame::take(inbox, frame::DEFAULT_MAX_LENGTH).map_err(io::Error::other)? {
            return Ok(body);
        }
        if stream.read_buf(inbox).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
