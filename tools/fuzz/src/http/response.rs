//! The checks on every response, and the values in responses that later requests of an input may refer to.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use lock_api::http::problem::Code;
use serde_json::Value;

/// A response, as far as it arrived in time.
pub struct Response {
    pub method: Method,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// True if `body` is the whole body; a stream is read only for a moment.
    pub is_complete: bool,
}

/// Values from the latest responses.
#[derive(Default)]
pub struct Facts {
    session: String,
    holder: String,
    token: String,
    lease: String,
    /// Values that inputs may refer to from the start.
    given: Vec<(&'static str, String)>,
}

impl Facts {
    /// Creates facts with values that inputs may refer to from the start.
    pub fn with(given: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self {
            given: given.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Replaces the placeholders in a target by their values.
    pub fn put_into_target(&self, target: &str) -> String {
        let given = self.given.iter().map(|(name, value)| (*name, value.as_str()));
        self.named()
            .into_iter()
            .chain(given)
            .fold(target.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// Replaces the placeholders in a body by their values. A body that is not text has none.
    pub fn put_into_body(&self, body: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(body) {
            Ok(text) => self.put_into_target(text).into_bytes(),
            Err(_) => body.to_vec(),
        }
    }

    fn named(&self) -> [(&str, &str); 4] {
        [
            ("{session}", &self.session),
            ("{holder}", &self.holder),
            ("{token}", &self.token),
            ("{lease}", &self.lease),
        ]
    }

    fn record(&mut self, document: &Value) {
        for (fact, field) in [
            (&mut self.session, "session"),
            (&mut self.holder, "holder"),
            (&mut self.token, "fencing_token"),
            (&mut self.lease, "lease"),
        ] {
            match &document[field] {
                Value::String(text) => *fact = text.clone(),
                Value::Number(number) => *fact = number.to_string(),
                _ => {}
            }
        }
    }
}

/// Checks a response and records its values. `None` means that the client stopped waiting.
pub fn check(response: &Option<Response>, facts: &mut Facts) {
    let Some(response) = response else { return };
    let Response {
        method,
        status,
        headers,
        body,
        is_complete,
    } = response;
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if *status == StatusCode::NO_CONTENT || method == Method::HEAD {
        assert!(body.is_empty(), "a response {status} has a body");
        return;
    }
    assert!(
        !status.is_informational() && !status.is_redirection(),
        "no route responds with {status}"
    );
    if !status.is_success() {
        assert_eq!(kind, Some("application/problem+json"), "{status}: {body:?}");
        let problem: Value = serde_json::from_slice(body).expect("a problem is a JSON document");
        let code = problem["code"].as_str().expect("a problem has a code");
        let known = Code::ALL.iter().find(|known| known.word() == code);
        let known = known.unwrap_or_else(|| panic!("the code {code} is not documented"));
        assert_eq!(known.status(), *status, "{problem}");
        assert_eq!(problem["status"], status.as_u16(), "{problem}");
        return;
    }
    if kind == Some("application/json") && *is_complete {
        facts.record(&serde_json::from_slice(body).expect("its content type is JSON"));
    }
}
