//! Writer of the watched znodes.

use std::sync::Arc;

use hyper::Method;
use serde_json::json;

use super::{WRITERS, Watches, path};
use crate::client::{CallResult, TIMEOUT};
use crate::pace::Pace;
use crate::systems::caller;
use crate::world::World;

/// Writes of all writers per second. Each notifies some observers, which then read and watch again.
const PER_SECOND: f64 = 60.0;

/// Runs the writer until the end of the run.
pub async fn run(run: Arc<Watches>, world: World, number: usize) {
    let mut caller = caller(&world, number);
    let mut pace = Pace::new(&world, number, WRITERS, PER_SECOND);
    let mut rng = super::super::rng(&world, number);
    let mut values = super::super::unique_numbers(number);
    while pace.next().await {
        // One of the two znodes of this writer.
        let path = path(number + WRITERS * rng.usize(0..2));
        let body = json!({"data": values().to_string()});
        let address = format!("/v1/znodes{path}");
        let node = caller.at();
        let reply = caller.call(Method::PUT, &address, Some(&body), TIMEOUT).await;
        let returned = world.now();
        let written = match reply.done() {
            CallResult::Ok(document) => match document["stat"]["mzxid"].as_u64() {
                Some(zxid) => CallResult::Ok(zxid),
                None => CallResult::Unknown("a write without a position".to_owned()),
            },
            CallResult::Failed(why) => CallResult::Failed(why),
            CallResult::Unknown(why) => CallResult::Unknown(why),
        };
        run.tally.count(returned, &written);
        match written {
            // The node that answers has applied the write itself.
            CallResult::Ok(zxid) => {
                run.evidence.shown(returned, node, &path, zxid);
                run.evidence.acknowledged(returned, &path, zxid);
            }
            CallResult::Failed(_) => {
                pace.back_off().await;
            }
            CallResult::Unknown(_) => {
                run.evidence.uncertain(&path);
                pace.back_off().await;
            }
        }
    }
}
