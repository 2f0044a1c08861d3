//! A compact encoding of openraft's messages. The number of a frame is the type of the message.

use std::io;

use bytes::{Buf, BufMut, Bytes};
use openraft::raft::AppendEntriesRequest;

use super::frames::take_number;
use super::{Entry, LogId, Payload, Requests, Types, Vote, membership};

/// A vote request: the vote, and the candidate's last entry. The response is a vote and a byte if it was
/// granted.
pub const VOTE: u64 = 1;

/// Entries. The response is the position of the last stored entry.
pub const APPEND: u64 = 2;

/// Turns the connection into one for clients' requests: from here on each frame of the follower is a request
/// with its number.
pub const REQUESTS: u64 = 3;

/// On such a connection: the numbers of finished requests.
pub const FINISHED: u64 = 4;

/// Kinds of entries.
const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

pub fn put_vote(out: &mut impl BufMut, vote: &Vote) {
    out.put_u64_le(vote.leader_id.term);
    out.put_u64_le(vote.leader_id.voted_for);
    out.put_u8(vote.is_committed().into());
}

pub fn take_vote(from: &mut Bytes) -> io::Result<Vote> {
    let (term, node) = (take_number(from)?, take_number(from)?);
    Ok(match take_byte(from)? {
        0 => Vote::new(term, node),
        _ => Vote::new_committed(term, node),
    })
}

pub fn put_log_id(out: &mut impl BufMut, id: Option<&LogId>) {
    // No entry has this index.
    let (term, index) = id.map_or((0, u64::MAX), |id| (**id.committed_leader_id(), id.index));
    out.put_u64_le(term);
    out.put_u64_le(index);
}

pub fn take_log_id(from: &mut Bytes) -> io::Result<Option<LogId>> {
    let (term, index) = (take_number(from)?, take_number(from)?);
    Ok((index != u64::MAX).then(|| LogId::new(term.into(), index)))
}

pub fn put_entry(out: &mut impl BufMut, entry: &Entry) {
    put_log_id(out, Some(&entry.log_id));
    match &entry.payload {
        Payload::Blank => out.put_u8(BLANK),
        Payload::Normal(Requests(bytes)) => {
            out.put_u8(NORMAL);
            out.put_u64_le(bytes.len() as u64);
            out.put_slice(bytes);
        }
        // There is only one membership.
        Payload::Membership(_) => out.put_u8(MEMBERSHIP),
    }
}

fn take_entry(from: &mut Bytes) -> io::Result<Entry> {
    let log_id = take_log_id(from)?.ok_or_else(invalid)?;
    let payload = match take_byte(from)? {
        BLANK => Payload::Blank,
        NORMAL => {
            let length = take_number(from)? as usize;
            if length > from.len() {
                return Err(invalid());
            }
            Payload::Normal(Requests(from.split_to(length)))
        }
        MEMBERSHIP => Payload::Membership(membership()),
        _ => return Err(invalid()),
    };
    Ok(Entry { log_id, payload })
}

pub fn put_append(out: &mut impl BufMut, request: &AppendEntriesRequest<Types>) {
    put_vote(out, &request.vote);
    put_log_id(out, request.prev_log_id.as_ref());
    put_log_id(out, request.leader_commit.as_ref());
    request.entries.iter().for_each(|entry| put_entry(out, entry));
}

pub fn take_append(mut from: Bytes) -> io::Result<AppendEntriesRequest<Types>> {
    let vote = take_vote(&mut from)?;
    let (prev_log_id, leader_commit) = (take_log_id(&mut from)?, take_log_id(&mut from)?);
    let mut entries = Vec::new();
    while from.has_remaining() {
        entries.push(take_entry(&mut from)?);
    }
    Ok(AppendEntriesRequest {
        vote,
        prev_log_id,
        entries,
        leader_commit,
    })
}

fn take_byte(from: &mut Bytes) -> io::Result<u8> {
    from.try_get_u8().map_err(|_| invalid())
}

fn invalid() -> io::Error {
    io::Error::other("the frame is not a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_append_inverts_put_append() {
        let id = |index| LogId::new(3.into(), index);
        let entry = |index, payload| Entry {
            log_id: id(index),
            payload,
        };
        let request = AppendEntriesRequest::<Types> {
            vote: Vote::new_committed(3, 0),
            prev_log_id: Some(id(6)),
            entries: vec![
                entry(7, Payload::Blank),
                entry(8, Payload::Normal(Requests(Bytes::from_static(b"data")))),
                entry(9, Payload::Membership(membership())),
            ],
            leader_commit: None,
        };
        let mut frame = Vec::new();
        put_append(&mut frame, &request);
        let came = take_append(frame.clone().into()).unwrap();
        assert_eq!(format!("{came:?}"), format!("{request:?}"));
        for length in 0..frame.len() {
            let cut = take_append(Bytes::copy_from_slice(&frame[..length]));
            assert!(
                cut.is_err() || cut.unwrap().entries.len() < request.entries.len(),
                "{length}"
            );
        }
        assert!(take_append(Bytes::from_static(b"short")).is_err());
    }
}
