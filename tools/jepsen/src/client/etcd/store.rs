//! Keys of etcd as a [`Store`].

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{call, decoded, encoded, number};
use crate::client::caller::Caller;
use crate::client::result::CallResult;
use crate::client::store::{Freshness, Store, Versioned};

/// Number of keys that one transaction creates; etcd allows up to 128.
const CREATED_AT_ONCE: usize = 100;

/// One client of the store.
pub struct EtcdStore {
    caller: Caller,
    /// Number of the client; part of the key that it writes to get a number.
    client: usize,
}

impl EtcdStore {
    /// Creates the client with this number.
    pub fn new(caller: Caller, client: usize) -> Self {
        Self { caller, client }
    }

    fn own_key(&self, parent: &str) -> String {
        encoded(&format!("{parent}/{}", self.client))
    }
}

impl Store for EtcdStore {
    fn create_all<'a>(&'a mut self, keys: &'a [String], value: &'a str) -> BoxFuture<'a, CallResult<()>> {
        async move {
            for some in keys.chunks(CREATED_AT_ONCE) {
                let put =
                    |key: &String| json!({"request_put": {"key": encoded(key), "value": encoded(value)}});
                let puts: Vec<Value> = some.iter().map(put).collect();
                let answer = call(&mut self.caller, "/v3/kv/txn", &json!({"success": puts})).await;
                if !matches!(answer, CallResult::Ok(_)) {
                    return answer.map(drop);
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
            let local = freshness == Freshness::Local;
            let body = json!({"key": encoded(key), "serializable": local});
            let answer = call(&mut self.caller, "/v3/kv/range", &body).await.for_read();
            answer.map(|document| {
                let found = document["kvs"].get(0)?;
                Some(Versioned {
                    // The gateway omits an empty value.
                    value: decoded(&found["value"]).unwrap_or_default(),
                    version: number(&found["version"]),
                })
            })
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
            let put = json!({"key": encoded(key), "value": encoded(value), "prev_kv": true});
            let Some(expected) = expected else {
                let answer = call(&mut self.caller, "/v3/kv/put", &put).await;
                return answer.map(|document| Some(number(&document["prev_kv"]["version"]) + 1));
            };
            let body = json!({
                "compare": [{"target": "VERSION", "result": "EQUAL", "key": encoded(key), "version": expected.to_string()}],
                "success": [{"request_put": put}],
            });
            let answer = call(&mut self.caller, "/v3/kv/txn", &body).await;
            answer.map(|document| document["succeeded"].as_bool().unwrap_or(false).then_some(expected + 1))
        }
        .boxed()
    }

    /// Every write has a revision of its own, which users of etcd take as a sequence number.
    fn create_numbered<'a>(&'a mut self, parent: &'a str) -> BoxFuture<'a, CallResult<u64>> {
        async move {
            let body = json!({"key": self.own_key(parent), "value": ""});
            let answer = call(&mut self.caller, "/v3/kv/put", &body).await;
            answer.map(|document| number(&document["header"]["revision"]))
        }
        .boxed()
    }

    fn delete_numbered<'a>(&'a mut self, parent: &'a str, _number: u64) -> BoxFuture<'a, CallResult<()>> {
        async move {
            let body = json!({"key": self.own_key(parent)});
            call(&mut self.caller, "/v3/kv/deleterange", &body)
                .await
                .map(drop)
        }
        .boxed()
    }
}
