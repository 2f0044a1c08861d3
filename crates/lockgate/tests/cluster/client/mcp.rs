//! `lockgate mcp`: an agent that speaks the Model Context Protocol over standard input and output.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::commands::json;
use crate::harness::{LOCKGATE, TIMEOUT, TestCluster, eventually};

/// An agent with its server.
struct Agent {
    server: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    sent: u64,
}

impl Agent {
    /// Starts a server and shakes hands with it. Returns what the server says of itself, too.
    async fn start(cluster: &TestCluster) -> (Self, Value) {
        let mut server = Command::new(LOCKGATE)
            .arg("mcp")
            .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut agent = Self {
            requests: server.stdin.take().unwrap(),
            answers: BufReader::new(server.stdout.take().unwrap()).lines(),
            server,
            sent: 0,
        };
        let version = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "agent", "version": "1"},
        });
        let welcome = agent.request("initialize", version).await;
        agent
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        (agent, welcome["result"].clone())
    }

    async fn send(&mut self, message: &Value) {
        self.requests
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Sends a request, and returns the answer.
    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params}))
            .await;
        let line = tokio::time::timeout(TIMEOUT, self.answers.next_line())
            .await
            .expect("an answer");
        let answer: Value = serde_json::from_str(&line.unwrap().expect("an answer")).unwrap();
        assert_eq!(answer["id"], self.sent, "{answer}");
        answer
    }

    /// Calls a tool, and returns its result, which is no error.
    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self
            .request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await;
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// Calls a tool that fails, and returns the text for the agent.
    async fn fails(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self
            .request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

#[tokio::test]
async fn agents_share_a_lock_by_tools() {
    let cluster = TestCluster::start().await;
    let (mut one, welcome) = Agent::start(&cluster).await;
    assert_eq!(welcome["serverInfo"]["name"], "lockgate");
    assert!(
        welcome["instructions"]
            .as_str()
            .unwrap()
            .contains("Acquire a lock")
    );
    let tools = one.request("tools/list", json!({})).await;
    let tools = tools["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 6);
    assert!(
        tools
            .iter()
            .all(|tool| tool["inputSchema"]["type"] == "object" && tool["description"].is_string())
    );

    let lock = "repo/app/main";
    let wanted =
        |note: &str, wait: u64| json!({"lock": lock, "note": note, "ttl_seconds": 60, "wait_seconds": wait});
    let held = one.call("acquire_lock", wanted("one, renames a module", 0)).await;
    assert_eq!(held["state"], "holds");
    assert!(
        held["fencing_token"].is_u64() && held["expires_in_seconds"].as_u64() <= Some(60),
        "{held}"
    );

    let (mut two, _) = Agent::start(&cluster).await;
    let busy = two.call("acquire_lock", wanted("two", 0)).await;
    assert_eq!(busy["state"], "busy");
    assert_eq!(busy["holders"][0]["note"], "one, renames a module");
    let waits = two.call("acquire_lock", wanted("two", 1)).await;
    assert_eq!(waits["state"], "waits", "{waits}");
    assert_eq!(waits["waiting"][0]["note"], "two");
    let listed = two.call("list_locks", json!({"prefix": "repo/"})).await;
    assert_eq!(
        listed["locks"][0]["first_holder"]["note"],
        "one, renames a module"
    );
    assert_eq!(listed["locks"][0]["waiters"], 1);

    let renewed = one
        .call("renew_lock", json!({"lease": held["lease"], "ttl_seconds": 90}))
        .await;
    assert!(renewed["expires_in_seconds"].as_u64() > Some(60), "{renewed}");
    assert_eq!(
        one.call("release_lock", json!({"lease": held["lease"]})).await["state"],
        "released"
    );
    let granted = two
        .call(
            "wait_for_lock",
            json!({"lease": waits["lease"], "wait_seconds": 30}),
        )
        .await;
    assert_eq!(granted["state"], "holds");
    assert!(granted["fencing_token"].as_u64() > held["fencing_token"].as_u64());
    let lost = one.fails("renew_lock", json!({"lease": held["lease"]})).await;
    assert!(lost.contains("expired"), "{lost}");

    // The lock outlives the server of its agent, which another process may continue.
    drop(two.requests);
    assert!(two.server.wait().await.unwrap().success());
    let shown = json(&cluster, &["show", lock]).await;
    assert_eq!(shown["holders"][0]["note"], "two");
    one.call("release_lock", json!({"lease": granted["lease"]})).await;
    let shown = one.call("show_lock", json!({"lock": lock})).await;
    assert_eq!((&shown["holders"], &shown["waiting"]), (&json!([]), &json!([])));

    // A cancelled call leaves no place in the queue that the agent does not know.
    let held = one.call("acquire_lock", wanted("one", 0)).await;
    let (mut three, _) = Agent::start(&cluster).await;
    let waits = json!({"name": "acquire_lock", "arguments": wanted("three", 40)});
    three
        .send(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": waits}))
        .await;
    cluster.wait_queued(1, lock, 1).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
    three.send(&cancel).await;
    eventually("the place is given up", async || {
        let shown = json(&cluster, &["show", lock]).await;
        shown["queue"] == json!([])
    })
    .await;
    one.call("release_lock", json!({"lease": held["lease"]})).await;

    let wrong = one
        .request(
            "tools/call",
            json!({"name": "acquire_lock", "arguments": {"note": 1}}),
        )
        .await;
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    let unknown = one.request("tools/call", json!({"name": "break_lock"})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}
