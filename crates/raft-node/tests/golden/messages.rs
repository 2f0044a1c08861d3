//! Golden files of the messages between nodes and of log entries, one file for each kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::golden;
use super::material::{CLUSTER, CLUSTER_ID, DISK_ID, changing, commands, member};
use crate::audit::messages::{AuditAnswer, AuditQuestion};
use crate::audit::{Finding, StateDigest};
use crate::disk_health::{Alarm, AlarmKind, DiskReport, DiskView, MemberNews};
use crate::ids::{ClusterId, DiskId};
use crate::membership::{MembershipChange, MembershipChanged, MembershipOutcome, MembershipRefusal};
use crate::messages::{Declined, ForwardedTrace, HeartbeatsTaken, Moment, NotLeader, SeenMoment, Touched};
use crate::peers::wire::{
    Hello, HelloReply, HelloStart, LeaderLoss, MAGIC, PeerRequest, PeerResponse, Purpose, RefusalCause,
    SnapshotHead, SnapshotResume, SnapshotTail, WireAppend, WireAppendResult, WireEntry, WireLogId,
    WirePayload, WireSnapshotKey, WireSnapshotMeta, WireVote, WireVoteRequest, WireVoteResponse,
    decode_frame, put_frame,
};
use crate::storage::log_entry::{decode_entry, encode_entry};
use crate::types::{Entry, Payload, Proposal, log_id};
use crate::versions::{OLDEST_WIRE_VERSION, WIRE_VERSION};
use crate::versions::{ProgramVersions, WireRange};
use crate::witness::{Acknowledged, Record, Shown};

/// Returns the path of a message of the current version.
fn wire(name: &str) -> String {
    format!("wire-{WIRE_VERSION}/{name}")
}

/// Checks that a message is encoded as in its golden file, and decoded to the same message.
#[track_caller]
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, message: &T) {
    let mut frame = BytesMut::new();
    put_frame(&mut frame, message);
    let golden = golden(&wire(name), &frame);
    let (length, body) = golden.split_at(4);
    assert_eq!(length, (body.len() as u32).to_le_bytes());
    assert_eq!(&decode_frame::<T>(body).unwrap(), message);
    // Messages of peers of earlier versions, as long as those are supported.
    for version in (OLDEST_WIRE_VERSION..=WIRE_VERSION).filter(|version| *version < WIRE_VERSION) {
        let former = super::place(&format!("wire-{version}/{name}"));
        if former.exists() {
            let frame = std::fs::read(former).unwrap();
            assert_eq!(
                &decode_frame::<T>(&frame[4..]).unwrap(),
                message,
                "version {version}"
            );
        }
    }
}

const VOTE: WireVote = WireVote {
    term: 300,
    node: 2,
    committed: true,
};

const MOMENT: Moment = Moment {
    clock: 7,
    micros: 1 << 33,
};

const AT: WireLogId = WireLogId {
    term: 299,
    index: 70_000,
};

const STATE: StateDigest = StateDigest {
    zxid: 70_000,
    digest: 0x0123_4567_89ab_cdef,
};

const RECORD: Record = Record {
    disk: DiskId([2; 16]),
    number: 300,
    name: 0xfedc_ba98_7654_3210,
    term: 299,
    acknowledged: Acknowledged {
        term: 298,
        index: 70_000,
    },
    committed: 69_999,
    lost: true,
    commands: 3,
};

fn versions() -> ProgramVersions {
    ProgramVersions {
        program: "0.1.0".into(),
        wire: WireRange { oldest: 4, newest: 4 },
        commands: 1,
    }
}

#[test]
fn golden_handshakes() {
    let hello = Hello {
        magic: MAGIC,
        wire: versions().wire,
        cluster: CLUSTER.into(),
        cluster_id: Some(ClusterId(CLUSTER_ID)),
        from: 1,
        from_disk: DiskId(DISK_ID),
        to: 2,
        to_disk: Some(DiskId([2; 16])),
        formed: true,
        purpose: Purpose::Append,
        program: versions().program,
        commands: 1,
        extensions: vec![(9, Bytes::from_static(b"of a later version"))],
    };
    check("hello", &hello);
    let frame = golden_bytes("hello");
    let start: HelloStart = crate::codec::decode_start(&frame[4..]).unwrap();
    assert_eq!(start, hello.start(), "the beginning is the same in all versions");
    let welcome = HelloReply::Welcome {
        disk: DiskId([2; 16]),
        version: 4,
        versions: versions(),
        extensions: Vec::new(),
    };
    check("welcome", &welcome);
    let shown = Shown {
        number: 3,
        names: vec![0xfedc_ba98_7654_3210, 2, 1],
        term: 299,
        last: 70_000,
    };
    check("shown", &shown);
    let refused = HelloReply::Refused {
        reason: "node 2 belongs to another cluster".into(),
        cause: RefusalCause::Identity,
        formed: true,
    };
    check("refused", &refused);
    for (name, cause) in [
        ("refused_other", RefusalCause::Other),
        ("refused_version", RefusalCause::Version),
        ("refused_removed", RefusalCause::Removed),
        ("refused_rolled_back", RefusalCause::RolledBack),
    ] {
        let reason = "why".to_owned();
        let formed = false;
        check(
            name,
            &HelloReply::Refused {
                reason,
                cause,
                formed,
            },
        );
    }
}

fn golden_bytes(name: &str) -> Vec<u8> {
    std::fs::read(super::place(&wire(name))).unwrap()
}

#[test]
fn golden_requests_and_responses() {
    let vote_request = WireVoteRequest {
        vote: VOTE,
        last: Some(AT),
        transfer: true,
    };
    let append = WireAppend {
        vote: VOTE,
        prev: Some(AT),
        commit: None,
        entries: vec![
            WireEntry {
                at: AT,
                payload: WirePayload::Blank,
            },
            WireEntry {
                at: AT,
                payload: WirePayload::Commands {
                    term: 299,
                    batch: commands(),
                },
            },
            WireEntry {
                at: AT,
                payload: WirePayload::Membership((&changing()).into()),
            },
        ],
    };
    check("append", &append);
    let transfer = PeerRequest::TransferLeader {
        from: VOTE,
        to: 3,
        last: Some(AT),
    };
    let forward = PeerRequest::Forward {
        term: 300,
        envelopes: vec![Bytes::from_static(b"envelope")],
    };
    let alarm = Alarm {
        kind: AlarmKind::DiskLow,
        node_id: Some(3),
        since_ms: 1_700_000_000_000,
        detail: "nearly full".into(),
        action: "make room".into(),
        free_bytes: Some(1 << 20),
        low_water_bytes: Some(1 << 30),
        sync_us: None,
    };
    let view = DiskView {
        term: 300,
        read_only: Some("nearly full".into()),
        alarms: vec![alarm],
    };
    let question = AuditQuestion {
        digest_version: 1,
        states: vec![STATE],
        members: BTreeMap::from([(2, RECORD)]),
        finding: Some(Finding {
            zxid: 70_000,
            agreeing: BTreeSet::from([1, 3]),
            differing: BTreeSet::from([2]),
        }),
        clocks_ahead_ms: BTreeMap::from([(1, 0), (2, -5_184_000_000)]),
    };
    for (name, request) in [
        ("ask_vote", PeerRequest::Vote(vote_request.clone())),
        ("ask_pre_vote", PeerRequest::PreVote(vote_request)),
        ("ask_append", PeerRequest::Append(append)),
        ("ask_transfer_leader", transfer),
        ("ask_forward", forward),
        (
            "ask_forward_traced",
            PeerRequest::ForwardTraced {
                term: 300,
                envelopes: vec![Bytes::from_static(b"\x01command")],
                traces: vec![ForwardedTrace {
                    place: 0,
                    trace: [7; 16],
                    span: [8; 8],
                }],
            },
        ),
        (
            "ask_touch",
            PeerRequest::Touch {
                sessions: vec![1, u64::MAX >> 1],
            },
        ),
        (
            "ask_heartbeats",
            PeerRequest::Heartbeats {
                seen: Some(SeenMoment {
                    moment: MOMENT,
                    known_for_us: 70_000,
                }),
                within_ms: 50,
                sessions: vec![(1, 0), (u64::MAX >> 1, 300)],
            },
        ),
        ("ask_read_index", PeerRequest::ReadIndex),
        ("ask_members", PeerRequest::Members),
        (
            "ask_leader_lost",
            PeerRequest::LeaderLost { term: 300, leader: 2 },
        ),
        ("ask_disk", PeerRequest::Disk { view: Some(view) }),
        ("ask_audit", PeerRequest::Audit(Box::new(question))),
        (
            "ask_add",
            PeerRequest::ChangeMembership(MembershipChange::Add {
                node_id: 6,
                address: member(6).address,
            }),
        ),
        (
            "ask_remove",
            PeerRequest::ChangeMembership(MembershipChange::Remove {
                node_id: 6,
                force: true,
            }),
        ),
        (
            "ask_promote",
            PeerRequest::ChangeMembership(MembershipChange::Promote { node_id: 6 }),
        ),
        (
            "ask_demote",
            PeerRequest::ChangeMembership(MembershipChange::Demote {
                node_id: 6,
                force: false,
            }),
        ),
        (
            "ask_set_address",
            PeerRequest::ChangeMembership(MembershipChange::SetAddress {
                node_id: 6,
                address: member(7).address,
            }),
        ),
        (
            "ask_move_leader",
            PeerRequest::ChangeMembership(MembershipChange::MoveLeader { to: Some(2) }),
        ),
    ] {
        check(name, &(7_u64, request));
    }
    let voted = WireVoteResponse {
        vote: VOTE,
        granted: false,
        last: None,
    };
    let declined = Declined {
        places: vec![0, 5],
        reason: "nearly full".into(),
        read_only: true,
    };
    let not_leader = NotLeader { leader: Some(2) };
    let report = DiskReport {
        free_bytes: Some(1 << 40),
        low_water_bytes: 1 << 30,
        low: false,
        log_full: true,
        sync_us: Some(900),
        working_us: 12,
    };
    let changed = MembershipOutcome::Done(MembershipChanged {
        changed: true,
        warnings: vec!["an even number of voters".into()],
    });
    let members = vec![MemberNews {
        node_id: 3,
        matched_index: Some(70_000),
        lag: Some(12),
        disk: Some(report.clone()),
    }];
    let touched = vec![Touched::Renewed(10_000), Touched::Ended, Touched::Unknown];
    for (name, answer) in [
        ("answer_vote", PeerResponse::Vote(voted)),
        (
            "answer_stored",
            PeerResponse::Append(WireAppendResult::Stored(Some(AT))),
        ),
        (
            "answer_stored_quietly",
            PeerResponse::Append(WireAppendResult::StoredQuietly(Some(AT))),
        ),
        (
            "answer_conflict",
            PeerResponse::Append(WireAppendResult::Conflict(AT)),
        ),
        (
            "answer_higher_vote",
            PeerResponse::Append(WireAppendResult::HigherVote(VOTE)),
        ),
        (
            "answer_transfer_leader",
            PeerResponse::TransferLeader(Err("it is busy".into())),
        ),
        ("answer_forward", PeerResponse::Forward(Ok(declined))),
        (
            "answer_not_leader",
            PeerResponse::Forward(Err(not_leader.clone())),
        ),
        ("answer_touch", PeerResponse::Touch(Ok(touched))),
        (
            "answer_heartbeats",
            PeerResponse::Heartbeats(Ok(HeartbeatsTaken {
                moment: MOMENT,
                touched: Some(vec![Touched::Renewed(10_000)]),
            })),
        ),
        (
            "answer_heartbeats_late",
            PeerResponse::Heartbeats(Ok(HeartbeatsTaken {
                moment: MOMENT,
                touched: None,
            })),
        ),
        ("answer_read_index", PeerResponse::ReadIndex(Ok(70_000))),
        ("answer_members", PeerResponse::Members(Ok(members))),
        (
            "answer_leader_lost",
            PeerResponse::LeaderLost(LeaderLoss {
                lost: true,
                last: Some(AT),
            }),
        ),
        ("answer_disk", PeerResponse::Disk(report)),
        (
            "answer_audit",
            PeerResponse::Audit(AuditAnswer {
                digest_version: 1,
                states: vec![STATE],
                is_wrong: true,
                clock_ms: 1_700_000_000_000,
            }),
        ),
        ("answer_changed", PeerResponse::ChangeMembership(Ok(changed))),
        (
            "answer_change_refused",
            PeerResponse::ChangeMembership(Ok(MembershipOutcome::Refused(MembershipRefusal::NoMember(6)))),
        ),
        (
            "answer_change_unknown",
            PeerResponse::ChangeMembership(Ok(MembershipOutcome::Unknown("the leader was lost".into()))),
        ),
        (
            "answer_failed",
            PeerResponse::Failed("it is shutting down".into()),
        ),
    ] {
        check(name, &(7_u64, answer));
    }
}

#[test]
fn golden_snapshot_transfers() {
    let head = SnapshotHead {
        vote: VOTE,
        meta: WireSnapshotMeta {
            last: Some(AT),
            membership_at: Some(AT),
            membership: (&changing()).into(),
        },
        key: WireSnapshotKey {
            index: 70_000,
            bytes: 1 << 33,
            header_crc: 0xdead_beef,
            parts_crc: 0x0123_4567,
        },
    };
    check("snapshot_head", &head);
    check("snapshot_resume", &SnapshotResume { offset: 1 << 32 });
    check("snapshot_chunk", &Some(Bytes::from_static(b"chunk")));
    check("snapshot_installed", &SnapshotTail::Installed { vote: VOTE });
    check(
        "snapshot_failed",
        &SnapshotTail::Failed("there is no room".into()),
    );
}

#[test]
fn golden_entries() {
    let proposal = Proposal {
        term: 7,
        commands: commands(),
    };
    for (name, payload) in [
        ("blank", Payload::Blank),
        ("proposal", Payload::Normal(proposal)),
        ("membership", Payload::Membership(changing())),
    ] {
        let log_id = log_id(7, 9);
        let entry = Entry { log_id, payload };
        let mut stored = encode_entry(&entry);
        let version = stored.payload[0];
        stored.payload = golden(&format!("entries-{version}/{name}"), &stored.payload).into();
        assert_eq!(decode_entry(stored).unwrap(), entry, "{name}");
    }
}
