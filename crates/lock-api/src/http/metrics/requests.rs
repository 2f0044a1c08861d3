//! HTTP requests, counted by operation and outcome, with their durations. An operation is a method and the address of a
//! route, not the address of a request. All requests without a route are one more operation. So the table of routes
//! bounds the number of series, whatever addresses callers request.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use lock_node::counters::{Classes, Counter, Histogram};
use lock_node::metrics::text_format::{Instruments, Sheet};
use tokio::time::Instant;

use crate::http::problem::Code;
use crate::http::url::{self, Verb, split_verb};

/// Address of all locks. Its last segment may be a verb.
const LOCKS: &str = "/v1/locks/{*name_and_verb}";

/// Label of a lock's address, as in the documentation.
const LOCK: &str = "/v1/locks/{name}";

/// Statuses of successful answers that are counted separately. All others are counted together.
const GOOD: [StatusCode; 4] = [
    StatusCode::OK,
    StatusCode::CREATED,
    StatusCode::ACCEPTED,
    StatusCode::NO_CONTENT,
];

/// Status for a caller that hung up before the answer. It is never sent; proxies write it in their logs.
const GONE: &str = "499";

/// Counters of all operations.
pub struct Requests {
    operations: Vec<Operation>,
    /// Operations at each routed address.
    by_address: HashMap<&'static str, Vec<CountedMethod>>,
    under_way: AtomicU64,
}

struct Operation {
    method: &'static str,
    route: String,
    times: Histogram,
    good: [Counter; GOOD.len()],
    other: Counter,
    problems: Vec<Counter>,
    gone: Counter,
}

/// Operations of an address, by method.
struct CountedMethod {
    method: Method,
    /// The operation is that of this verb at the end of the address.
    verb: Option<Verb>,
    operation: usize,
}

/// Index of the operation for addresses without a route.
const NOTHING: usize = 0;

impl Requests {
    /// Creates the counters of these addresses, each with a method.
    pub fn new(served: &[(&'static str, Method)]) -> Self {
        let mut requests = Self {
            operations: vec![Operation::new("", String::new())],
            by_address: HashMap::new(),
            under_way: AtomicU64::new(0),
        };
        for (address, method) in served {
            if *address != LOCKS {
                requests.add(address, method, None, (*address).to_owned());
                continue;
            }
            // Verbs first; the operation without a verb is that of the lock's own address.
            for verb in Verb::ALL {
                if verb.method().split(',').any(|of_verb| of_verb == method.as_str()) {
                    requests.add(address, method, Some(verb), format!("{LOCK}/{}", verb.word()));
                }
            }
            requests.add(address, method, None, LOCK.to_owned());
        }
        requests
    }

    fn add(&mut self, address: &'static str, method: &Method, verb: Option<Verb>, route: String) {
        // The root of a tree has several addresses, and is one operation together with all paths below it.
        let route = shown(&route);
        let word = word(method);
        let known = self
            .operations
            .iter()
            .position(|one| one.method == word && one.route == route);
        let operation = known.unwrap_or(self.operations.len());
        if known.is_none() {
            self.operations.push(Operation::new(word, route));
        }
        self.by_address.entry(address).or_default().push(CountedMethod {
            method: method.clone(),
            verb,
            operation,
        });
    }

    /// Counts a request for this operation.
    pub fn begin(&self, operation: usize) -> RequestGuard<'_> {
        self.under_way.fetch_add(1, Relaxed);
        RequestGuard {
            requests: self,
            operation,
            since: Instant::now(),
            is_answered: false,
        }
    }

    /// Returns the labels of a request: its method, and its address as it is routed.
    pub fn words(&self, request: &Request) -> (&'static str, &str) {
        let operation = &self.operations[self.operation(request)];
        (operation.method, &operation.route)
    }

    /// Returns the operation of a method at a routed address, with the verb at its end if there is one.
    pub fn operation_at(&self, address: &str, method: &Method, verb: Option<Verb>) -> usize {
        let mut at = self.by_address.get(address).into_iter().flatten();
        at.find(|at| at.method == *method && at.verb == verb)
            .map_or(NOTHING, |at| at.operation)
    }

    /// Returns the operation of a request, by the route that the router has matched.
    pub fn operation(&self, request: &Request) -> usize {
        let Some(matched) = request.extensions().get::<MatchedPath>() else {
            return NOTHING;
        };
        let method = match *request.method() {
            Method::HEAD => &Method::GET,
            ref method => method,
        };
        let of_locks = request.uri().path().strip_prefix(url::LOCKS);
        let verb = of_locks.and_then(|raw| split_verb(raw).1);
        self.operation_at(matched.as_str(), method, verb)
    }
}

/// Returns a method as a label.
fn word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}

/// Returns an address as the documentation writes it.
fn shown(address: &str) -> String {
    let address = address.replace("{*", "{");
    match address.strip_suffix('/') {
        Some(shorter) if !shorter.is_empty() => shorter.to_owned(),
        _ => address,
    }
}

impl Operation {
    fn new(method: &'static str, route: String) -> Self {
        Self {
            method,
            route,
            times: Histogram::new(&Classes::LATENCY),
            good: Default::default(),
            other: Counter::default(),
            problems: Code::ALL.iter().map(|_| Counter::default()).collect(),
            gone: Counter::default(),
        }
    }

    fn answered(&self, response: &Response) {
        match response.extensions().get::<Code>() {
            Some(code) => self.problems[*code as usize].up(),
            None => {
                let good = GOOD.iter().position(|status| *status == response.status());
                good.map_or(&self.other, |good| &self.good[good]).up();
            }
        }
    }

    /// Returns the number of answers by status and code.
    fn answers(&self) -> impl Iterator<Item = (String, &'static str, u64)> {
        let good = GOOD.iter().zip(&self.good);
        let good = good.map(|(status, counter)| (status.as_str().to_owned(), "", counter.get()));
        let other = ("other".to_owned(), "", self.other.get());
        let problems = Code::ALL.iter().zip(&self.problems);
        let problems =
            problems.map(|(code, counter)| (code.status().as_str().to_owned(), code.word(), counter.get()));
        let gone = (GONE.to_owned(), "caller_gone", self.gone.get());
        good.chain(problems)
            .chain([other, gone])
            .filter(|(_, _, count)| *count > 0)
    }
}

/// A request that is not answered yet.
pub struct RequestGuard<'r> {
    requests: &'r Requests,
    operation: usize,
    since: Instant,
    is_answered: bool,
}

impl RequestGuard<'_> {
    /// Counts the outcome.
    pub fn answer(&mut self, response: &Response) {
        self.is_answered = true;
        self.requests.operations[self.operation].answered(response);
    }
}

impl Drop for RequestGuard<'_> {
    /// Records the end of the request. Without an answer the caller has hung up, and the handler was dropped.
    fn drop(&mut self) {
        let operation = &self.requests.operations[self.operation];
        operation.times.took(self.since.elapsed());
        if !self.is_answered {
            operation.gone.up();
        }
        self.requests.under_way.fetch_sub(1, Relaxed);
    }
}

impl Instruments for Requests {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let help = "HTTP requests in progress, including those that wait for a lock";
        sheet.gauge("http_requests_in_flight", help, self.under_way.load(Relaxed))?;
        let answers: Vec<(&Operation, String, &str, u64)> = self
            .operations
            .iter()
            .flat_map(|one| {
                one.answers()
                    .map(move |(code, problem, count)| (one, code, problem, count))
            })
            .collect();
        let help = "HTTP requests by method, route, status and problem code";
        let answers = answers.iter().map(|(one, code, problem, count)| {
            let labels = [
                ("method", one.method),
                ("route", one.route.as_str()),
                ("code", code.as_str()),
                ("problem", problem),
            ];
            (labels, *count)
        });
        sheet.counters("http_requests", help, answers)?;
        let help = "Duration of HTTP requests until the begin of the answer, including the wait for a lock";
        let asked = self.operations.iter().filter(|one| !one.times.is_empty());
        let times = asked.map(|one| {
            let labels = [("method", one.method), ("route", one.route.as_str())];
            (labels, one.times.measured())
        });
        sheet.histograms("http_request_duration_seconds", help, times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_labelled_as_documented() {
        let requests = Requests::new(&crate::http::served());
        let routes: Vec<String> = requests
            .operations
            .iter()
            .map(|one| format!("{} {}", one.method, one.route))
            .collect();
        for route in [
            "POST /v1/locks/{name}/acquire",
            "GET /v1/locks/{name}/history",
            "GET /v1/locks/{name}",
            "PATCH /v1/locks/{name}",
            "POST /v1/locks/{name}/release-request/reply",
            "GET /v1/znodes/{path}",
            "GET /metrics",
        ] {
            let times = routes.iter().filter(|one| *one == route).count();
            assert_eq!(times, 1, "{route}: {routes:#?}");
        }
        assert!(!routes.iter().any(|one| one.contains('*')), "{routes:#?}");
    }
}
