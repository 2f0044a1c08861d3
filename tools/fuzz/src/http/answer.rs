//! What every answer has to be, and what of it later requests of an input may name.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use lock_api::http::problem::Code;
use serde_json::Value;

/// An answer, as far as it came.
pub struct Answered {
    pub method: Method,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// Whether that is all of the body; a stream is listened to for a moment only.
    pub whole: bool,
}

/// What the last answers said.
#[derive(Default)]
pub struct Facts {
    session: String,
    holder: String,
    token: String,
    /// What inputs may name from the beginning.
    given: Vec<(&'static str, String)>,
}

impl Facts {
    /// With something that inputs may name from the beginning.
    pub fn with(given: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self {
            given: given.into_iter().collect(),
            ..Self::default()
        }
    }

    /// A target with what it names.
    pub fn put_into_target(&self, target: &str) -> String {
        let given = self.given.iter().map(|(name, value)| (*name, value.as_str()));
        self.named()
            .into_iter()
            .chain(given)
            .fold(target.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// A body with what it names. A body that is no text names nothing.
    pub fn put_into_body(&self, body: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(body) {
            Ok(text) => self.put_into_target(text).into_bytes(),
            Err(_) => body.to_vec(),
        }
    }

    fn named(&self) -> [(&str, &str); 3] {
        [
            ("{session}", &self.session),
            ("{holder}", &self.holder),
            ("{token}", &self.token),
        ]
    }

    fn note(&mut self, document: &Value) {
        for (fact, field) in [
            (&mut self.session, "session"),
            (&mut self.holder, "holder"),
            (&mut self.token, "fencing_token"),
        ] {
            match &document[field] {
                Value::String(text) => *fact = text.clone(),
                Value::Number(number) => *fact = number.to_string(),
                _ => {}
            }
        }
    }
}

/// Checks an answer, and notes what it says. None: it was not waited for any longer.
pub fn check(answered: &Option<Answered>, facts: &mut Facts) {
    let Some(answered) = answered else { return };
    let Answered {
        method,
        status,
        headers,
        body,
        whole,
    } = answered;
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if *status == StatusCode::NO_CONTENT || method == Method::HEAD {
        assert!(body.is_empty(), "{status} with a body");
        return;
    }
    assert!(
        !status.is_informational() && !status.is_redirection(),
        "nothing answers {status}"
    );
    if !status.is_success() {
        assert_eq!(kind, Some("application/problem+json"), "{status}: {body:?}");
        let problem: Value = serde_json::from_slice(body).expect("a problem is a JSON document");
        let code = problem["code"].as_str().expect("a problem has a code");
        let known = Code::ALL.iter().find(|known| known.word() == code);
        let known = known.unwrap_or_else(|| panic!("{code} is in no table"));
        assert_eq!(known.status(), *status, "{problem}");
        assert_eq!(problem["status"], status.as_u16(), "{problem}");
        return;
    }
    if kind == Some("application/json") && *whole {
        facts.note(&serde_json::from_slice(body).expect("it says that it is JSON"));
    }
}
