//! Tests of the messages between a leader and a follower, and of their timing.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{FutureExt, stream};
use openraft::raft::AppendEntriesRequest;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc;

use super::*;
use crate::types::{Entry, LogId, Vote, log_id};

type Requests = mpsc::UnboundedSender<AppendEntriesRequest<TypeConfig>>;

/// Time limit, longer than any step takes; the clock is simulated.
const TIMEOUT: Duration = Duration::from_secs(5);

fn at(index: u64) -> LogId {
    log_id(1, index)
}

/// Returns an append of the entries after `prev` up to `last`.
fn append(prev: u64, last: u64, commit: u64) -> AppendEntriesRequest<TypeConfig> {
    AppendEntriesRequest {
        vote: Vote::new_committed(1, 1),
        prev_log_id: Some(at(prev)),
        leader_commit: Some(at(commit)),
        entries: (prev + 1..=last)
            .map(|index| Entry {
                log_id: at(index),
                payload: openraft::EntryPayload::Blank,
            })
            .collect(),
    }
}

fn stored(index: u64) -> WireAppendResult {
    WireAppendResult::Stored(Some((&at(index)).into()))
}

/// A leader's stream, and the follower's end of its connection.
struct Line {
    requests: Requests,
    follower: FrameReader<ReadHalf<DuplexStream>>,
    answers: WriteHalf<DuplexStream>,
    floor: watch::Sender<u64>,
}

type Stream = std::pin::Pin<Box<dyn futures_util::Stream<Item = AppendEntriesRequest<TypeConfig>>>>;

fn line() -> (
    Line,
    Appends<Stream, ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>,
) {
    let (requests, taken) = mpsc::unbounded_channel();
    let input: Stream = Box::pin(stream::unfold(taken, |mut taken| async move {
        Some((taken.recv().await?, taken))
    }));
    let (here, there) = duplex(64 * 1024);
    let (reader, writer) = split(here);
    let (floor, below) = watch::channel(0);
    let appends = Appends::new(below, 0, FrameReader::new(reader), writer, input, TIMEOUT);
    let (reader, answers) = split(there);
    let line = Line {
        requests,
        follower: FrameReader::new(reader),
        answers,
        floor,
    };
    (line, appends)
}

impl Line {
    async fn receive(&mut self) -> WireAppend {
        self.follower
            .message()
            .await
            .unwrap()
            .expect("the connection is open")
    }

    /// Sends all these results in one write.
    async fn send_results(&mut self, results: &[WireAppendResult]) {
        let mut out = BytesMut::new();
        results.iter().for_each(|result| put_frame(&mut out, result));
        send_frames(&mut self.answers, &out).await.unwrap();
    }
}

fn stored_quietly(index: u64) -> WireAppendResult {
    WireAppendResult::StoredQuietly(Some((&at(index)).into()))
}

/// Returns a stream on which entry 2 was sent and answered with `answer`.
async fn line_in_use(
    answer: WireAppendResult,
) -> (
    Line,
    Appends<Stream, ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>,
) {
    let (mut line, mut appends) = line();
    line.requests.send(append(1, 2, 1)).unwrap();
    let follower = async {
        line.receive().await;
        line.send_results(&[answer]).await;
    };
    let (answer, ()) = tokio::join!(appends.next_answer(), follower);
    assert!(matches!(answer, Ok(Some(Ok(Some(last)))) if last == at(2)));
    (line, appends)
}

#[tokio::test(start_paused = true)]
async fn commit_index_is_sent_with_the_next_entries_if_they_follow_soon() {
    for answer in [stored(2), stored_quietly(2)] {
        let (mut line, mut appends) = line_in_use(answer).await;
        // Entries that are ready behind the commit carry it, too, so it is sent once.
        line.requests.send(append(2, 2, 2)).unwrap();
        line.requests.send(append(2, 3, 2)).unwrap();
        let follower = async {
            let with_it = line.receive().await;
            assert_eq!(with_it.entries.len(), 1);
            assert_eq!(with_it.commit, Some((&at(2)).into()));
            // Of two answers that arrive together, the most advanced one suffices.
            line.send_results(&[stored(3)]).await;
        };
        let (answer, ()) = tokio::join!(appends.next_answer(), follower);
        assert!(matches!(answer, Ok(Some(Ok(Some(last)))) if last == at(3)));
        assert!(appends.in_flight.is_empty());
        assert_eq!(appends.bytes_in_flight, 0);

        // The commit index is sent alone if no entries follow.
        line.requests.send(append(3, 3, 3)).unwrap();
        let follower = async {
            let commit = line.receive().await;
            assert!(commit.entries.is_empty());
            assert_eq!(commit.commit, Some((&at(3)).into()));
            line.send_results(&[stored(3)]).await;
        };
        let (answer, ()) = tokio::join!(appends.next_answer(), follower);
        assert!(matches!(answer, Ok(Some(Ok(Some(last)))) if last == at(3)));
        line.floor.send_replace(0);
    }
}

#[tokio::test(start_paused = true)]
async fn most_advanced_of_simultaneous_answers_is_returned() {
    let (mut line, mut appends) = line_in_use(stored(2)).await;
    line.requests.send(append(2, 3, 2)).unwrap();
    line.requests.send(append(3, 4, 2)).unwrap();
    let follower = async {
        line.receive().await;
        line.receive().await;
        line.send_results(&[stored(3), stored_quietly(4)]).await;
    };
    let (answer, ()) = tokio::join!(appends.next_answer(), follower);
    assert!(matches!(answer, Ok(Some(Ok(Some(last)))) if last == at(4)));
    assert!(appends.in_flight.is_empty());
    assert_eq!(appends.bytes_in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn follower_with_waiting_callers_gets_the_commit_index_at_once() {
    for is_quiet in [false, true] {
        let answer = if is_quiet { stored_quietly(2) } else { stored(2) };
        let (mut line, mut appends) = line_in_use(answer).await;
        let began = Instant::now();
        line.requests.send(append(2, 2, 2)).unwrap();
        let requests = line.requests.clone();
        let follower = async {
            if is_quiet {
                // A later commit index does not extend the delay, and replaces the earlier one.
                tokio::time::sleep(MAX_COMMIT_UPDATE_DELAY / 2).await;
                requests.send(append(2, 2, 3)).unwrap();
            }
            let told = line.receive().await;
            assert!(told.entries.is_empty());
            assert_eq!(told.commit, Some((&at(if is_quiet { 3 } else { 2 })).into()));
            let after = began.elapsed();
            line.send_results(&[stored(2)]).await;
            after
        };
        let (answer, after) = tokio::join!(appends.next_answer(), follower);
        assert!(matches!(answer, Ok(Some(Ok(Some(last)))) if last == at(2)));
        match is_quiet {
            true => assert!(
                after >= MAX_COMMIT_UPDATE_DELAY && after < MAX_COMMIT_UPDATE_DELAY * 3 / 2,
                "{after:?}"
            ),
            false => assert_eq!(after, Duration::ZERO),
        }
        assert!(appends.in_flight.is_empty());
        assert_eq!(appends.bytes_in_flight, 0);
        line.floor.send_replace(0);
    }
}

#[tokio::test]
async fn commit_index_is_sent_before_the_leader_does_other_work() {
    let (mut line, mut appends) = line_in_use(stored(2)).await;
    line.requests.send(append(2, 2, 2)).unwrap();
    let mut next = std::pin::pin!(appends.next_answer());
    assert!(futures_util::poll!(&mut next).is_pending());
    let told = line.receive().now_or_never().expect("it was sent");
    assert_eq!(told.commit, Some((&at(2)).into()));
}

#[tokio::test(start_paused = true)]
async fn stream_ends_when_all_relevant_answers_have_arrived() {
    let (mut line, mut appends) = line();
    // A request for the end of the follower's log has no entries either, and its answer is relevant.
    line.requests.send(append(1, 1, 1)).unwrap();
    let follower = async {
        assert!(line.receive().await.entries.is_empty());
        line.send_results(&[stored(1)]).await;
    };
    let (answer, ()) = tokio::join!(appends.next_answer(), follower);
    assert!(matches!(answer, Ok(Some(Ok(Some(last)))) if last == at(1)));

    line.requests.send(append(1, 2, 1)).unwrap();
    line.requests.send(append(2, 2, 2)).unwrap();
    let Line {
        requests,
        mut follower,
        mut answers,
        ..
    } = line;
    drop(requests);
    let follower = async {
        let entries: WireAppend = follower.message().await.unwrap().unwrap();
        assert_eq!(entries.entries.len(), 1);
        let mut out = BytesMut::new();
        put_frame(&mut out, &stored(2));
        send_frames(&mut answers, &out).await.unwrap();
        let commit: WireAppend = follower.message().await.unwrap().unwrap();
        assert!(commit.entries.is_empty());
    };
    let leader = async {
        assert!(matches!(appends.next_answer().await, Ok(Some(Ok(Some(last)))) if last == at(2)));
        assert!(matches!(appends.next_answer().await, Ok(None)));
    };
    tokio::join!(leader, follower);
}

#[tokio::test(start_paused = true)]
async fn unresponsive_follower_ends_the_stream() {
    let (line, mut appends) = line();
    line.requests.send(append(1, 2, 1)).unwrap();
    let began = Instant::now();
    let error = appends.next_answer().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(began.elapsed() >= TIMEOUT);
}

/// Writer that keeps the frames of each write apart.
#[derive(Default)]
struct Writes(Vec<BytesMut>);

impl AsyncWrite for Writes {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.push(BytesMut::from(bytes));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn frames(results: &[WireAppendResult]) -> BytesMut {
    let mut out = BytesMut::new();
    results.iter().for_each(|result| put_frame(&mut out, result));
    out
}

#[tokio::test]
async fn results_that_are_ready_are_sent_in_one_write() {
    let (sender, taken) = mpsc::unbounded_channel();
    let results = Box::pin(stream::unfold(taken, |mut taken| async move {
        Some((taken.recv().await?, taken))
    }));
    let mut writes = Writes::default();
    let mut answers = Box::pin(answers::answer(results, &mut writes));
    sender.send(Ok(stored(1))).unwrap();
    assert!(futures_util::poll!(&mut answers).is_pending());
    // One sync completes several appends.
    for index in [2, 3, 4] {
        sender.send(Ok(stored(index))).unwrap();
    }
    assert!(futures_util::poll!(&mut answers).is_pending());
    // What was stored before a failure is sent.
    sender.send(Ok(stored(5))).unwrap();
    sender.send(Err(io::Error::other("stopped"))).unwrap();
    answers.await.unwrap_err();
    let sent = [&[stored(1)][..], &[stored(2), stored(3), stored(4)], &[stored(5)]];
    assert_eq!(writes.0, sent.map(frames));
}
