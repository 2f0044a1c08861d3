//! Id of an HTTP request: the header `Request-Id` of its answer, and a field of the log lines about it, so that a caller's
//! report leads to them. It has nothing to do with `request_id`, which callers choose for repetitions.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Next id. The first one is random, so that two processes have different ids.
static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the operating system has random numbers");
    AtomicU64::new(u64::from_le_bytes(random))
});

tokio::task_local! {
    static CURRENT: HttpRequestId;
}

/// Id of an HTTP request.
#[derive(Debug, Clone, Copy)]
pub struct HttpRequestId(u64);

impl HttpRequestId {
    /// Returns the id of a new request.
    pub fn next() -> Self {
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the id of the request that this task serves, for the log; `-` outside of a request.
    pub fn current() -> String {
        CURRENT
            .try_with(Self::to_string)
            .unwrap_or_else(|_| "-".to_owned())
    }

    /// Runs a future that serves the request.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// Adds the id to the headers of the answer.
    pub fn mark(self, headers: &mut HeaderMap) {
        let value = HeaderValue::from_bytes(&self.digits()).expect("digits are a header");
        headers.insert(REQUEST_ID, value);
    }

    /// Returns the id as text. Every answer has it, and the formatting of the standard library costs four times as much.
    fn digits(self) -> [u8; 16] {
        let digit = |at| self.0 >> (60 - 4 * at) & 15;
        std::array::from_fn(|at| b"0123456789abcdef"[digit(at) as usize])
    }
}

impl fmt::Display for HttpRequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.digits()).expect("they are ASCII"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_shown_in_hexadecimal() {
        for id in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(HttpRequestId(id).to_string(), format!("{id:016x}"));
        }
    }
}
