//! Golden conversations with the API: the scripts in `tests/golden/`, each about one mode or feature of locks. Values
//! that differ from run to run are replaced by names: `<one>` is the session opened by that name, `<h1>` the first
//! holder in the script, then `<time>`, `<address>`, `<ms>`. Fencing tokens are positions of the log, and the same each
//! time.
//!
//! | line | effect |
//! |---|---|
//! | `session NAME [ttl_ms=N]` | opens a session |
//! | `GET PATH`, `POST PATH BODY`, `PUT PATH BODY`, `PATCH PATH BODY`, `DELETE PATH` | makes a call, and shows its answer |
//! | `begin NAME PATH BODY` | makes a call by `POST`, and continues when the call waits |
//! | `watch NAME PATH` | makes a watch by `GET`, and continues when the watch is registered |
//! | `reply NAME` | shows the answer of a call that waited |
//! | `hang_up NAME` | disconnects a caller, and continues when its call does not wait any more |
//! | `until PATH TEXT` | polls until the answer contains the text |
//! | `follow NAME SESSION [query=QUERY] [last=ID]` | follows a session's events; if `last` is the name of a client that left, after its last event |
//! | `events NAME N` | shows the next N events |
//! | `end NAME` | expects the end of the stream |
//! | `leave NAME` | disconnects the client |
//!
//! A call with `as=NAME` sends the token of that name. An earlier call with `token=NAME` has received it, or NAME is
//! `operator`.
//!
//! `UPDATE_GOLDENFILES=1 cargo test -p lock-api golden` writes the answers into the scripts, to be reviewed as a diff.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use goldenscript::{ArgumentConsumer, Command, Context, Runner};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::stream::{Event, Stream};
use crate::support::{Call, Reply, Server, until};

/// Maximum length of a document in one line.
const LINE: usize = 100;

struct Script {
    runtime: Runtime,
    server: Option<Server>,
    names: Names,
    waiting: BTreeMap<String, Call>,
    streams: BTreeMap<String, Stream>,
    /// Last event of each client that left.
    left: BTreeMap<String, String>,
    /// Texts of tokens, by name.
    tokens: BTreeMap<String, String>,
}

/// Names of the values that differ from run to run.
#[derive(Default)]
struct Names {
    /// Names, by the real values.
    known: BTreeMap<String, String>,
    holders: usize,
}

type Output = Result<String, Box<dyn Error>>;

impl Script {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(Server::start());
        let tokens = [("operator".to_owned(), server.operator.clone())].into();
        Self {
            runtime,
            server: Some(server),
            tokens,
            names: Names::default(),
            waiting: BTreeMap::new(),
            streams: BTreeMap::new(),
            left: BTreeMap::new(),
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn call(&self, method: &str, path: &str, body: Option<&str>) -> Reply {
        self.call_as(None, method, path, body)
    }

    fn call_as(&self, token: Option<&str>, method: &str, path: &str, body: Option<&str>) -> Reply {
        let token = token.map(|name| &*self.tokens[name]);
        let address = self.server().address;
        self.runtime.block_on(async {
            let call = Call::send_as(address, token, method, path, body).await;
            call.reply().await
        })
    }

    /// Shows the answer, and gives the token in it its name.
    fn show_made(&mut self, token: Option<String>, reply: &Reply) -> String {
        if let Some(name) = token {
            let made = reply.expect(201);
            let text = |field: &str| made[field].as_str().unwrap().to_owned();
            self.names.known.insert(text("id"), format!("<{name}>"));
            self.tokens.insert(name, text("token"));
        }
        self.names.show(reply)
    }

    /// Returns the number of waiters of all locks.
    async fn waits(&self) -> usize {
        let graph = self.server().get("/v1/lock-graph").await.expect(200);
        graph["waits"].as_array().unwrap().len()
    }

    fn step(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Output {
        let mut key = |name| args.take_key(name).map(str::to_owned);
        let (ttl_ms, query, last) = (key("ttl_ms"), key("query"), key("last"));
        let (caller, token) = (key("as"), key("token"));
        let caller = caller.as_deref();
        let ttl_ms = ttl_ms.as_deref().unwrap_or("120000");
        let mut next = || {
            let text = args.next_pos().ok_or("something is missing")?;
            Ok::<_, Box<dyn Error>>(self.names.real(text))
        };
        match name {
            "session" => {
                let name = next()?;
                let opened = self.call("POST", "/v1/sessions", Some(&format!(r#"{{"ttl_ms":{ttl_ms}}}"#)));
                let id = opened.expect(201)["session"].as_str().unwrap().to_owned();
                self.names.known.insert(id, format!("<{name}>"));
                Ok(self.names.show(&opened))
            }
            "GET" | "DELETE" => {
                let path = next()?;
                let reply = self.call_as(caller, name, &path, None);
                Ok(self.names.show(&reply))
            }
            "POST" | "PUT" | "PATCH" => {
                let (path, body) = (next()?, next()?);
                let reply = self.call_as(caller, name, &path, Some(&body));
                Ok(self.show_made(token, &reply))
            }
            "begin" => {
                let (name, path, body) = (next()?, next()?, next()?);
                let call = self.runtime.block_on(async {
                    let before = self.waits().await;
                    let call = Call::send(self.server().address, "POST", &path, Some(&body)).await;
                    until("it waits", async || self.waits().await > before).await;
                    call
                });
                self.waiting.insert(name, call);
                Ok(String::new())
            }
            "watch" => {
                let (name, path) = (next()?, next()?);
                let call = self.runtime.block_on(async {
                    let armed = || self.server().node.watch_counts().watches;
                    let before = armed();
                    let call = Call::send(self.server().address, "GET", &path, None).await;
                    until("it is armed", async || armed() > before).await;
                    call
                });
                self.waiting.insert(name, call);
                Ok(String::new())
            }
            "reply" => {
                let call = self.waiting.remove(&next()?).ok_or("it does not wait")?;
                let reply = self.runtime.block_on(call.reply());
                Ok(self.names.show(&reply))
            }
            "hang_up" => {
                let call = self.waiting.remove(&next()?).ok_or("it does not wait")?;
                self.runtime.block_on(async {
                    let before = self.waits().await;
                    drop(call);
                    until("it waits no more", async || self.waits().await < before).await;
                });
                Ok(String::new())
            }
            "follow" => {
                let (name, session) = (next()?, next()?);
                let query = query.unwrap_or_default();
                let last = last.map(|last| self.left.get(&last).cloned().unwrap_or(last));
                let open = Stream::open(self.server().address, &session, &query, last.as_deref());
                match self.runtime.block_on(open) {
                    Ok(stream) => {
                        self.streams.insert(name, stream);
                        Ok(String::new())
                    }
                    Err(refused) => Ok(self.names.show(&refused)),
                }
            }
            "events" => {
                let (name, count) = (next()?, next()?);
                let stream = self.streams.get_mut(&name).ok_or("nobody follows")?;
                let mut all = Vec::new();
                for _ in 0..count.parse()? {
                    let event = self.runtime.block_on(stream.next());
                    all.push(self.names.show_event(&event));
                }
                Ok(all.join("\n"))
            }
            "end" => {
                let stream = self.streams.remove(&next()?).ok_or("nobody follows")?;
                self.runtime.block_on(stream.expect_end());
                Ok(String::new())
            }
            "leave" => {
                let name = next()?;
                let stream = self.streams.remove(&name).ok_or("nobody follows")?;
                self.left.insert(name, stream.leave());
                Ok(String::new())
            }
            "until" => {
                let (path, text) = (next()?, next()?);
                self.runtime.block_on(until("it is so", async || {
                    self.server().get(&path).await.body.contains(&text)
                }));
                Ok(String::new())
            }
            other => Err(format!("there is no {other:?}").into()),
        }
    }
}

impl Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Output {
        let mut args = command.consume_args();
        let output = self.step(&command.name, &mut args)?;
        args.reject_next()?;
        Ok(output)
    }

    fn end_script(&mut self) -> Result<(), Box<dyn Error>> {
        let server = self.server.take().unwrap();
        self.runtime.block_on(async {
            self.waiting.clear();
            self.streams.clear();
            server.stop().await;
        });
        Ok(())
    }
}

impl Names {
    /// Replaces names by the real values.
    fn real(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (real, name) in &self.known {
            text = text.replace(name, real);
        }
        text
    }

    /// Shows an answer: status, code of a problem, document.
    fn show(&mut self, reply: &Reply) -> String {
        if reply.body.is_empty() {
            return reply.status.to_string();
        }
        let mut document = reply.json();
        let mut head = reply.status.to_string();
        if let (Value::Object(fields), true) = (&mut document, reply.status >= 400) {
            let code = fields.remove("code").unwrap();
            head = format!("{head} {}", code.as_str().unwrap());
            for known_by_the_code in ["status", "title", "type"] {
                fields.remove(known_by_the_code);
            }
        }
        self.meet(&document);
        let document = self.named("", document);
        format!("{head} {}", pretty(&document, 0))
    }

    /// Shows an event: its id, if it has one, its name, and its document.
    fn show_event(&mut self, event: &Event) -> String {
        self.meet(&event.data);
        let data = self.named("", event.data.clone());
        let id = event.id.as_deref().unwrap_or("-");
        format!("{id} {} {}", event.word, pretty(&data, 0))
    }

    /// Names new holders, in the order of their appearance.
    fn meet(&mut self, document: &Value) {
        match document {
            Value::Array(all) => all.iter().for_each(|one| self.meet(one)),
            Value::Object(fields) => {
                if let Some(Value::String(holder)) = fields.get("holder")
                    && !self.known.contains_key(holder)
                {
                    self.holders += 1;
                    let name = format!("<h{}>", self.holders);
                    self.known.insert(holder.clone(), name);
                }
                fields.values().for_each(|one| self.meet(one));
            }
            _ => {}
        }
    }

    fn named(&self, field: &str, value: Value) -> Value {
        match value {
            Value::Array(all) => all.into_iter().map(|one| self.named("", one)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(field, value)| {
                    let value = self.named(&field, value);
                    (field, value)
                });
                Value::Object(fields.collect::<Map<_, _>>())
            }
            Value::String(_) if field.ends_with("_at") => json!("<time>"),
            Value::String(text) if field == "token" && text.starts_with("lg_") => json!("<text>"),
            Value::String(text) if field == "address" && !text.is_empty() => json!("<address>"),
            Value::String(text) if field == "by" && text.starts_with("127.0.0.1") => json!("<address>"),
            Value::Number(_) if field == "left_ms" => json!("<ms>"),
            Value::Number(_) if field == "passed_ms" || field == "age_ms" => json!("<ms>"),
            Value::String(text) => {
                let mut text = text;
                for (real, name) in &self.known {
                    text = text.replace(real, name);
                }
                json!(in_general(&text))
            }
            other => other,
        }
    }
}

/// Removes the caller's port from the text of a detail.
fn in_general(text: &str) -> String {
    match text.split_once("127.0.0.1:") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}<address>{after}")
        }
        None => text.to_owned(),
    }
}

/// Formats JSON readably: in one line if it fits.
fn pretty(value: &Value, indent: usize) -> String {
    let line = one_line(value);
    if line.len() + indent <= LINE {
        return line;
    }
    let deeper = indent + 2;
    let lines = |all: Vec<String>| {
        let pad = " ".repeat(deeper);
        let all: Vec<_> = all.into_iter().map(|one| format!("{pad}{one}")).collect();
        format!("\n{}\n{}", all.join(",\n"), " ".repeat(indent))
    };
    match value {
        Value::Array(all) => {
            format!("[{}]", lines(all.iter().map(|one| pretty(one, deeper)).collect()))
        }
        Value::Object(fields) => {
            // Short values share a line.
            let mut rows: Vec<String> = Vec::new();
            for (field, value) in fields {
                let text = format!("{field:?}: {}", pretty(value, deeper));
                match rows.last_mut() {
                    Some(row)
                        if !row.contains('\n')
                            && !text.contains('\n')
                            && deeper + row.len() + text.len() + 2 <= LINE =>
                    {
                        *row = format!("{row}, {text}");
                    }
                    _ => rows.push(text),
                }
            }
            format!("{{{}}}", lines(rows))
        }
        _ => line,
    }
}

fn one_line(value: &Value) -> String {
    let join = |all: Vec<String>| all.join(", ");
    match value {
        Value::Array(all) => format!("[{}]", join(all.iter().map(one_line).collect())),
        Value::Object(fields) => {
            let all = fields
                .iter()
                .map(|(field, value)| format!("{field:?}: {}", one_line(value)));
            format!("{{{}}}", join(all.collect()))
        }
        other => other.to_string(),
    }
}

#[test]
fn golden_conversations() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = std::fs::read_dir(dir).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let mut failed = Vec::new();
    for path in paths {
        // All scripts run before the test fails, so that one run shows all differences.
        let run = std::panic::catch_unwind(|| goldenscript::run(&mut Script::new(), &path));
        match run {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => eprintln!("{}: {error}", path.display()),
            Err(_) => {}
        }
        failed.push(path);
    }
    assert!(
        failed.is_empty(),
        "these conversations went otherwise: {failed:?}"
    );
}
