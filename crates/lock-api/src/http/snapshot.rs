//! Route that streams a backup. `lock_node::backup` defines the content of a backup, and restores it.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use futures_util::stream;
use lock_node::backup::Backup;
use serde::Deserialize;
use tokio::sync::mpsc;
use tracing::{info, warn};
use utoipa::IntoParams;
use znode_store::{Right, ZPath};

use super::auth::RevocationWatch;
use super::extract::{HandlerResult, query};
use super::{Peer, Shared};

/// Time without progress after which a receiver is disconnected: it occupies one of the few concurrent backups.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Number of chunks on their way to a receiver. One is read from the disk while the one before is sent.
const CHUNKS_QUEUED: usize = 1;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SnapshotQuery {
    /// Include everything that was acknowledged before the request.
    #[serde(default = "yes")]
    linearizable: bool,
}

fn yes() -> bool {
    true
}

/// `GET /v1/snapshot`: streams the file from the disk.
pub async fn download(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let SnapshotQuery { linearizable } = query(&uri)?;
    let revocation = RevocationWatch::begin(&api.node, &peer);
    let entry = api
        .audit_log
        .begin(&peer, "download_backup", format!("of node {}", api.node.id()));
    let backup = entry.end(api.node.backup(linearizable).await)?;
    let head = backup.head();
    let name = format!("attachment; filename=\"lockgate-{}.backup\"", head.index);
    info!(
        index = head.index,
        bytes = backup.bytes(),
        "a backup is downloaded"
    );
    let length = HeaderValue::from(backup.bytes());
    let (chunks, mut queue) = mpsc::channel(CHUNKS_QUEUED);
    // The task ends with the file, or with the connection, which drops the queue.
    tokio::spawn(send(api, backup, chunks, revocation));
    let body = stream::poll_fn(move |cx| queue.poll_recv(cx));
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, length);
    headers.insert(
        CONTENT_DISPOSITION,
        HeaderValue::from_str(&name).expect("it is ASCII"),
    );
    Ok(response)
}

async fn send(
    api: Shared,
    backup: Backup,
    chunks: mpsc::Sender<io::Result<Bytes>>,
    mut revocation: RevocationWatch,
) {
    let made_at_ms = backup.head().made_at_ms;
    let may_not = revocation.revoked(|view| view.may(Right::Administer, &ZPath::root()));
    tokio::select! {
        biased;
        // The connection ends before the announced length.
        refusal = may_not => warn!(%refusal, "backup: stopped, because the receiver lost its permission"),
        all = send_all(backup, &chunks) => if all {
            api.node.backup_drawn(made_at_ms);
        }
    }
}

/// Sends the backup. Returns `true` if the receiver has taken all of it.
async fn send_all(mut backup: Backup, chunks: &mpsc::Sender<io::Result<Bytes>>) -> bool {
    loop {
        let chunk = match backup.next_chunk().await {
            Ok(Some(chunk)) => Ok(chunk),
            Ok(None) => return true,
            Err(error) => {
                warn!(%error, "backup: could not read the file to its end");
                Err(error)
            }
        };
        let failed = chunk.is_err();
        match tokio::time::timeout(RECEIVE_TIMEOUT, chunks.send(chunk)).await {
            Ok(Ok(())) if !failed => {}
            // The receiver has disconnected, or got the error.
            Ok(_) => return false,
            // The connection ends before the announced length, so the receiver does not take this for the end.
            Err(_) => {
                warn!("backup: stopped, because the receiver does not read");
                return false;
            }
        }
    }
}
