//! DevTools protocol over a pipe: requests and responses, each a JSON document that ends with a zero byte.
//! Independent of the page.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::oneshot;

use crate::browser::TIMEOUT;

/// Connection to a browser.
pub struct DevTools {
    to: tokio::sync::Mutex<ChildStdin>,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    /// Exceptions, console errors and policy violations of the page.
    pub page_errors: Mutex<Vec<String>>,
}

impl DevTools {
    /// Opens the connection to the browser at the other ends of these pipes.
    pub fn open(to: ChildStdin, from: ChildStdout) -> Arc<Self> {
        let dev_tools = Arc::new(Self {
            to: tokio::sync::Mutex::new(to),
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            page_errors: Mutex::default(),
        });
        tokio::spawn(read(dev_tools.clone(), from));
        dev_tools
    }

    /// Sends a request to a page or to the browser, and waits for the response.
    pub async fn ask(&self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        self.waiting.lock().insert(id, tell);
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let mut to = self.to.lock().await;
        to.write_all(&bytes).await.expect("the browser reads the pipe");
        to.flush().await.expect("the browser reads the pipe");
        drop(to);
        let answer = tokio::time::timeout(TIMEOUT, told).await;
        answer
            .unwrap_or_else(|_| panic!("the browser does not answer {method}"))
            .expect("the browser still runs")
    }
}

async fn read(dev_tools: Arc<DevTools>, from: ChildStdout) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    while matches!(from.read_until(0, &mut bytes).await, Ok(1..)) {
        bytes.pop();
        let mut message: Value = serde_json::from_slice(&bytes).expect("the browser writes JSON");
        bytes.clear();
        match message["id"].as_u64() {
            Some(id) => {
                let answer = match message.get_mut("result") {
                    Some(result) => result.take(),
                    None => message["error"].take(),
                };
                if let Some(waiting) = dev_tools.waiting.lock().remove(&id) {
                    // The caller may have given up.
                    let _ = waiting.send(answer);
                }
            }
            None => record_error(&dev_tools, &message),
        }
    }
}

fn record_error(dev_tools: &DevTools, message: &Value) {
    let told = &message["params"];
    let page_error = match message["method"].as_str() {
        Some("Runtime.exceptionThrown") => Some(told["exceptionDetails"].to_string()),
        Some("Runtime.consoleAPICalled") if told["type"] == "error" => Some(told["args"].to_string()),
        // Failed and rejected requests to a node are a matter of the tests.
        Some("Log.entryAdded")
            if told["entry"]["level"] == "error" && told["entry"]["source"] != "network" =>
        {
            Some(told["entry"].to_string())
        }
        _ => None,
    };
    dev_tools.page_errors.lock().extend(page_error);
}
