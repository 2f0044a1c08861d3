//! Strategies for arbitrary values that clients and servers can send.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use zk_wire::{
    AclEntry, ConnectRequest, ConnectResponse, CreateCall, ErrorCode, MultiResult, Notification, Reply,
    ReplyHeader, Request, RequestHeader, SetWatches, Stat,
};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "/[a-zä€\u{10ffff}/-]{0,12}", any::<String>()]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..4)
}

fn data() -> impl Strategy<Value = Option<Bytes>> {
    option::of(vec(any::<u8>(), 0..40).prop_map(Bytes::from))
}

fn stat() -> impl Strategy<Value = Stat> {
    let longs = (
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
        any::<i64>(),
    );
    let ints = (
        any::<i32>(),
        any::<i32>(),
        any::<i32>(),
        any::<i32>(),
        any::<i32>(),
    );
    (longs, ints).prop_map(|(longs, ints)| Stat {
        czxid: longs.0,
        mzxid: longs.1,
        ctime: longs.2,
        mtime: longs.3,
        version: ints.0,
        cversion: ints.1,
        aversion: ints.2,
        ephemeral_owner: longs.4,
        data_length: ints.3,
        num_children: ints.4,
        pzxid: longs.5,
    })
}

fn acl_entries() -> impl Strategy<Value = Vec<AclEntry>> {
    let entry = (any::<i32>(), text(), text());
    vec(
        entry.prop_map(|(perms, scheme, id)| AclEntry { perms, scheme, id }),
        0..4,
    )
}

fn create_call() -> impl Strategy<Value = CreateCall> {
    prop_oneof![
        Just(CreateCall::Create),
        Just(CreateCall::Create2),
        Just(CreateCall::Container),
        any::<i64>().prop_map(CreateCall::Ttl),
    ]
}

/// Item of a multi.
fn write_request() -> impl Strategy<Value = Request> {
    let acl = || option::of(acl_entries());
    prop_oneof![
        (create_call(), text(), data(), acl(), any::<i32>()).prop_map(|(call, path, data, acl, flags)| {
            Request::Create {
                call,
                path,
                data,
                acl,
                flags,
            }
        }),
        (text(), any::<i32>()).prop_map(|(path, version)| Request::Delete { path, version }),
        (text(), any::<i32>()).prop_map(|(path, version)| Request::Check { path, version }),
        (text(), data(), any::<i32>()).prop_map(|(path, data, version)| Request::SetData {
            path,
            data,
            version
        }),
    ]
}

/// Item of a multiRead.
fn item_of_multi_read() -> impl Strategy<Value = Request> {
    prop_oneof![
        (text(), any::<bool>()).prop_map(|(path, watch)| Request::GetData { path, watch }),
        (text(), any::<bool>()).prop_map(|(path, watch)| Request::GetChildren { path, watch }),
    ]
}

fn read_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        item_of_multi_read(),
        (text(), any::<bool>()).prop_map(|(path, watch)| Request::Exists { path, watch }),
        (text(), any::<bool>()).prop_map(|(path, watch)| Request::GetChildren2 { path, watch }),
        text().prop_map(|path| Request::GetAcl { path }),
        text().prop_map(|path| Request::GetAllChildrenNumber { path }),
        text().prop_map(|prefix| Request::GetEphemerals { prefix }),
        text().prop_map(|path| Request::Sync { path }),
    ]
}

fn watch_request() -> impl Strategy<Value = Request> {
    let three = || {
        (texts(), texts(), texts()).prop_map(|(data, exist, child)| SetWatches {
            data,
            exist,
            child,
            ..SetWatches::default()
        })
    };
    let five = (three(), texts(), texts()).prop_map(|(three, persistent, persistent_recursive)| SetWatches {
        persistent,
        persistent_recursive,
        ..three
    });
    prop_oneof![
        (text(), any::<i32>()).prop_map(|(path, mode)| Request::AddWatch { path, mode }),
        (text(), any::<i32>()).prop_map(|(path, kind)| Request::CheckWatches { path, kind }),
        (text(), any::<i32>()).prop_map(|(path, kind)| Request::RemoveWatches { path, kind }),
        (any::<i64>(), three()).prop_map(|(relative_zxid, watches)| Request::SetWatches {
            relative_zxid,
            watches
        }),
        (any::<i64>(), five).prop_map(|(relative_zxid, watches)| Request::SetWatches2 {
            relative_zxid,
            watches
        }),
    ]
}

fn session_request() -> impl Strategy<Value = Request> {
    let servers = || option::of(text());
    prop_oneof![
        Just(Request::Ping),
        Just(Request::CloseSession),
        Just(Request::WhoAmI),
        (any::<i32>(), text(), data()).prop_map(|(kind, scheme, auth)| Request::Auth { kind, scheme, auth }),
        data().prop_map(|token| Request::Sasl { token }),
        (servers(), servers(), servers(), any::<i64>()).prop_map(|(joining, leaving, new, from_config)| {
            Request::Reconfig {
                joining_servers: joining,
                leaving_servers: leaving,
                new_members: new,
                from_config,
            }
        }),
    ]
}

/// Any request.
pub fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        write_request(),
        (text(), option::of(acl_entries()), any::<i32>()).prop_map(|(path, acl, version)| Request::SetAcl {
            path,
            acl,
            version
        }),
        vec(write_request(), 0..5).prop_map(Request::Multi),
        read_request(),
        vec(item_of_multi_read(), 0..5).prop_map(Request::MultiRead),
        watch_request(),
        session_request(),
    ]
}

fn multi_result() -> impl Strategy<Value = MultiResult> {
    prop_oneof![
        text().prop_map(MultiResult::Create),
        (text(), stat()).prop_map(|(path, stat)| MultiResult::Create2(path, stat)),
        Just(MultiResult::Delete),
        stat().prop_map(MultiResult::SetData),
        Just(MultiResult::Check),
        (data(), stat()).prop_map(|(data, stat)| MultiResult::GetData(data, stat)),
        texts().prop_map(MultiResult::GetChildren),
        any::<i32>().prop_map(|code| MultiResult::Error(ErrorCode(code))),
    ]
}

/// Any reply to this request.
fn reply_to(request: &Request) -> BoxedStrategy<Reply> {
    match request {
        Request::Create {
            call: CreateCall::Create,
            ..
        }
        | Request::Sync { .. } => text().prop_map(Reply::Path).boxed(),
        Request::Create { .. } => (text(), stat())
            .prop_map(|(path, stat)| Reply::Created(path, stat))
            .boxed(),
        Request::Exists { .. } | Request::SetData { .. } | Request::SetAcl { .. } => {
            stat().prop_map(Reply::Stat).boxed()
        }
        Request::GetData { .. } | Request::Reconfig { .. } => (data(), stat())
            .prop_map(|(data, stat)| Reply::Data(data, stat))
            .boxed(),
        Request::GetAcl { .. } => (acl_entries(), stat())
            .prop_map(|(entries, stat)| Reply::Acl(entries, stat))
            .boxed(),
        Request::GetChildren { .. } => texts().prop_map(Reply::Names).boxed(),
        Request::GetChildren2 { .. } => (texts(), stat())
            .prop_map(|(names, stat)| Reply::NamesAndStat(names, stat))
            .boxed(),
        Request::GetAllChildrenNumber { .. } | Request::AddWatch { .. } => {
            any::<i32>().prop_map(Reply::Number).boxed()
        }
        Request::GetEphemerals { .. } => texts().prop_map(Reply::Paths).boxed(),
        Request::WhoAmI => vec((text(), text()), 0..4).prop_map(Reply::Identities).boxed(),
        Request::Sasl { .. } => data().prop_map(Reply::Token).boxed(),
        Request::Multi(_) | Request::MultiRead(_) => {
            vec(multi_result(), 0..5).prop_map(Reply::Results).boxed()
        }
        Request::Delete { .. }
        | Request::Check { .. }
        | Request::CheckWatches { .. }
        | Request::RemoveWatches { .. }
        | Request::SetWatches { .. }
        | Request::SetWatches2 { .. }
        | Request::Ping
        | Request::CloseSession
        | Request::Auth { .. } => Just(Reply::Done).boxed(),
    }
}

/// Any request with a possible reply.
pub fn exchange() -> impl Strategy<Value = (Request, Reply)> {
    request().prop_flat_map(|request| {
        let reply = reply_to(&request);
        (Just(request), reply)
    })
}

/// Any header of a request.
pub fn request_header() -> impl Strategy<Value = RequestHeader> {
    (any::<i32>(), any::<i32>()).prop_map(|(xid, op)| RequestHeader { xid, op })
}

/// Any header of a reply.
pub fn reply_header() -> impl Strategy<Value = ReplyHeader> {
    (any::<i32>(), any::<i64>(), any::<i32>()).prop_map(|(xid, zxid, err)| ReplyHeader {
        xid,
        zxid,
        err: ErrorCode(err),
    })
}

/// Any notification.
pub fn notification() -> impl Strategy<Value = Notification> {
    (any::<i32>(), any::<i32>(), text()).prop_map(|(kind, state, path)| Notification { kind, state, path })
}

/// Any connect request.
pub fn connect_request() -> impl Strategy<Value = ConnectRequest> {
    let numbers = (any::<i32>(), any::<i64>(), any::<i32>(), any::<i64>());
    (numbers, data(), option::of(any::<bool>())).prop_map(|(numbers, password, read_only)| ConnectRequest {
        protocol_version: numbers.0,
        last_zxid_seen: numbers.1,
        timeout_ms: numbers.2,
        session_id: numbers.3,
        password,
        read_only,
    })
}

/// Any connect response.
pub fn connect_response() -> impl Strategy<Value = ConnectResponse> {
    let numbers = (any::<i32>(), any::<i32>(), any::<i64>());
    (numbers, data(), option::of(any::<bool>())).prop_map(|(numbers, password, read_only)| ConnectResponse {
        protocol_version: numbers.0,
        timeout_ms: numbers.1,
        session_id: numbers.2,
        password,
        read_only,
    })
}
