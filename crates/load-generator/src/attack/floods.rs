//! Floods: each connection sends its next request as soon as it has the response. The requests cost a
//! careless server more than they should.

use std::time::Duration;

use cli_support::http_client::Connection;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use transport_security::Stream;

use super::held::{Port, open};
use super::{AttackContext, RETRY_PAUSE};

/// Number of connections that send concurrently.
const CONNECTIONS: usize = 64;

/// The same for requests of a megabyte: enough for the node's budget of large bodies.
const LARGE_WRITERS: usize = 256;

/// Size of the data of a large write: below the maximum of a znode, 1,048,575 bytes.
const LARGE_WRITE_BYTES: usize = 1_000_000;

/// Paths with the size of a body that exceeds their default limit by one byte: a body without and with a
/// znode's data.
const OVERSIZED_BODIES: [(&str, usize); 2] = [
    ("/v1/sessions", 64 * 1024 + 1),
    ("/v1/znodes/attack", 2 * 1024 * 1024 + 1),
];

/// Bytes that begin no protocol: to ZooKeeper's it is the largest length of a request.
const GARBAGE: &[u8] = b"\x7f\xff\xff\xff\xff\x1b[2J\r\n\r\n";

/// Request of a flood.
pub struct FloodRequest {
    pub method: &'static str,
    pub path: String,
    pub body: String,
}

impl FloodRequest {
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: "GET",
            path: path.into(),
            body: String::new(),
        }
    }

    pub fn post(path: impl Into<String>, body: impl Into<String>) -> Self {
        Self {
            method: "POST",
            path: path.into(),
            body: body.into(),
        }
    }
}

/// Sends bodies that exceed the limit by one byte.
pub async fn large_bodies(context: &AttackContext) {
    // White space is valid JSON, so only the length is wrong.
    let requests = OVERSIZED_BODIES
        .map(|(path, bytes)| FloodRequest::post(path, format!("{{{}}}", " ".repeat(bytes - 2))));
    flood(context, CONNECTIONS, &requests).await;
}

/// Writes a megabyte to a znode that does not exist, so that the data passes the log and nothing stays.
pub async fn large_writes(context: &AttackContext) {
    let request = FloodRequest {
        method: "PUT",
        path: "/v1/znodes/attack/none?version=7".to_owned(),
        body: format!("{{\"data\":\"{}\"}}", "x".repeat(LARGE_WRITE_BYTES)),
    };
    flood(context, LARGE_WRITERS, &[request]).await;
}

/// Sends paths of depth 10,000: a znode's and a lock's.
pub async fn deep_paths(context: &AttackContext) {
    let deep = "/a".repeat(10_000);
    let requests = [
        FloodRequest::get(format!("/v1/znodes{deep}")),
        FloodRequest::post(format!("/v1/znodes{deep}?x=y"), "{}"),
        FloodRequest::get(format!("/v1/locks{deep}")),
    ];
    flood(context, CONNECTIONS, &requests).await;
}

/// Reads locks, znodes and a session outside the caller's prefix.
pub async fn lookups(context: &AttackContext) {
    let paths = [
        "/v1/locks/other/lock",
        "/v1/znodes/other?children=true",
        "/v1/locks/other/lock/history",
        "/v1/sessions/ffffffffffffffff",
        "/v1/locks/other/lock/check?fencing_token=1",
    ];
    flood(context, CONNECTIONS, &paths.map(FloodRequest::get)).await;
}

/// Requests releases and breaks outside the caller's prefix, with reasons that a log has to escape.
pub async fn refusals(context: &AttackContext) {
    let reason = "\\u001b".repeat(1_000);
    let request = |verb, more| {
        let body = format!("{{\"reason\":\"{reason}\"{more}}}");
        FloodRequest::post(format!("/v1/locks/other/lock/{verb}"), body)
    };
    let requests = [
        request("release-request", ""),
        request("break", ",\"holder\":\"lock-0000000001\""),
    ];
    flood(context, CONNECTIONS, &requests).await;
}

/// Opens as many sessions as possible, with the longest timeout.
pub async fn sessions(context: &AttackContext) {
    let body = "{\"ttl_ms\": 300000, \"name\": \"lockgate bench attack\"}";
    flood(context, CONNECTIONS, &[FloodRequest::post("/v1/sessions", body)]).await;
}

/// Sends the requests in turn on each of `connections`, until the attack ends.
pub async fn flood(context: &AttackContext, connections: usize, requests: &[FloodRequest]) {
    context
        .repeat(connections, RETRY_PAUSE, async |number| {
            let mut connection = context.callers.connect(number).await?;
            for request in requests.iter().cycle().skip(number % requests.len()) {
                send(context, &mut connection, request).await?;
            }
            Ok(())
        })
        .await;
}

async fn send(
    context: &AttackContext,
    connection: &mut Connection,
    request: &FloodRequest,
) -> anyhow::Result<()> {
    let answer = connection
        .send(request.method, &request.path, &request.body)
        .await?;
    context.answered(&answer);
    Ok(())
}

/// Opens and closes connections to all ports.
pub async fn reconnects(context: &AttackContext) {
    let addresses = context.addresses(&Port::ALL);
    context
        .repeat(CONNECTIONS, RETRY_PAUSE, async |number| {
            for (address, _) in addresses.iter().cycle().skip(number % addresses.len()) {
                // Reset the connection: after an ordinary close, its port would stay in use on this side for a minute.
                TcpStream::connect(address).await?.set_zero_linger()?;
                context.accepted();
                tokio::task::yield_now().await;
            }
            Ok(())
        })
        .await;
}

/// Opens and closes connections to the ports for clients, with a TLS handshake each.
pub async fn handshakes(context: &AttackContext) {
    context
        .repeat(CONNECTIONS, Duration::ZERO, async |number| {
            context.callers.connect(number).await?;
            context.accepted();
            Ok(())
        })
        .await;
}

/// Sends garbage on new connections. If the ports use TLS, every second connection begins with a handshake.
pub async fn garbage(context: &AttackContext) {
    let addresses = context.addresses(&Port::ALL);
    context
        .repeat(CONNECTIONS, RETRY_PAUSE, async |number| {
            let tls = context.callers.credentials().tls.as_ref();
            let tls = tls.filter(|_| number.is_multiple_of(2));
            for (address, port) in addresses.iter().cycle().skip(number % addresses.len()) {
                let tls = tls.filter(|_| port.serves_clients());
                let mut stream = open(address, tls, None).await?;
                stream.write_all(GARBAGE).await?;
                stream.flush().await?;
                if let Stream::Plain(socket) = stream {
                    socket.set_zero_linger()?;
                }
                context.accepted();
            }
            Ok(())
        })
        .await;
}
