//! A client of etcd, by its JSON gateway. Keys and values are base64, numbers are texts, and whatever is not 200 leaves open
//! whether something was done, unless nothing was sent.

mod mutex;
mod store;

pub use mutex::EtcdMutex;
pub use store::EtcdStore;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::Method;
use serde_json::Value;

use super::answer::Answer;
use super::caller::{Caller, PATIENCE, Reply};

/// Text as the gateway wants it.
fn encoded(text: &str) -> String {
    BASE64.encode(text)
}

/// Text as the gateway gives it.
fn decoded(value: &Value) -> Option<String> {
    let bytes = BASE64.decode(value.as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// A number as the gateway gives it; it leaves zeros out.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Calls, with the usual patience.
async fn call(caller: &mut Caller, path: &str, body: &Value) -> Answer<Value> {
    call_patiently(caller, path, body, PATIENCE).await
}

/// Calls, and waits for so long.
async fn call_patiently(caller: &mut Caller, path: &str, body: &Value, patience: Duration) -> Answer<Value> {
    match caller.call(Method::POST, path, Some(body), patience).await {
        Reply::Done(document) => Answer::Ok(document),
        // `lease not found` and the like: etcd has looked, and has not done it.
        Reply::Refused(_, document) => Answer::Failed(reason(&document)),
        Reply::NotDone(why) => Answer::Failed(why),
        Reply::Unknown(why) => Answer::Unknown(why),
    }
}

fn reason(document: &Value) -> String {
    document["error"].as_str().unwrap_or("refused").to_owned()
}
