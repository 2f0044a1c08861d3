//! Content of the source, and clients that keep changing it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use zk_wire::{AclEntry, CreateCall, ErrorCode, Reply, Request};

use super::client::Client;

/// Flags of `CreateMode`.
const PERSISTENT: i32 = 0;
const EPHEMERAL: i32 = 1;
const PERSISTENT_SEQUENTIAL: i32 = 2;
const EPHEMERAL_SEQUENTIAL: i32 = 3;
const CONTAINER: i32 = 4;
const TTL: i32 = 5;

/// Number of children of one znode.
const FAMILY: usize = 100;

/// Realistic and hostile names of znodes, which break programs that mix up paths and names.
const HOSTILE: [&str; 14] = [
    "white space",
    "ümläut-日本語",
    "a&b=c?d#e",
    "100%25",
    "%2F",
    "a+b",
    "\"quoted\"",
    "back\\slash",
    "a-b",
    "a",
    "...",
    "-rf",
    "{\"json\": [1]}",
    "<script>",
];

pub fn entry(perms: i32, scheme: &str, id: &str) -> AclEntry {
    AclEntry {
        perms,
        scheme: scheme.to_owned(),
        id: id.to_owned(),
    }
}

fn open() -> Vec<AclEntry> {
    vec![entry(31, "world", "anyone")]
}

pub fn create(path: &str, data: &[u8], flags: i32) -> Request {
    create_as(path, data, flags, open())
}

fn create_as(path: &str, data: &[u8], flags: i32, acl: Vec<AclEntry>) -> Request {
    Request::Create {
        call: match flags {
            CONTAINER => CreateCall::Container,
            _ => CreateCall::Create2,
        },
        path: path.to_owned(),
        data: Some(Bytes::copy_from_slice(data)),
        acl: Some(acl),
        flags,
    }
}

pub fn set(path: &str, data: &[u8]) -> Request {
    Request::SetData {
        path: path.to_owned(),
        data: Some(Bytes::copy_from_slice(data)),
        version: -1,
    }
}

pub fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.to_owned(),
        version: -1,
    }
}

/// Fills the source with about this number of znodes of all kinds.
pub async fn fill(client: &mut Client, znodes: usize) {
    let mut requests = vec![
        create("/plain", b"", PERSISTENT),
        create("/queue", b"", PERSISTENT),
        create("/hostile", b"", PERSISTENT),
        create("/kinds", b"", PERSISTENT),
        create("/busy", b"", PERSISTENT),
        create("/locks", b"", PERSISTENT),
        create("/locks/orders", b"", PERSISTENT),
        create("/locks/orders/_c_1-lock-", b"", EPHEMERAL_SEQUENTIAL),
        create("/members", b"", PERSISTENT),
        create("/members/host-1", b"", EPHEMERAL),
        create("/kinds/box", b"", CONTAINER),
        create("/kinds/box/kept", b"x", PERSISTENT),
        create("/kinds/empty-box", b"", CONTAINER),
        Request::Create {
            call: CreateCall::Ttl(3_600_000),
            path: "/kinds/soon".to_owned(),
            data: None,
            acl: Some(open()),
            flags: TTL,
        },
        create("/kinds/binary", &[0xff, 0, 0xfe, b'"', b'\\'], PERSISTENT),
        create("/kinds/large", &vec![b'x'; 200_000], PERSISTENT),
        create("/kinds/larger", &vec![0x80; 900_000], PERSISTENT),
        create_as(
            "/kinds/secret",
            b"secret",
            PERSISTENT,
            vec![
                entry(31, "digest", "bob:x1zlmkf7rVDUPPPLzSzdDvUtB1A="),
                entry(1, "ip", "10.0.0.0/8"),
            ],
        ),
        create_as(
            "/kinds/secret/inside",
            b"more",
            PERSISTENT,
            vec![entry(1, "world", "anyone")],
        ),
        Request::SetData {
            path: "/".to_owned(),
            data: Some(Bytes::from_static(b"the root has data as well")),
            version: -1,
        },
    ];
    for name in HOSTILE {
        requests.push(create(&format!("/hostile/{name}"), name.as_bytes(), PERSISTENT));
        requests.push(create(&format!("/hostile/{name}/below"), b"", PERSISTENT));
        // Deleted znodes change counters, and nothing else.
        requests.push(create(&format!("/hostile/{name}/n-"), b"", PERSISTENT_SEQUENTIAL));
        requests.push(delete(&format!("/hostile/{name}/n-0000000001")));
    }
    requests.push(create(
        &format!("/hostile/{}", "long".repeat(100)),
        b"",
        PERSISTENT,
    ));
    requests.extend((0..20).map(|_| create("/queue/n-", b"job", PERSISTENT_SEQUENTIAL)));
    requests.extend((0..20).step_by(3).map(|n| delete(&format!("/queue/n-{n:010}"))));
    for n in 0..znodes {
        let family = format!("/plain/{:05}", n / FAMILY);
        if n % FAMILY == 0 {
            requests.push(create(&family, b"family", PERSISTENT));
        }
        requests.push(create(
            &format!("{family}/{n}"),
            format!("data of {n}").as_bytes(),
            PERSISTENT,
        ));
    }
    for (request, outcome) in requests.iter().zip(client.call_all(&requests).await.unwrap()) {
        assert!(outcome.is_ok(), "{request:?}: {outcome:?}");
    }
}

/// Clients that write until they are stopped.
pub struct Writers {
    tasks: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    begun: Instant,
}

impl Writers {
    /// Starts clients that make `per_second` writes together, among `znodes` znodes.
    pub fn start(servers: &[String], per_second: u64, znodes: usize) -> Self {
        const CLIENTS: u64 = 4;
        let stop = Arc::new(AtomicBool::new(false));
        let written = Arc::new(AtomicU64::new(0));
        let period = Duration::from_micros(1_000_000 * CLIENTS / per_second);
        let tasks = (0..CLIENTS).map(|number| {
            let (servers, stop, written) = (servers.to_vec(), stop.clone(), written.clone());
            tokio::spawn(async move {
                let mut ticks = interval(period);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut dice = number + 1;
                let mut server = number as usize;
                let mut client = None;
                while !stop.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    if client.is_none() {
                        server += 1;
                        client = Client::try_open(&servers[server % servers.len()]).await.ok();
                    }
                    let Some(connected) = &mut client else { continue };
                    dice = next(dice);
                    match connected.call(write(dice, znodes)).await {
                        Ok(Ok(_)) => {
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                        // Another client has deleted or created the znode.
                        Ok(Err(ErrorCode::NO_NODE | ErrorCode::NODE_EXISTS | ErrorCode::NOT_EMPTY)) => {}
                        Ok(Err(code)) => panic!("a write was rejected: {code}"),
                        // The client's server was killed.
                        Err(_) => client = None,
                    }
                }
            })
        });
        Self {
            tasks: tasks.collect(),
            stop,
            written,
            begun: Instant::now(),
        }
    }

    /// Returns the number of successful writes.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the successful writes per second.
    pub fn rate(&self) -> f64 {
        self.written() as f64 / self.begun.elapsed().as_secs_f64()
    }

    /// Stops the clients; when this returns, the last write has been acknowledged.
    pub async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.written.load(Ordering::Relaxed)
    }
}

/// Returns the next number of a random sequence (xorshift).
fn next(mut dice: u64) -> u64 {
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    dice
}

/// Returns a random write.
fn write(dice: u64, znodes: usize) -> Request {
    let n = (dice >> 8) as usize % znodes;
    let plain = format!("/plain/{:05}/{n}", n / FAMILY);
    let few = format!("/busy/{}", (dice >> 40) % 50);
    match dice % 16 {
        0..6 => set(&plain, format!("written with {dice}").as_bytes()),
        6 => delete(&plain),
        7 => create(&plain, b"again", PERSISTENT),
        8 | 9 => create("/queue/n-", b"job", PERSISTENT_SEQUENTIAL),
        10 => create(&few, b"busy", PERSISTENT),
        11 => delete(&few),
        12 => create(&format!("{few}/below"), b"deep", PERSISTENT),
        13 => delete(&format!("{few}/below")),
        14 => Request::SetAcl {
            path: plain,
            acl: Some(vec![
                entry(31, "world", "anyone"),
                entry((dice >> 60) as i32, "ip", "10.1.2.3"),
            ]),
            version: -1,
        },
        // The znode ends with its session, which lasts until the end of the test.
        _ => create(&format!("/members/host-{}", dice >> 50), b"", EPHEMERAL),
    }
}

/// Returns the path of the next job in the queue, with its number.
pub async fn next_job(client: &mut Client) -> String {
    match client
        .call(create("/queue/n-", b"last", PERSISTENT_SEQUENTIAL))
        .await
        .unwrap()
    {
        Ok(Reply::Created(path, _)) => path,
        other => panic!("{other:?}"),
    }
}
