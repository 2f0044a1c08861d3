//! Floods: each connection sends its next request as soon as it has the response. The requests cost a
//! careless server more than they should.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use cli_support::http_client::Connection;
use futures_util::FutureExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{AttackContext, AttackOutcome};
use crate::nodes::Nodes;

/// Number of connections that send concurrently.
const CONNECTIONS: usize = 64;

/// Paths with the size of a body that exceeds their default limit by one byte: a body without and with a
/// znode's data.
const OVERSIZED_BODIES: [(&str, usize); 2] = [
    ("/v1/sessions", 64 * 1024 + 1),
    ("/v1/znodes/attack", 2 * 1024 * 1024 + 1),
];

/// Request of a flood.
struct FloodRequest {
    method: &'static str,
    path: String,
    body: String,
}

/// Sends bodies that exceed the limit by one byte.
pub async fn large_bodies(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let requests = OVERSIZED_BODIES.map(|(path, bytes)| FloodRequest {
        method: "POST",
        path: path.to_owned(),
        // White space is valid JSON, so only the length is wrong.
        body: format!("{{{}}}", " ".repeat(bytes - 2)),
    });
    flood(context, requests.into()).await
}

/// Sends paths of depth 10,000: a znode's and a lock's.
pub async fn deep_paths(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let deep = "/a".repeat(10_000);
    let request = |method, path| FloodRequest {
        method,
        path,
        body: String::new(),
    };
    let lock = format!("/v1/locks{deep}");
    let requests = vec![
        request("GET", format!("/v1/znodes{deep}")),
        FloodRequest {
            body: "{}".to_owned(),
            ..request("POST", format!("/v1/znodes{deep}?x=y"))
        },
        request("GET", lock),
    ];
    flood(context, requests).await
}

/// Opens as many sessions as possible, with the longest timeout.
pub async fn sessions(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let body = "{\"ttl_ms\": 300000, \"name\": \"lockgate bench attack\"}".to_owned();
    flood(
        context,
        vec![FloodRequest {
            method: "POST",
            path: "/v1/sessions".to_owned(),
            body,
        }],
    )
    .await
}

async fn flood(context: &AttackContext, requests: Vec<FloodRequest>) -> anyhow::Result<AttackOutcome> {
    let requests = Rc::new(requests);
    let mut senders = JoinSet::new();
    for number in 0..CONNECTIONS {
        let nodes = context.callers.clone();
        senders.spawn_local(sender(nodes, requests.clone(), number, context.stop.clone()).boxed_local());
    }
    sum_outcomes(senders).await
}

/// Awaits all tasks and sums their outcomes.
pub async fn sum_outcomes(mut attackers: JoinSet<AttackOutcome>) -> anyhow::Result<AttackOutcome> {
    let mut all = AttackOutcome::default();
    while let Some(outcome) = attackers.join_next().await {
        all.add(outcome.context("a task of the attack panicked")?);
    }
    Ok(all)
}

/// Short name of an error, so that equal errors are counted together.
pub fn error_name(error: &anyhow::Error) -> String {
    match error.downcast_ref::<io::Error>() {
        Some(error) => error.kind().to_string(),
        None => error.to_string(),
    }
}

async fn sender(
    nodes: Nodes,
    requests: Rc<Vec<FloodRequest>>,
    number: usize,
    stop: CancellationToken,
) -> AttackOutcome {
    let mut outcome = AttackOutcome::default();
    let mut connection: Option<Connection> = None;
    for request in requests.iter().cycle().skip(number % requests.len()) {
        let send = async {
            let mut open = match connection.take() {
                Some(open) => open,
                None => nodes.connect(number).await?,
            };
            let answer = open.send(request.method, &request.path, &request.body).await?;
            anyhow::Ok((open, answer))
        };
        let sent = tokio::select! {
            sent = send => sent,
            () = stop.cancelled() => return outcome,
        };
        outcome.attempts += 1;
        match sent {
            Ok((open, answer)) => {
                if answer.status < 300 {
                    outcome.accepted += 1;
                }
                outcome.answer(answer.status.to_string());
                connection = Some(open);
            }
            Err(error) => {
                outcome.answer(error_name(&error));
                // The server may have closed the connection in the middle of a body. The pause avoids a busy
                // loop if the server is down.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    outcome
}

/// Opens and closes connections to all ports.
pub async fn reconnects(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let mut callers = JoinSet::new();
    for number in 0..CONNECTIONS {
        let node = &context.nodes[number % context.nodes.len()];
        let addresses: Vec<String> = node.addresses().map(str::to_owned).collect();
        let stop = context.stop.clone();
        callers.spawn_local(
            async move {
                let mut outcome = AttackOutcome::default();
                for address in addresses.iter().cycle() {
                    let connected = tokio::select! {
                        connected = TcpStream::connect(address) => connected,
                        () = stop.cancelled() => return outcome,
                    };
                    outcome.attempts += 1;
                    match connected {
                        Ok(stream) => {
                            // Reset the connection: after an ordinary close, its port would stay in use on
                            // this side for a minute.
                            match stream.set_zero_linger() {
                                Ok(()) => outcome.accepted += 1,
                                Err(error) => outcome.answer(error.kind().to_string()),
                            }
                        }
                        Err(error) => outcome.answer(error.kind().to_string()),
                    }
                    tokio::task::yield_now().await;
                }
                outcome
            }
            .boxed_local(),
        );
    }
    sum_outcomes(callers).await
}

/// Opens and closes connections to the ports for clients, with a TLS handshake each.
pub async fn handshakes(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let mut callers = JoinSet::new();
    for number in 0..CONNECTIONS {
        let (nodes, stop) = (context.callers.clone(), context.stop.clone());
        callers.spawn_local(
            async move {
                let mut outcome = AttackOutcome::default();
                loop {
                    let connected = tokio::select! {
                        connected = nodes.connect(number) => connected,
                        () = stop.cancelled() => return outcome,
                    };
                    outcome.attempts += 1;
                    match connected {
                        Ok(_) => outcome.accepted += 1,
                        Err(error) => outcome.answer(error_name(&error)),
                    }
                }
            }
            .boxed_local(),
        );
    }
    sum_outcomes(callers).await
}
