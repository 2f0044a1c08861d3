//! Lockgate's tree as a [`Store`], over HTTP.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Method;
use serde_json::{Value, json};

use super::caller::{Caller, Reply, TIMEOUT};
use super::result::CallResult;
use super::store::{Freshness, Store, Versioned};

/// Name prefix of numbered znodes.
const NUMBERED: &str = "n-";

/// Number of keys that one transaction creates: half of the limit.
const CREATED_AT_ONCE: usize = 500;

/// Digits of a sequential znode's number, as in ZooKeeper.
const DIGITS: usize = 10;

/// One client of the store.
pub struct LockgateStore(pub Caller);

fn address(path: &str) -> String {
    format!("/v1/znodes{path}")
}

/// Reports a document that violates the contract; it leaves the outcome unknown.
fn malformed<T>(document: &Value) -> CallResult<T> {
    CallResult::Unknown(format!("a malformed response: {document}"))
}

impl Store for LockgateStore {
    fn create_all<'a>(&'a mut self, keys: &'a [String], value: &'a str) -> BoxFuture<'a, CallResult<()>> {
        async move {
            for some in keys.chunks(CREATED_AT_ONCE) {
                let create = |key| json!({"create": {"path": key, "data": value, "parents": true}});
                let ops: Vec<_> = some.iter().map(create).collect();
                match self.0.post("/v1/txn", &json!({"ops": ops})).await.done() {
                    CallResult::Ok(_) => {}
                    other => return other.map(drop),
                }
            }
            CallResult::Ok(())
        }
        .boxed()
    }

    fn get<'a>(
        &'a mut self,
        key: &'a str,
        freshness: Freshness,
    ) -> BoxFuture<'a, CallResult<Option<Versioned>>> {
        async move {
            let query = match freshness {
                Freshness::Linearizable => "?linearizable=true",
                Freshness::Local => "",
            };
            match self.0.get(&format!("{}{query}", address(key))).await {
                Reply::Done(document) => {
                    match (document["data"].as_str(), document["stat"]["version"].as_u64()) {
                        (Some(value), Some(version)) => CallResult::Ok(Some(Versioned {
                            value: value.to_owned(),
                            version,
                        })),
                        _ => malformed(&document),
                    }
                }
                Reply::Refused(code, _) if code == "no_znode" => CallResult::Ok(None),
                reply => reply.done().map(|_| None),
            }
            .for_read()
        }
        .boxed()
    }

    fn set<'a>(
        &'a mut self,
        key: &'a str,
        value: &'a str,
        expected: Option<u64>,
    ) -> BoxFuture<'a, CallResult<Option<u64>>> {
        async move {
            let mut path = address(key);
            if let Some(version) = expected {
                path.push_str(&format!("?version={version}"));
            }
            let body = json!({"data": value});
            match self.0.call(Method::PUT, &path, Some(&body), TIMEOUT).await {
                Reply::Done(document) => match document["stat"]["version"].as_u64() {
                    Some(version) => CallResult::Ok(Some(version)),
                    None => malformed(&document),
                },
                Reply::Refused(code, _) if code == "bad_version" => CallResult::Ok(None),
                reply => reply.done().map(|_| None),
            }
        }
        .boxed()
    }

    fn create_numbered<'a>(&'a mut self, parent: &'a str) -> BoxFuture<'a, CallResult<u64>> {
        async move {
            let path = address(&format!("{parent}/{NUMBERED}"));
            let body = json!({"mode": "persistent_sequential"});
            match self.0.post(&path, &body).await.done() {
                CallResult::Ok(document) => match document["path"].as_str().and_then(number) {
                    Some(number) => CallResult::Ok(number),
                    None => malformed(&document),
                },
                CallResult::Failed(why) => CallResult::Failed(why),
                CallResult::Unknown(why) => CallResult::Unknown(why),
            }
        }
        .boxed()
    }

    fn delete_numbered<'a>(&'a mut self, parent: &'a str, number: u64) -> BoxFuture<'a, CallResult<()>> {
        async move {
            let path = address(&format!("{parent}/{NUMBERED}{number:0DIGITS$}"));
            self.0
                .call(Method::DELETE, &path, None, TIMEOUT)
                .await
                .done()
                .map(drop)
        }
        .boxed()
    }
}

/// Parses the number at the end of a sequential znode's path.
fn number(path: &str) -> Option<u64> {
    path.get(path.len().checked_sub(DIGITS)?..)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_number_is_the_last_ten_digits() {
        assert_eq!(number("/jepsen/ids/0/n-0000000042"), Some(42));
        assert_eq!(number("42"), None);
    }
}
