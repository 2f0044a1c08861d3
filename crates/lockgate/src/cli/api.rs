//! Requests of the command line for which the client library has no function.

use std::time::Duration;

use anyhow::anyhow;
use cli_support::api_client::{ApiClient, CallError};
use cli_support::exit_code::{LOST, NOT_ALLOWED, NOT_FREE, UNAVAILABLE, UNKNOWN, USAGE};
use cli_support::output::shown;
use serde_json::Value;

use super::exit::Failure;
use super::servers::Servers;

/// Client for single requests of the HTTP API.
pub struct Api {
    client: ApiClient,
    patience: Duration,
}

impl Api {
    /// Creates a client of these servers.
    pub fn of(servers: &Servers) -> anyhow::Result<Self> {
        let connection = servers.connection()?;
        let patience = servers.patience();
        let client = ApiClient::new(&connection.servers, 0, patience).with(connection.credentials);
        Ok(Self { client, patience })
    }

    /// Sends a request to the first server that serves it, and returns the answer; null if it has no body.
    pub async fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Value, Failure> {
        let response = self.client.call(method, path, body, self.patience).await;
        Ok(response?.json())
    }

    /// Sends a `GET`.
    pub async fn get(&mut self, path: &str) -> Result<Value, Failure> {
        self.call("GET", path, &Value::Null).await
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NoAnswer(_) => Self::new(UNAVAILABLE, anyhow!("{}", shown(&error.to_string()))),
            CallError::Rejected { status, code, detail } => {
                let exit = match (status, code.as_str()) {
                    (401 | 403, _) => NOT_ALLOWED,
                    (_, "outcome_unknown") => UNKNOWN,
                    (_, "lock_busy" | "lock_timeout" | "draining") => NOT_FREE,
                    (_, "lease_expired" | "holder_gone") => LOST,
                    (_, "bad_path" | "bad_lock_name") => USAGE,
                    _ => 1,
                };
                Self::new(exit, anyhow!("{}", shown(&detail)))
            }
        }
    }
}
