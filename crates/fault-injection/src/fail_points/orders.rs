//! Actions that are ordered at fail points: their execution and their counts.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::table;

/// Variable of the environment that orders actions from the start on: `NAME=ACTION;NAME=ACTION`, in the
/// syntax of the crate `fail`.
pub const ENVIRONMENT: &str = "FAILPOINTS";

const ERROR: &str = "error";
const DELAY: &str = "delay ";

/// Action at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The step panics.
    Panic,
    /// The step waits for this time.
    Delay(Duration),
    /// The step fails, if it can.
    Error,
}

impl Action {
    /// Returns the action in the syntax of the crate `fail`, which [`ENVIRONMENT`] and [`order`] use.
    pub fn spelled(self) -> String {
        match self {
            Self::Panic => "panic".to_owned(),
            Self::Delay(time) => format!("return({DELAY}{})", time.as_millis()),
            Self::Error => format!("return({ERROR})"),
        }
    }
}

/// Counts of a point: how often it was reached, and how often it acted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of times that the point was reached.
    pub passed: u64,
    /// Number of delays and failures. A panic is not counted: the process ends with it.
    pub acted: u64,
}

static COUNTS: Mutex<BTreeMap<&'static str, Count>> = Mutex::new(BTreeMap::new());

/// Orders `action` for the next `times` times at a point. Returns an error if the point is unknown or cannot
/// fail.
pub fn order(name: &str, action: Action, times: usize) -> Result<(), String> {
    let point = table::find(name).ok_or_else(|| format!("there is no point {name}"))?;
    if action == Action::Error && !point.fails {
        return Err(format!("the step at {name} cannot fail"));
    }
    fail::cfg(name, &format!("{times}*{}", action.spelled()))
}

static RARE_STEPS_ARE_FREQUENT: AtomicBool = AtomicBool::new(false);

/// Makes rare steps frequent in this process, from its start on: the log may have segments of some KiB, and is not kept for followers
/// that were away, so that they take snapshots.
pub fn make_rare_steps_frequent() {
    RARE_STEPS_ARE_FREQUENT.store(true, Ordering::Relaxed);
}

/// Returns whether [`make_rare_steps_frequent`] was called.
pub fn rare_steps_are_frequent() -> bool {
    RARE_STEPS_ARE_FREQUENT.load(Ordering::Relaxed)
}

/// Cancels the order of a point.
pub fn call_off(name: &str) {
    fail::remove(name);
}

/// Orders the actions of the environment. Returns an error if one is invalid.
pub fn order_from_environment() -> Result<(), String> {
    let Ok(orders) = std::env::var(ENVIRONMENT) else {
        return Ok(());
    };
    for one in orders.split(';').filter(|one| !one.is_empty()) {
        let (name, action) = one
            .split_once('=')
            .ok_or_else(|| format!("{ENVIRONMENT}: {one} is not of the form NAME=ACTION"))?;
        table::find(name).ok_or_else(|| format!("{ENVIRONMENT}: there is no point {name}"))?;
        fail::cfg(name, action).map_err(|error| format!("{ENVIRONMENT}: {name}: {error}"))?;
    }
    Ok(())
}

/// Returns the counts of each point since the process began.
pub fn counts() -> BTreeMap<&'static str, Count> {
    COUNTS.lock().clone()
}

/// Returns the action that is ordered at a point now. Panics if the action is a panic.
fn ordered(name: &'static str) -> Option<String> {
    COUNTS.lock().entry(name).or_default().passed += 1;
    let order = evaluate(name);
    if order.is_some() {
        COUNTS.lock().entry(name).or_default().acted += 1;
        tracing::warn!(name, order, "a fail point acts");
    }
    order
}

fn evaluate(name: &'static str) -> Option<String> {
    fail::fail_point!(name, |order| order);
    None
}

fn delay_in(order: &str) -> Option<Duration> {
    let ms = order.strip_prefix(DELAY)?.parse().ok()?;
    Some(Duration::from_millis(ms))
}

fn failure(name: &str) -> io::Error {
    io::Error::other(format!("the fail point {name} says so"))
}

/// A step of a thread that cannot fail.
pub fn stall_at(name: &'static str) {
    if let Some(delay) = ordered(name).as_deref().and_then(delay_in) {
        std::thread::sleep(delay);
    }
}

/// A step of a thread that can fail.
pub fn fail_or_stall_at(name: &'static str) -> io::Result<()> {
    match ordered(name).as_deref() {
        Some(ERROR) => return Err(failure(name)),
        Some(order) => std::thread::sleep(delay_in(order).unwrap_or_default()),
        None => {}
    }
    Ok(())
}

/// A step of a task that cannot fail.
pub async fn wait_at(name: &'static str) {
    if let Some(delay) = ordered(name).as_deref().and_then(delay_in) {
        tokio::time::sleep(delay).await;
    }
}

/// A step of a task that can fail.
pub async fn fail_or_wait_at(name: &'static str) -> io::Result<()> {
    match ordered(name).as_deref() {
        Some(ERROR) => return Err(failure(name)),
        Some(order) => tokio::time::sleep(delay_in(order).unwrap_or_default()).await,
        None => {}
    }
    Ok(())
}
