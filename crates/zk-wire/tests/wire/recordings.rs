//! Conversations of real clients and servers: each frame is decoded, shown, and encoded again to the same
//! bytes.
//!
//! | command | meaning |
//! |---|---|
//! | `client HEX` | a frame from the client: the handshake, then requests |
//! | `server HEX` | a frame from the server: the handshake, then replies in the order of the requests, and notifications |

use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use goldenscript::{Command as Line, Context, Runner};
use zk_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, Notification, Reader, Reply, ReplyHeader, Request,
    RequestHeader, frame, op_code, xid,
};

use crate::{unhex, written};

#[derive(Default)]
struct Conversation {
    client_has_connected: bool,
    server_has_connected: bool,
    unanswered: VecDeque<(i32, Request)>,
}

type Output = Result<String, Box<dyn Error>>;

impl Conversation {
    fn client(&mut self, body: Bytes) -> Output {
        let mut from = Reader::new(body.clone());
        if !self.client_has_connected {
            self.client_has_connected = true;
            let connect = ConnectRequest::decode(&mut from)?;
            assert_eq!(written(|to| connect.encode(to)), body);
            return Ok(format!("{connect:?}\n"));
        }
        let header = RequestHeader::decode(&mut from)?;
        let request = Request::decode(header.op, &mut from)?;
        from.end()?;
        let again = written(|to| {
            header.encode(to);
            request.encode(to);
        });
        assert_eq!(again, body);
        assert_eq!(request.op_code(), header.op);
        let name = op_code::name(header.op).expect("a decoded operation has a name");
        let mut shown = format!("{} {name}", header.xid);
        match &request {
            Request::Multi(items) | Request::MultiRead(items) => {
                for item in items {
                    write!(shown, "\n  {item:?}")?;
                }
            }
            request => write!(shown, ": {request:?}")?,
        }
        self.unanswered.push_back((header.xid, request));
        Ok(format!("{shown}\n"))
    }

    fn server(&mut self, body: Bytes) -> Output {
        let mut from = Reader::new(body.clone());
        if !self.server_has_connected {
            self.server_has_connected = true;
            let connect = ConnectResponse::decode(&mut from)?;
            from.end()?;
            assert_eq!(written(|to| connect.encode(to)), body);
            return Ok(format!("{connect:?}\n"));
        }
        let header = ReplyHeader::decode(&mut from)?;
        let mut shown = format!("{} at {}: ", header.xid, header.zxid);
        let again = if header.xid == xid::NOTIFICATION {
            let notification = Notification::decode(&mut from)?;
            write!(shown, "{notification:?}")?;
            written(|to| {
                header.encode(to);
                notification.encode(to);
            })
        } else {
            let (xid, request) = self.unanswered.pop_front().ok_or("a reply without a request")?;
            assert_eq!(header.xid, xid, "replies have the order of the requests");
            if header.err == ErrorCode::OK {
                let reply = Reply::decode(&request, &mut from)?;
                match &reply {
                    Reply::Results(results) => {
                        write!(shown, "results")?;
                        for result in results {
                            write!(shown, "\n  {result:?}")?;
                        }
                    }
                    reply => write!(shown, "{reply:?}")?,
                }
                written(|to| {
                    header.encode(to);
                    reply.encode(to);
                })
            } else {
                write!(shown, "{}", header.err)?;
                written(|to| header.encode(to))
            }
        };
        from.end()?;
        assert_eq!(again, body);
        Ok(format!("{shown}\n"))
    }
}

impl Runner for Conversation {
    type Command = Line;

    fn run(&mut self, command: &Line, _context: &Context) -> Output {
        let mut args = command.consume_args();
        let hex = args.next_pos().ok_or("the frame is missing")?.to_owned();
        args.reject_next()?;
        let mut bytes = BytesMut::from(&unhex(&hex)[..]);
        let body = frame::take(&mut bytes, frame::DEFAULT_MAX_LENGTH)?.ok_or("the frame is truncated")?;
        assert!(bytes.is_empty(), "more than a frame");
        match command.name.as_str() {
            "client" => self.client(body),
            "server" => self.server(body),
            name => Err(format!("there is no command {name:?}").into()),
        }
    }
}

#[test]
fn recordings() {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let mut paths: Vec<_> = std::fs::read_dir(recordings)
        .expect("the recordings are there")
        .map(|entry| entry.expect("the directory can be read").path())
        .collect();
    paths.sort();
    let mut failed = Vec::new();
    for path in paths {
        // Run all recordings before the test fails, so that one run shows all differences.
        let run = std::panic::catch_unwind(|| goldenscript::run(&mut Conversation::default(), &path));
        match run {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                eprintln!("{}: {error}", path.display());
                failed.push(path);
            }
            Err(_) => failed.push(path),
        }
    }
    assert!(
        failed.is_empty(),
        "these recordings are decoded differently: {failed:?}"
    );
}
