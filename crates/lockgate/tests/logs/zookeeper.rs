//! Hostile text in all parts of ZooKeeper's protocol, in every operation.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zk_wire::{AclEntry, ConnectRequest, ConnectResponse, CreateCall, Reader, Request, SetWatches, frame};

use crate::hostile::{DIGEST_PASSWORD, SESSION_PASSWORD, texts};
use crate::in_time;

/// Sends all operations with hostile text in each. Returns the passwords of the sessions that it opened.
pub async fn send_all(server: SocketAddr) -> Vec<Bytes> {
    let mut passwords = Vec::new();
    for text in texts() {
        // Bytes that are no request, an unknown four-letter word, and another session's id.
        talk(server, text.as_bytes()).await;
        talk(server, b"conf").await;
        talk(
            server,
            &connect(7, Bytes::from_static(SESSION_PASSWORD.as_bytes())),
        )
        .await;
        for request in requests(&text) {
            let mut bytes = connect(0, Bytes::from_static(&[0; 16]));
            let digest = Request::Auth {
                kind: 0,
                scheme: "digest".into(),
                auth: Some(format!("alice:{DIGEST_PASSWORD}").into()),
            };
            let mut out = BytesMut::new();
            digest.write_frame(digest.fixed_xid().unwrap_or(1), &mut out);
            request.write_frame(request.fixed_xid().unwrap_or(2), &mut out);
            Request::CloseSession.write_frame(3, &mut out);
            bytes.extend_from_slice(&out);
            let answered = talk(server, &bytes).await;
            let mut answered = BytesMut::from(&answered[..]);
            if let Ok(Some(body)) = frame::take(&mut answered, frame::DEFAULT_MAX_LENGTH) {
                let session = ConnectResponse::decode(&mut Reader::new(body)).unwrap();
                passwords.extend(
                    session
                        .password
                        .filter(|password| password.iter().any(|byte| *byte != 0)),
                );
            }
        }
    }
    assert!(!passwords.is_empty(), "sessions were opened");
    passwords
}

fn connect(session_id: i64, password: Bytes) -> Vec<u8> {
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 60_000,
        session_id,
        password: Some(password),
        read_only: Some(false),
    };
    let mut out = BytesMut::new();
    request.write_frame(&mut out);
    out.to_vec()
}

fn requests(text: &str) -> Vec<Request> {
    let path = || format!("/{text}");
    let data = || Some(Bytes::copy_from_slice(text.as_bytes()));
    let acl = || {
        let (scheme, id) = (text.to_owned(), text.to_owned());
        Some(vec![AclEntry {
            perms: 31,
            scheme,
            id,
        }])
    };
    let create = |path: String| Request::Create {
        call: CreateCall::Create2,
        path,
        data: data(),
        acl: acl(),
        flags: 1,
    };
    let watches = || SetWatches {
        data: vec![path()],
        ..SetWatches::default()
    };
    vec![
        create(path()),
        create("/plain".into()),
        Request::Delete {
            path: path(),
            version: -1,
        },
        Request::SetData {
            path: path(),
            data: data(),
            version: 0,
        },
        Request::SetAcl {
            path: path(),
            acl: acl(),
            version: -1,
        },
        Request::Multi(vec![
            create(path()),
            Request::Check {
                path: path(),
                version: 0,
            },
        ]),
        Request::MultiRead(vec![Request::GetData {
            path: path(),
            watch: true,
        }]),
        Request::Exists {
            path: path(),
            watch: true,
        },
        Request::GetData {
            path: path(),
            watch: true,
        },
        Request::GetAcl { path: path() },
        Request::GetChildren {
            path: path(),
            watch: true,
        },
        Request::GetChildren2 {
            path: path(),
            watch: true,
        },
        Request::GetAllChildrenNumber { path: path() },
        Request::GetEphemerals { prefix: path() },
        Request::Sync { path: path() },
        Request::AddWatch {
            path: path(),
            mode: 1,
        },
        Request::CheckWatches {
            path: path(),
            kind: 1,
        },
        Request::RemoveWatches {
            path: path(),
            kind: 1,
        },
        Request::SetWatches {
            relative_zxid: 0,
            watches: watches(),
        },
        Request::SetWatches2 {
            relative_zxid: 0,
            watches: watches(),
        },
        Request::WhoAmI,
        Request::Auth {
            kind: 0,
            scheme: text.to_owned(),
            auth: data(),
        },
        Request::Sasl { token: data() },
        Request::Reconfig {
            joining_servers: Some(text.to_owned()),
            leaving_servers: Some(text.to_owned()),
            new_members: Some(text.to_owned()),
            from_config: -1,
        },
    ]
}

/// Sends bytes, and reads until the server closes the connection.
async fn talk(server: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    in_time("the server hangs up", async {
        let mut stream = TcpStream::connect(server).await.unwrap();
        let mut answered = Vec::new();
        // A server may close the connection before it has read everything, or before its answer is read.
        if stream.write_all(bytes).await.is_ok() && stream.shutdown().await.is_ok() {
            let _: Result<usize, _> = stream.read_to_end(&mut answered).await;
        }
        answered
    })
    .await
}
