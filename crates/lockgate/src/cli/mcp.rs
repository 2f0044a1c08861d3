//! `lockgate mcp`: locks as tools of the Model Context Protocol, over standard input and output, for AI agents that share something.
//!
//! A lock is held by a lease. The agent renews it by a tool while it works, and may continue with it in another process. If the agent dies,
//! the lease ends by itself.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use cli_support::api_client::request_id;
use cli_support::exit_code::NOT_FREE;
use cli_support::http_client::{encode_path, encode_query};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::io::stdio;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::Api;
use super::exit::Failure;
use super::lease::{lease_path, ms, wait_for_grant};
use super::servers::Servers;

/// Time to live of a lease for which the agent names none: several steps of an agent.
const DEFAULT_TTL_SECONDS: u64 = 600;

/// Maximum wait of one call. Agents give a call a minute.
const MAX_WAIT_SECONDS: u64 = 45;

/// Maximum number of locks in a list.
const MAX_LISTED: u32 = 200;

/// Text that an agent reads before it uses the tools.
const INSTRUCTIONS: &str = "Locks that agents, people and programs share. Acquire a lock before you work on something that others may work on \
     as well (a repository, a branch, a ticket, a device), with a note of your name and task. Renew its lease before it ends, \
     and release it when you are done. If a lock is busy, show_lock names its holders; take other work, or wait for it. A lock that you do \
     not renew goes to the next one, so do not continue after its time is over.";

/// `lockgate mcp`
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    servers: Servers,
}

/// Runs `lockgate mcp`, until the agent closes standard input.
pub async fn run(arguments: Arguments) -> Result<(), Failure> {
    // A wrong address or token is reported now, and not at the first call.
    Api::of(&arguments.servers)?;
    let server = McpServer {
        servers: arguments.servers,
    };
    let running = server.serve(stdio()).await.context("the handshake")?;
    running.waiting().await.context("serving the agent")?;
    Ok(())
}

/// Server of one agent.
struct McpServer {
    servers: Servers,
}

/// Arguments of `acquire_lock`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Acquire {
    lock: String,
    #[serde(default)]
    note: String,
    ttl_seconds: Option<u64>,
    #[serde(default)]
    wait_seconds: u64,
    #[serde(default)]
    shared: bool,
}

/// Arguments of `wait_for_lock`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    lease: String,
    wait_seconds: u64,
}

/// Arguments of `renew_lock`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Renew {
    lease: String,
    ttl_seconds: Option<u64>,
}

/// Arguments of `release_lock`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    lease: String,
}

/// Arguments of `show_lock`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Show {
    lock: String,
}

/// Arguments of `list_locks`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    prefix: String,
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(tools)
            .with_server_info(Implementation::new("lockgate", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let result = match &*request.name {
            "acquire_lock" => self.acquire(parsed(arguments)?, context.ct.cancelled()).await,
            "wait_for_lock" => self.wait(parsed(arguments)?).await,
            "renew_lock" => self.renew(parsed(arguments)?).await,
            "release_lock" => self.release(parsed(arguments)?).await,
            "show_lock" => self.show(parsed(arguments)?).await,
            "list_locks" => self.list(parsed(arguments)?).await,
            other => {
                return Err(ErrorData::invalid_params(
                    format!("there is no tool {other}"),
                    None,
                ));
            }
        };
        // The agent reads the reason of a failure, and may do something else.
        let result = result.map_or_else(
            |failure| CallToolResult::error(vec![ContentBlock::text(format!("{:#}", failure.error))]),
            CallToolResult::structured,
        );
        Ok(result.into())
    }
}

fn parsed<T: DeserializeOwned>(arguments: Value) -> Result<T, ErrorData> {
    serde_json::from_value(arguments).map_err(|error| ErrorData::invalid_params(error.to_string(), None))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl McpServer {
    fn api(&self) -> anyhow::Result<Api> {
        Api::of(&self.servers)
    }

    /// Acquires a lock. If the agent cancels the call while it waits, the lease is released: the agent does not know it.
    async fn acquire(
        &self,
        arguments: Acquire,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Value, Failure> {
        let deadline = Instant::now() + seconds(arguments.wait_seconds.min(MAX_WAIT_SECONDS));
        let mut api = self.api()?;
        let mut body = json!({
            "ttl_ms": ms(seconds(arguments.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS))),
            "mode": if arguments.shared { "shared" } else { "exclusive" },
            "note": arguments.note,
            "request_id": request_id(),
        });
        if arguments.wait_seconds > 0 {
            body["wait"] = "queue".into();
        }
        let lock = &arguments.lock;
        let path = format!("/v1/locks/{}/acquire", encode_path(lock));
        let answer = match api.call("POST", &path, &body).await {
            Ok(answer) => answer,
            Err(busy) if busy.code == NOT_FREE.into() => {
                let mut lock = self.seen(&mut api, lock).await?;
                lock["state"] = "busy".into();
                return Ok(lock);
            }
            Err(failure) => return Err(failure),
        };
        if !answer["fencing_token"].is_null() {
            return Ok(held(&answer));
        }
        tokio::select! {
            granted = self.granted(&mut api, lock, &answer, deadline) => return granted,
            () = cancelled => {}
        }
        self.api()?
            .call("DELETE", &lease_path(&answer), &Value::Null)
            .await?;
        Ok(json!({ "state": "released" }))
    }

    async fn wait(&self, arguments: Wait) -> Result<Value, Failure> {
        let deadline = Instant::now() + seconds(arguments.wait_seconds.min(MAX_WAIT_SECONDS));
        let mut api = self.api()?;
        let mut place = json!({ "lease": arguments.lease });
        let lease = api
            .get(&format!("{}?linearizable=true", lease_path(&place)))
            .await?;
        place["holder"] = lease["holder"].clone();
        place["expires_in_ms"] = lease["ttl_ms"].clone();
        let lock = lease["lock"].as_str().unwrap_or_default();
        self.granted(&mut api, lock, &place, deadline).await
    }

    /// Waits for the lock of a place in the queue. Returns the lock as it then is.
    async fn granted(
        &self,
        api: &mut Api,
        lock: &str,
        place: &Value,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        if let Some(grant) = wait_for_grant(api, lock, place, deadline).await? {
            return Ok(held(&grant));
        }
        let mut lock = self.seen(api, lock).await?;
        lock["state"] = "waits".into();
        lock["lease"] = place["lease"].clone();
        Ok(lock)
    }

    async fn renew(&self, arguments: Renew) -> Result<Value, Failure> {
        let mut body = json!({ "request_id": request_id() });
        if let Some(ttl) = arguments.ttl_seconds {
            body["ttl_ms"] = ms(seconds(ttl)).into();
        }
        let path = format!("{}/renew", lease_path(&json!({ "lease": arguments.lease })));
        let mut renewed = self.api()?.call("POST", &path, &body).await?;
        renewed["lease"] = arguments.lease.into();
        Ok(held(&renewed))
    }

    async fn release(&self, arguments: Release) -> Result<Value, Failure> {
        let lease = lease_path(&json!({ "lease": arguments.lease }));
        let path = format!("{lease}?request_id={}", request_id());
        self.api()?.call("DELETE", &path, &Value::Null).await?;
        Ok(json!({ "state": "released" }))
    }

    async fn show(&self, arguments: Show) -> Result<Value, Failure> {
        self.seen(&mut self.api()?, &arguments.lock).await
    }

    async fn list(&self, arguments: List) -> Result<Value, Failure> {
        let prefix = encode_query(&arguments.prefix);
        let path = format!("/v1/locks?prefix={prefix}&limit={MAX_LISTED}&holders=true&linearizable=true");
        let page = self.api()?.get(&path).await?;
        let locks = page["locks"].as_array().into_iter().flatten().map(|lock| {
            json!({
                "lock": lock["lock"],
                "first_holder": contender(&lock["first_holder"]),
                "holders": lock["holders"],
                "waiters": lock["waiters"],
            })
        });
        Ok(json!({ "locks": locks.collect::<Vec<_>>(), "more": !page["next_cursor"].is_null() }))
    }

    /// Returns the holders and the waiters of a lock.
    async fn seen(&self, api: &mut Api, lock: &str) -> Result<Value, Failure> {
        let path = format!("/v1/locks/{}?linearizable=true", encode_path(lock));
        let view = api.get(&path).await?;
        let list = |name: &str| -> Vec<Value> {
            let contenders = view[name].as_array().into_iter().flatten();
            contenders.map(contender).collect()
        };
        Ok(json!({ "lock": lock, "holders": list("holders"), "waiting": list("queue") }))
    }
}

/// Returns what an agent should know of a contender. Ids and addresses would be of no use to it.
fn contender(contender: &Value) -> Value {
    match contender {
        Value::Null => Value::Null,
        _ => json!({
            "note": contender["note"],
            "session_name": contender["session_name"],
            "mode": contender["mode"],
            "since_at": contender["since_at"],
        }),
    }
}

/// Returns a lease that holds its lock, or still waits for it.
fn held(lease: &Value) -> Value {
    json!({
        "state": if lease["state"] == "waits" { "waits" } else { "holds" },
        "lock": lease["lock"],
        "lease": lease["lease"],
        "fencing_token": lease["fencing_token"],
        "expires_in_seconds": lease["expires_in_ms"].as_u64().map(|ms| ms / 1_000),
    })
}

/// Returns all tools.
fn tools() -> Vec<Tool> {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let number = |description: &str| json!({ "type": "integer", "minimum": 0, "description": description });
    let lock = || text("Name of the lock, such as repo/app/main");
    let lease = || text("The lease, as acquire_lock returned it. It is a secret");
    let wait = || number(&format!("Time to wait, at most {MAX_WAIT_SECONDS}"));
    let ttl = number(&format!(
        "Time until the lock goes to the next one unless the lease is renewed; {DEFAULT_TTL_SECONDS} if it is missing"
    ));
    let tool = |name: &'static str, description: &'static str, properties: Value, required: &[&str]| {
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        let Value::Object(schema) = schema else {
            unreachable!("it is written as an object");
        };
        Tool::new(
            Cow::Borrowed(name),
            Cow::Borrowed(description),
            Arc::<JsonObject>::new(schema),
        )
    };
    vec![
        tool(
            "acquire_lock",
            "Acquires a lock. The state of the result is 'holds' (with the lease), 'busy' (with the holders), or, after a wait, 'waits': the \
             lease then has a place in the queue, for wait_for_lock.",
            json!({
                "lock": lock(),
                "note": text("Your name and task, for others that find the lock busy"),
                "ttl_seconds": ttl,
                "wait_seconds": wait(),
                "shared": { "type": "boolean", "description": "Hold it together with other shared holders" },
            }),
            &["lock", "note"],
        ),
        tool(
            "wait_for_lock",
            "Waits on for a lock whose state was 'waits', and renews its lease.",
            json!({ "lease": lease(), "wait_seconds": wait() }),
            &["lease", "wait_seconds"],
        ),
        tool(
            "renew_lock",
            "Renews a lease, and may change its time. An error means that the lock is lost: stop the work that it guards.",
            json!({ "lease": lease(), "ttl_seconds": number("New time to live; as before if it is missing") }),
            &["lease"],
        ),
        tool(
            "release_lock",
            "Releases a lock, or gives up the place in its queue.",
            json!({ "lease": lease() }),
            &["lease"],
        ),
        tool(
            "show_lock",
            "Shows the holders of a lock and its waiters, with their notes.",
            json!({ "lock": lock() }),
            &["lock"],
        ),
        tool(
            "list_locks",
            "Lists the locks in use whose names begin with a prefix.",
            json!({ "prefix": text("Beginning of the names; all locks if it is missing") }),
            &[],
        ),
    ]
}
