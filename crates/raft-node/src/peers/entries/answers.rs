//! Follower's end of a stream of entries: sends the result of each append, in order.

use std::io;

use bytes::BytesMut;
use futures_util::{Stream, StreamExt, stream};
use tokio::io::AsyncWrite;

use crate::peers::server::{Services, bad_data};
use crate::peers::stream::{ReadHalf, WriteHalf};
use crate::peers::wire::{
    FrameReader, QUIET_SINCE, WireAppend, WireAppendResult, WireEntry, put_frame, send_frames,
};
use fault_injection::fail_step;

/// Maximum number of results per write. A leader has few appends in transit for each sync of the follower.
const MAX_RESULTS_PER_WRITE: usize = 16;

/// Serves one stream of entries as long as the log has room for them. A leader whose stream was closed
/// retries after a pause. Heartbeats use another connection, so this node still follows and votes.
///
/// `version` is the negotiated version of the peer protocol, if known.
pub async fn serve(
    version: Option<u16>,
    reader: FrameReader<ReadHalf>,
    writer: WriteHalf,
    services: &Services,
) -> io::Result<()> {
    let wal = services.storage.wal.clone();
    if wal.is_full() {
        return Err(io::Error::new(io::ErrorKind::StorageFull, "the log has no room"));
    }
    let may_be_quiet = version.is_some_and(|version| version >= QUIET_SINCE);
    let evidence = services.fast_failover.clone();
    let requests = stream::unfold(
        (reader, wal, evidence),
        |(mut reader, wal, evidence)| async move {
            match next_append(&mut reader).await {
                Ok(Some(append)) => {
                    evidence.record_leader_message(&append.vote);
                    let room = wal.has_room_for(append.entries.iter().map(WireEntry::bytes));
                    if !room {
                        tracing::debug!("peers: the log has no room for these entries");
                    }
                    room.then(|| (append.into(), (reader, wal, evidence)))
                }
                Ok(None) => None,
                Err(error) => {
                    tracing::debug!(%error, "peers: a stream of entries broke");
                    None
                }
            }
        },
    );
    let results = services.raft.stream_append(requests).map(|result| {
        let result = result.map_err(io::Error::other)?;
        Ok(match WireAppendResult::from(result) {
            WireAppendResult::Stored(last) if may_be_quiet && !services.application.awaits_entries() => {
                WireAppendResult::StoredQuietly(last)
            }
            result => result,
        })
    });
    answer(Box::pin(results), writer).await
}

/// Sends the result of each append, in order, until the stream ends. One sync completes several appends, whose results are sent in one write.
pub(super) async fn answer(
    results: impl Stream<Item = io::Result<WireAppendResult>> + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut out = BytesMut::new();
    let mut results = results.ready_chunks(MAX_RESULTS_PER_WRITE);
    let mut failed = None;
    while failed.is_none()
        && let Some(ready) = results.next().await
    {
        for result in ready {
            match result {
                Ok(result) => put_frame(&mut out, &result),
                Err(error) => failed = Some(error),
            }
        }
        fail_step!(async "append::before_reply", |error| error);
        send_frames(&mut writer, &out).await?;
        fail_step!(async "append::after_reply", |error| error);
        out.clear();
    }
    failed.map_or(Ok(()), Err)
}

async fn next_append(reader: &mut FrameReader<ReadHalf>) -> io::Result<Option<WireAppend>> {
    let append: Option<WireAppend> = reader.message().await?;
    fail_step!(async "append::after_receive", |error| error);
    append.map(WireAppend::validated).transpose().map_err(bad_data)
}
