//! Client of etcd's JSON gateway. Keys and values are base64 and numbers are strings. Any status but 200
//! leaves the outcome unknown, unless nothing was sent.

mod mutex;
mod store;

pub use mutex::EtcdMutex;
pub use store::EtcdStore;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::Method;
use serde_json::Value;

use super::caller::{Caller, Reply, TIMEOUT};
use super::result::CallResult;

/// Encodes text for the gateway.
fn encoded(text: &str) -> String {
    BASE64.encode(text)
}

/// Decodes text of the gateway.
fn decoded(value: &Value) -> Option<String> {
    let bytes = BASE64.decode(value.as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// Reads a number of the gateway, which omits zeros.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Sends a call with the usual timeout.
async fn call(caller: &mut Caller, path: &str, body: &Value) -> CallResult<Value> {
    call_within(caller, path, body, TIMEOUT).await
}

/// Sends a call with the given timeout.
async fn call_within(caller: &mut Caller, path: &str, body: &Value, timeout: Duration) -> CallResult<Value> {
    match caller.call(Method::POST, path, Some(body), timeout).await {
        Reply::Done(document) => CallResult::Ok(document),
        // `lease not found` and the like: etcd has processed the call and has rejected it.
        Reply::Refused(_, document) => CallResult::Failed(reason(&document)),
        Reply::NotDone(why) => CallResult::Failed(why),
        Reply::Unknown(why) => CallResult::Unknown(why),
    }
}

fn reason(document: &Value) -> String {
    document["error"].as_str().unwrap_or("refused").to_owned()
}
