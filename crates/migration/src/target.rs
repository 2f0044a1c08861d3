//! The cluster that is moved to: what its tree is like, and steps that change it, by the API's routes for that.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use cli_support::api_client::{ApiClient, CallError};
use cli_support::http_client::encode_path;
use serde::Deserialize;
use serde_json::{Value, json};

use super::facts::{AclEntry, Facts, Kind, Lists, Tree, rfc3339};
use super::misfits::Limits;

/// The most that one page may show.
const PAGE: usize = 1000;

/// So many steps go into one request at most: while they are carried out, nothing else is.
const STEPS_AT_ONCE: usize = 500;

/// And about so many bytes of data, so that a request stays below what a node takes. One znode's data may be more.
const BYTES_AT_ONCE: usize = 512 * 1024;

/// How long one request may take before another node is asked. To ask twice is to ask once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// One step towards the source's tree.
#[derive(Debug, Clone)]
pub enum Step {
    /// The znode is so from now on.
    Put(String, Facts, Bytes),
    /// It is gone from now on.
    Remove(String),
}

/// See the module.
pub struct Target {
    client: ApiClient,
    lists: Lists,
    limits: Limits,
    /// See [`Target::tells_null`].
    tells_null: bool,
}

#[derive(Deserialize)]
struct Page {
    znodes: Vec<Shown>,
    next_after: Option<String>,
    /// What is older does not say it.
    #[serde(default)]
    limits: Limits,
}

#[derive(Deserialize)]
struct Shown {
    path: String,
    kind: String,
    ttl_ms: Option<u64>,
    data_length: u32,
    data_sha256: String,
    /// What is older does not say it, and takes null for no bytes.
    data_is_null: Option<bool>,
    acl: Vec<AclEntry>,
    version: i32,
    aversion: i32,
    created_at: String,
    modified_at: String,
    creations: u64,
}

impl Target {
    /// By this client.
    pub fn new(client: ApiClient) -> Self {
        Self {
            client,
            lists: Lists::default(),
            limits: Limits::default(),
            tells_null: true,
        }
    }

    /// Whether null data is kept apart from no bytes there.
    pub fn tells_null(&self) -> bool {
        self.tells_null
    }

    /// What a znode may be there, as it was said when the tree was last read.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// `below` and all that is below it, ephemeral znodes too; nothing if it is not there.
    pub async fn tree(&mut self, below: &str) -> anyhow::Result<Tree> {
        let mut tree = Tree::new();
        let mut after = None::<String>;
        loop {
            let mut path = format!(
                "/v1/mirror?count={PAGE}&linearizable=true&below={}",
                encode_path(below)
            );
            if let Some(after) = &after {
                path += &format!("&after={}", encode_path(after));
            }
            let answer = match self.client.call("GET", &path, &Value::Null, ANSWER_TIMEOUT).await {
                Ok(answer) => answer,
                Err(error) if error.code() == "no_node" && after.is_none() && below != "/" => {
                    self.ask_limits().await?;
                    return Ok(tree);
                }
                Err(error) => return Err(explained(error)),
            };
            let page: Page = serde_json::from_slice(&answer.body)?;
            self.limits = page.limits;
            for shown in page.znodes {
                let (path, facts) = self.facts(shown)?;
                tree.insert(path, facts);
            }
            match page.next_after {
                Some(last) => after = Some(last),
                None => return Ok(tree),
            }
        }
    }

    /// They are said with any page.
    async fn ask_limits(&mut self) -> anyhow::Result<()> {
        let path = "/v1/mirror?count=1&linearizable=true";
        let answer = self.client.call("GET", path, &Value::Null, ANSWER_TIMEOUT).await;
        let page: Page = serde_json::from_slice(&answer.map_err(explained)?.body)?;
        self.limits = page.limits;
        Ok(())
    }

    fn facts(&mut self, shown: Shown) -> anyhow::Result<(String, Facts)> {
        let kind = match (&*shown.kind, shown.ttl_ms) {
            ("persistent", _) => Kind::Persistent,
            ("container", _) => Kind::Container,
            ("ttl", Some(ttl_ms)) => Kind::Ttl(ttl_ms),
            // Whose it is does not matter.
            ("ephemeral", _) => Kind::Ephemeral(0),
            (kind, _) => anyhow::bail!(
                "{} is of kind {kind:?}, which this program does not know",
                shown.path
            ),
        };
        self.tells_null &= shown.data_is_null.is_some();
        let mut data_sha256 = [0; 32];
        anyhow::ensure!(
            shown.data_sha256.len() == 64 && shown.data_sha256.is_ascii(),
            "the hash of {} is none",
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

    /// Takes steps, in their order.
    pub async fn take(&mut self, steps: &[Step]) -> Result<(), CallError> {
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

    /// Whether a znode is there.
    pub async fn has(&mut self, path: &str) -> anyhow::Result<bool> {
        let address = format!("/v1/znodes{}?linearizable=true", encode_path(path));
        match self
            .client
            .call("GET", &address, &Value::Null, ANSWER_TIMEOUT)
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.code() == "no_node" => Ok(false),
            Err(error) => Err(explained(error)),
        }
    }

    /// The data of a znode, if it is there and is text.
    pub async fn text(&mut self, path: &str) -> anyhow::Result<Option<String>> {
        let address = format!("/v1/znodes{}?linearizable=true", encode_path(path));
        match self
            .client
            .call("GET", &address, &Value::Null, ANSWER_TIMEOUT)
            .await
        {
            Ok(answer) => Ok(answer.json()["data"].as_str().map(str::to_owned)),
            Err(error) if error.code() == "no_node" => Ok(None),
            Err(error) => Err(explained(error)),
        }
    }
}

/// An error with what to do about it.
pub fn explained(error: CallError) -> anyhow::Error {
    let advice = match error.code() {
        "unauthenticated" | "forbidden" => {
            "moving a tree takes the right to administer at / (--token-file); in a cluster that is not secured, znodes with \
             access control lists take its operator's token"
        }
        "no_route" => "the cluster is too old to be moved to: upgrade it first",
        _ => return anyhow::Error::from(error).context("the target"),
    };
    anyhow::Error::from(error).context(advice).context("the target")
}

/// How many of these steps go into one request.
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
                // Whoever does not know null takes it for no bytes.
                Ok(_) if facts.data_sha256.is_none() => put["data"] = Value::Null,
                Ok(text) if escaped_bytes(text) <= base64_bytes(data) => put["data"] = text.into(),
                _ => put["data_base64"] = BASE64.encode(data).into(),
            }
            json!({ "put": put })
        }
    }
}

/// How long a text gets in JSON. One of control characters becomes six times as long, and larger than what a node takes.
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
    fn no_data_gets_much_longer_on_its_way() {
        const MEBIBYTE: usize = 1 << 20;
        for byte in [b'a', b'"', b'\n', 0, 0x1f, 0x7f, 0xff] {
            let data = vec![byte; MEBIBYTE];
            let text = document(&put(&data)).to_string();
            assert!(text.len() <= base64_bytes(&data) + 1024, "{byte}: {}", text.len());
        }
        // What people read stays what people read, also when bodies are written down.
        assert_eq!(document(&put(b"{\"a\": 1}"))["put"]["data"], "{\"a\": 1}");
        assert_eq!(document(&put(b"plain"))["put"]["data"], "plain");
        // Null is not the same as no bytes.
        assert_eq!(document(&put(b""))["put"]["data"], "");
        let mut null = put(b"");
        if let Step::Put(_, facts, _) = &mut null {
            facts.data_sha256 = None;
        }
        assert_eq!(document(&null)["put"].get("data"), Some(&Value::Null));
    }
}
