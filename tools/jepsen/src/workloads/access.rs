//! Revocation of access: clients write znodes, one of them removes the write permission for everyone, and
//! then writes through all nodes at once. After the acknowledgement no node may accept a write, however far
//! behind it is.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use hyper::Method;
use lockgate_check::access::{Access, Input, Output};
use lockgate_check::linearizable::{self, MAX_CONFIGURATIONS};
use lockgate_check::{Call, ClientId, Verdict};
use serde::Serialize;
use serde_json::json;

use super::highlights::Highlights;
use super::{Progress, Span, Workload, fill};
use crate::client::{CallResult, Caller, Reply, TIMEOUT};
use crate::pace::Pace;
use crate::record::{Recorder, bar};
use crate::systems::{System, caller};
use crate::world::World;

const CLIENTS: usize = 20;

/// Calls of all clients per second.
const PER_SECOND: f64 = 420.0;

/// Uses of a znode before its permission is removed, and again afterwards.
const USES: u64 = 10;

/// Number of znodes in use at a time.
const CONCURRENT_ZNODES: u64 = 5;

/// Number of znodes: enough for five minutes.
const ZNODES: u64 = 6000;

const PARENT: &str = "/jepsen/access";

/// The workload.
pub struct Rights {
    calls: Recorder<AccessCall, Output>,
    next_call: AtomicU64,
    highlights: Highlights,
}

#[derive(Clone, Debug, Serialize)]
struct AccessCall {
    znode: u64,
    what: Input,
}

/// Client with a connection to every node; the first one is its own node.
struct Client {
    run: Arc<Rights>,
    world: World,
    callers: Vec<Caller>,
    me: ClientId,
}

/// Offset of the client number under which simultaneous calls through other nodes are recorded.
const SECOND_CALLER: ClientId = 100;

impl Rights {
    /// Creates a run.
    pub fn new() -> Self {
        Self {
            calls: Recorder::default(),
            next_call: AtomicU64::new(0),
            highlights: Highlights::default(),
        }
    }

    /// Returns the next znode, and whether its permission is to be removed now.
    fn next(&self) -> Option<(u64, bool)> {
        let next_call = self.next_call.fetch_add(1, Ordering::Relaxed);
        let (window, within) = (
            next_call / (CONCURRENT_ZNODES * USES * 2),
            next_call % (CONCURRENT_ZNODES * USES * 2),
        );
        let znode = window * CONCURRENT_ZNODES + within % CONCURRENT_ZNODES;
        (znode < ZNODES).then_some((znode, within / CONCURRENT_ZNODES == USES))
    }
}

async fn write(caller: &mut Caller, input: &AccessCall) -> CallResult<Output> {
    let (path, body) = match input.what {
        Input::Use => (format!("/v1/znodes{}", path(input.znode)), json!({"data": "x"})),
        Input::Allow(_) => {
            let list = json!({"acl": [{"perms": "r", "scheme": "world", "id": "anyone"}]});
            (format!("/v1/acl{}", path(input.znode)), list)
        }
    };
    match caller.call(Method::PUT, &path, Some(&body), TIMEOUT).await {
        Reply::Done(_) => CallResult::Ok(Output::Done),
        Reply::Refused(code, _) if code == "forbidden" => CallResult::Ok(Output::Forbidden),
        other => other.done().map(|_| Output::Done),
    }
}

fn path(znode: u64) -> String {
    format!("{PARENT}/{znode}")
}

impl Client {
    async fn call(&mut self, input: AccessCall) -> CallResult<Output> {
        let call = write(&mut self.callers[0], &input);
        self.run
            .calls
            .call(&self.world, &mut self.me, input.clone(), call)
            .await
    }

    /// Writes through every node at the same time.
    async fn use_everywhere(&mut self, znode: u64) {
        let (run, world, me) = (&self.run, &self.world, self.me);
        let calls = (1..).zip(&mut self.callers).map(|(index, caller)| async move {
            let input = AccessCall {
                znode,
                what: Input::Use,
            };
            let call = write(caller, &input);
            let mut client = me + index * SECOND_CALLER;
            run.calls.call(world, &mut client, input.clone(), call).await
        });
        join_all(calls).await;
    }
}

impl Workload for Rights {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn prepare<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<()>> {
        fill(System::Lockgate, world, (0..ZNODES).map(path).collect(), "").boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        async move {
            let mut pace = Pace::new(&world, number, CLIENTS, PER_SECOND);
            let nodes = world.endpoints.len();
            let mut client = Client {
                callers: (0..nodes).map(|node| caller(&world, number + node)).collect(),
                me: ClientId::try_from(number).expect("there are few clients"),
                run: self,
                world,
            };
            while pace.next().await {
                let Some((znode, revoke)) = client.run.next() else {
                    return;
                };
                let what = match revoke {
                    true => Input::Allow(false),
                    false => Input::Use,
                };
                let answer = client.call(AccessCall { znode, what }).await;
                if revoke {
                    client.use_everywhere(znode).await;
                }
                if answer.ok().is_none() {
                    pace.back_off().await;
                }
            }
        }
        .boxed()
    }

    fn progress(&self) -> Progress {
        self.calls.tally().progress()
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        self.calls.tally().reasons()
    }

    fn check<'a>(&'a self, _world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            let calls: Vec<_> = self.calls.calls().into_iter().map(of_znode).collect();
            let verdict = linearizable::check_by_key(&calls, |_| Access, MAX_CONFIGURATIONS);
            let verdicts = vec![("revoked permissions stay revoked".to_owned(), verdict)];
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let calls = self.calls.calls().into_iter().map(|call| {
            let label = format!("{:?} {} → {:?}", call.input.what, call.input.znode, call.outcome);
            self.highlights.call(bar(label, &call), &call)
        });
        calls.collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.calls.write(to)
    }
}

fn of_znode(call: Call<AccessCall, Output>) -> (String, Call<Input, Output>) {
    let znode = path(call.input.znode);
    (znode, crate::record::map_input(call, |input| input.what))
}
