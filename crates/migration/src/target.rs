//! The target cluster: reads its tree and applies steps that change it, by the API's routes for migrations.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use cli_support::api_client::{ApiClient, CallError};
use cli_support::http_client::encode_path;
use serde::Deserialize;
use serde_json::{Value, json};

use super::facts::{AclEntry, AclInterner, Facts, Kind, Tree, rfc3339};
use super::incompatible_znodes::Limits;

/// Maximum number of znodes per page.
const PAGE: usize = 1000;

/// Maximum number of steps per request: the cluster applies them without interruption by other commands.
const STEPS_AT_ONCE: usize = 500;

/// Approximate number of data bytes per request, so that a request stays below a node's limit. The data of a
/// single znode may be larger.
const BYTES_AT_ONCE: usize = 512 * 1024;

/// Response timeout after which another node is tried. Repeating a request is harmless.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Step towards the source's tree.
#[derive(Debug, Clone)]
pub enum Step {
    /// Creates the znode, or makes it equal.
    Put(String, Facts, Bytes),
    /// Deletes the znode.
    Remove(String),
}

/// Client of the target cluster. See the module.
pub struct Target {
    client: ApiClient,
    lists: AclInterner,
    limits: Limits,
    /// See [`Target::distinguishes_null`].
    distinguishes_null: bool,
}

#[derive(Deserialize)]
struct Page {
    znodes: Vec<ListedZnode>,
    next_cursor: Option<String>,
    /// Older clusters do not report their limits.
    #[serde(default)]
    limits: Limits,
}

#[derive(Deserialize)]
struct ListedZnode {
    path: String,
    kind: String,
    ttl_ms: Option<u64>,
    data_length: u32,
    data_sha256: String,
    /// Older clusters have no such field and do not distinguish null from empty data.
    data_is_null: Option<bool>,
    acl: Vec<AclEntry>,
    version: i32,
    aversion: i32,
    created_at: String,
    modified_at: String,
    creations: u64,
}

impl Target {
    /// Creates a target that is called through `client`.
    pub fn new(client: ApiClient) -> Self {
        Self {
            client,
            lists: AclInterner::default(),
            limits: Limits::default(),
            distinguishes_null: true,
        }
    }

    /// Returns whether the target distinguishes null from empty data.
    pub fn distinguishes_null(&self) -> bool {
        self.distinguishes_null
    }

    /// Returns the limits of a znode, as reported when the tree was last read.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Reads `below` and its descendants, including ephemeral znodes; empty if it does not exist.
    pub async fn tree(&mut self, below: &str) -> anyhow::Result<Tree> {
        let mut tree = Tree::new();
        let mut after = None::<String>;
        loop {
            let mut path = format!(
                "/v1/mirror?limit={PAGE}&linearizable=true&below={}",
                encode_path(below)
            );
            if let Some(after) = &after {
                path += &format!("&cursor={}", encode_path(after));
            }
            let answer = match self.client.call("GET", &path, &Value::Null, ANSWER_TIMEOUT).await {
                Ok(answer) => answer,
                Err(error) if error.code() == "no_znode" && after.is_none() && below != "/" => {
                    self.read_limits().await?;
                    return Ok(tree);
                }
                Err(error) => return Err(with_advice(error)),
            };
            let page: Page = serde_json::from_slice(&answer.body)?;
            self.limits = page.limits;
            for shown in page.znodes {
                let (path, facts) = self.facts(shown)?;
                tree.insert(path, facts);
            }
            match page.next_cursor {
                Some(last) => after = Some(last),
                None => return Ok(tree),
            }
        }
    }

    /// Reads the limits, which every page contains.
    async fn read_limits(&mut self) -> anyhow::Result<()> {
        let path = "/v1/mirror?limit=1&linearizable=true";
        let answer = self.client.call("GET", path, &Value::Null, ANSWER_TIMEOUT).await;
        let page: Page = serde_json::from_slice(&answer.map_err(with_advice)?.body)?;
        self.limits = page.limits;
        Ok(())
    }

    fn facts(&mut self, shown: ListedZnode) -> anyhow::Result<(String, Facts)> {
        let kind = match (&*shown.kind, shown.ttl_ms) {
            ("persistent", _) => Kind::Persistent,
            ("container", _) => Kind::Container,
            ("ttl", Some(ttl_ms)) => Kind::Ttl(ttl_ms),
            // The session does not matter.
            ("ephemeral", _) => Kind::Ephemeral(0),
            (kind, _) => anyhow::bail!(
                "{} is of kind {kind:?}, which this program does not know",
                shown.path
            ),
        };
        self.distinguishes_null &= shown.data_is_null.is_some();
        let mut data_sha256 = [0; 32];
        anyhow::ensure!(
            shown.data_sha256.len() == 64 && shown.data_sha256.is_ascii(),
            "the response has a malformed hash of {}",
            shown.path
        );
        for (byte, digits) in data_sha256.iter_mut().zip(shown.data_sha256.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits)?, 16)?;
        }
        let facts = Facts {
            kind,
            data_sha256: (shown.data_is_null != Some(true)).then_some(data_sha256),
            data_length: shown.data_length,
            acl: self.lists.shared(shown.acl),
            version: shown.version,
            aversion: shown.aversion,
            created_ms: time_ms(&shown.created_at)?,
            modified_ms: time_ms(&shown.modified_at)?,
            creations: shown.creations,
        };
        Ok((shown.path, facts))
    }

    /// Executes steps in their order.
    pub async fn execute(&mut self, steps: &[Step]) -> Result<(), CallError> {
        let mut rest = steps;
        while !rest.is_empty() {
            let (some, behind) = rest.split_at(prefix(rest));
            let steps: Vec<Value> = some.iter().map(document).collect();
            let body = json!({ "steps": steps });
            self.client
                .call("POST", "/v1/mirror", &body, ANSWER_TIMEOUT)
                .await?;
            rest = behind;
        }
        Ok(())
    }

    /// Returns whether a znode exists.
    pub async fn has(&mut self, path: &str) -> anyhow::Result<bool> {
        let address = format!("/v1/znodes{}?linearizable=true", encode_path(path));
        match self
            .client
            .call("GET", &address, &Value::Null, ANSWER_TIMEOUT)
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.code() == "no_znode" => Ok(false),
            Err(error) => Err(with_advice(error)),
        }
    }

    /// Returns the data of a znode, if it exists and its data is text.
    pub async fn text(&mut self, path: &str) -> anyhow::Result<Option<String>> {
        let address = format!("/v1/znodes{}?linearizable=true", encode_path(path));
        match self
            .client
            .call("GET", &address, &Value::Null, ANSWER_TIMEOUT)
            .await
        {
            Ok(answer) => Ok(answer.json()["data"].as_str().map(str::to_owned)),
            Err(error) if error.code() == "no_znode" => Ok(None),
            Err(error) => Err(with_advice(error)),
        }
    }
}

/// Adds advice to an error.
pub fn with_advice(error: CallError) -> anyhow::Error {
    let advice = match error.code() {
        "unauthenticated" | "forbidden" => {
            "a migration needs the permission to administer `/` (--token-file); in a cluster that is not secured, znodes with \
             access control lists need the operator token"
        }
        "no_route" => "the cluster is too old for migrations: upgrade it first",
        _ => return anyhow::Error::from(error).context("the target"),
    };
    anyhow::Error::from(error).context(advice).context("the target")
}

/// Returns the number of steps for the next request.
fn prefix(steps: &[Step]) -> usize {
    let mut bytes = 0;
    let fits = |step: &&Step| {
        bytes += match step {
            Step::Put(path, facts, data) => {
                let list = facts.acl.iter().map(|entry| entry.scheme.len() + entry.id.len());
                path.len() + data.len() + list.sum::<usize>()
            }
            Step::Remove(path) => path.len(),
        };
        bytes <= BYTES_AT_ONCE
    };
    let fitting = steps.iter().take(STEPS_AT_ONCE).take_while(fits).count();
    fitting.max(1)
}

fn document(step: &Step) -> Value {
    match step {
        Step::Remove(path) => json!({ "remove": { "path": path } }),
        Step::Put(path, facts, data) => {
            let ttl_ms = match facts.kind {
                Kind::Ttl(ttl_ms) => Some(ttl_ms),
                _ => None,
            };
            let mut put = json!({
                "path": path,
                "acl": &facts.acl[..],
                "kind": facts.kind.word(),
                "ttl_ms": ttl_ms,
                "version": facts.version,
                "aversion": facts.aversion,
                "created_at": rfc3339(facts.created_ms),
                "modified_at": rfc3339(facts.modified_ms),
                "creations": facts.creations,
            });
            match std::str::from_utf8(data) {
                // A cluster without support for null data reads it as empty data.
                Ok(_) if facts.data_sha256.is_none() => put["data"] = Value::Null,
                Ok(text) if escaped_bytes(text) <= base64_bytes(data) => put["data"] = text.into(),
                _ => put["data_base64"] = BASE64.encode(data).into(),
            }
            json!({ "put": put })
        }
    }
}

/// Returns the length of a text in JSON. A text of control characters would become six times as long, and
/// exceed a node's limit.
fn escaped_bytes(text: &str) -> usize {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    });
    bytes.sum()
}

fn base64_bytes(data: &[u8]) -> usize {
    data.len().div_ceil(3) * 4
}

fn time_ms(text: &str) -> anyhow::Result<i64> {
    let time = humantime::parse_rfc3339(text)?;
    Ok(time.duration_since(std::time::UNIX_EPOCH)?.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(data: &[u8]) -> Step {
        let facts = Facts {
            kind: Kind::Persistent,
            data_sha256: Some(super::super::facts::hash(data)),
            data_length: data.len() as u32,
            acl: Vec::new().into(),
            version: 0,
            aversion: 0,
            created_ms: 0,
            modified_ms: 0,
            creations: 0,
        };
        Step::Put("/a".to_owned(), facts, Bytes::copy_from_slice(data))
    }

    #[test]
    fn encoded_data_is_at_most_as_long_as_base64() {
        const MEBIBYTE: usize = 1 << 20;
        for byte in [b'a', b'"', b'\n', 0, 0x1f, 0x7f, 0xff] {
            let data = vec![byte; MEBIBYTE];
            let text = document(&put(&data)).to_string();
            assert!(text.len() <= base64_bytes(&data) + 1024, "{byte}: {}", text.len());
        }
        // Readable text stays readable, also in recorded bodies.
        assert_eq!(document(&put(b"{\"a\": 1}"))["put"]["data"], "{\"a\": 1}");
        assert_eq!(document(&put(b"plain"))["put"]["data"], "plain");
        // Null is distinct from empty data.
        assert_eq!(document(&put(b""))["put"]["data"], "");
        let mut null = put(b"");
        if let Step::Put(_, facts, _) = &mut null {
            facts.data_sha256 = None;
        }
        assert_eq!(document(&null)["put"].get("data"), Some(&Value::Null));
    }
}
