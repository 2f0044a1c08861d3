//! Requests as fast as they are answered, of kinds that cost a server more than they should if it is careless.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use cli_support::http_client::Connection;
use futures_util::FutureExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Got, Means};
use crate::nodes::Nodes;

/// So many connections send at a time.
const SENDERS: usize = 64;

/// The largest bodies without and with data of a znode, as they are configured unless somebody says otherwise, and one byte.
const ONE_TOO_MANY: [(&str, usize); 2] = [
    ("/v1/sessions", 64 * 1024 + 1),
    ("/v1/znodes/attack", 2 * 1024 * 1024 + 1),
];

/// What one request can look like.
struct Shot {
    method: &'static str,
    path: String,
    body: String,
}

/// Bodies of one byte more than there may be.
pub async fn large_bodies(means: &Means) -> anyhow::Result<Got> {
    let shots = ONE_TOO_MANY.map(|(path, bytes)| Shot {
        method: "POST",
        path: path.to_owned(),
        // White space is JSON, too, so only the length is wrong.
        body: format!("{{{}}}", " ".repeat(bytes - 2)),
    });
    shoot(means, shots.into()).await
}

/// Paths of depth 10,000, of a znode and of a lock.
pub async fn deep_paths(means: &Means) -> anyhow::Result<Got> {
    let deep = "/a".repeat(10_000);
    let shot = |method, path| Shot {
        method,
        path,
        body: String::new(),
    };
    let lock = format!("/v1/locks{deep}");
    let shots = vec![
        shot("GET", format!("/v1/znodes{deep}")),
        Shot {
            body: "{}".to_owned(),
            ..shot("POST", format!("/v1/znodes{deep}?x=y"))
        },
        shot("GET", lock),
    ];
    shoot(means, shots).await
}

/// As many sessions as can be opened, of the longest time.
pub async fn sessions(means: &Means) -> anyhow::Result<Got> {
    let body = "{\"ttl_ms\": 300000, \"name\": \"lockgate bench attack\"}".to_owned();
    shoot(
        means,
        vec![Shot {
            method: "POST",
            path: "/v1/sessions".to_owned(),
            body,
        }],
    )
    .await
}

async fn shoot(means: &Means, shots: Vec<Shot>) -> anyhow::Result<Got> {
    let shots = Rc::new(shots);
    let mut senders = JoinSet::new();
    for number in 0..SENDERS {
        let nodes = means.callers.clone();
        senders.spawn_local(sender(nodes, shots.clone(), number, means.over.clone()).boxed_local());
    }
    together(senders).await
}

/// What all of them got.
pub async fn together(mut attackers: JoinSet<Got>) -> anyhow::Result<Got> {
    let mut all = Got::default();
    while let Some(got) = attackers.join_next().await {
        all.add(got.context("an attacker")?);
    }
    Ok(all)
}

/// An error in a word, so that equal ones are counted together.
pub fn kind_of(error: &anyhow::Error) -> String {
    match error.downcast_ref::<io::Error>() {
        Some(error) => error.kind().to_string(),
        None => error.to_string(),
    }
}

async fn sender(nodes: Nodes, shots: Rc<Vec<Shot>>, number: usize, over: CancellationToken) -> Got {
    let mut got = Got::default();
    let mut connection: Option<Connection> = None;
    for shot in shots.iter().cycle().skip(number % shots.len()) {
        let send = async {
            let mut open = match connection.take() {
                Some(open) => open,
                None => nodes.connect(number).await?,
            };
            let answer = open.send(shot.method, &shot.path, &shot.body).await?;
            anyhow::Ok((open, answer))
        };
        let sent = tokio::select! {
            sent = send => sent,
            () = over.cancelled() => return got,
        };
        got.tried += 1;
        match sent {
            Ok((open, answer)) => {
                if answer.status < 300 {
                    got.let_in += 1;
                }
                got.answer(answer.status.to_string());
                connection = Some(open);
            }
            Err(error) => {
                got.answer(kind_of(&error));
                // Who is hung up on in the middle of a body comes again, but a server that is gone is not called in a loop.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    got
}

/// Opens connections, to every port, and closes them.
pub async fn reconnects(means: &Means) -> anyhow::Result<Got> {
    let mut callers = JoinSet::new();
    for number in 0..SENDERS {
        let node = &means.nodes[number % means.nodes.len()];
        let addresses: Vec<String> = node.addresses().map(str::to_owned).collect();
        let over = means.over.clone();
        callers.spawn_local(
            async move {
                let mut got = Got::default();
                for address in addresses.iter().cycle() {
                    let connected = tokio::select! {
                        connected = TcpStream::connect(address) => connected,
                        () = over.cancelled() => return got,
                    };
                    got.tried += 1;
                    match connected {
                        Ok(stream) => {
                            // Reset at once: a closed connection would keep its port on this side for a minute.
                            match stream.set_zero_linger() {
                                Ok(()) => got.let_in += 1,
                                Err(error) => got.answer(error.kind().to_string()),
                            }
                        }
                        Err(error) => got.answer(error.kind().to_string()),
                    }
                    tokio::task::yield_now().await;
                }
                got
            }
            .boxed_local(),
        );
    }
    together(callers).await
}

/// Makes handshakes, at the ports of clients, and closes.
pub async fn handshakes(means: &Means) -> anyhow::Result<Got> {
    let mut callers = JoinSet::new();
    for number in 0..SENDERS {
        let (nodes, over) = (means.callers.clone(), means.over.clone());
        callers.spawn_local(
            async move {
                let mut got = Got::default();
                loop {
                    let connected = tokio::select! {
                        connected = nodes.connect(number) => connected,
                        () = over.cancelled() => return got,
                    };
                    got.tried += 1;
                    match connected {
                        Ok(_) => got.let_in += 1,
                        Err(error) => got.answer(kind_of(&error)),
                    }
                }
            }
            .boxed_local(),
        );
    }
    together(callers).await
}
