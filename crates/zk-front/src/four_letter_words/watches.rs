//! Four-letter words about watches: their number, and the watches of each session or path.

use std::collections::{BTreeMap, BTreeSet};

use znode_store::{SessionId, ZPath};

use super::text::{Hex, line};
use crate::front::Front;

/// Session id that is shown for an HTTP request that waits for one notification. ZooKeeper shows 0 for a
/// connection without a session.
const NO_SESSION: SessionId = SessionId(0);

pub(super) fn wchs(front: &Front) -> String {
    let counts = front.node().watch_counts();
    let watching = front.node().watching();
    format!(
        "{watching} connections watching {} paths\nTotal watches:{}\n",
        counts.paths, counts.watches
    )
}

pub(super) fn wchc(front: &Front) -> String {
    let mut by_session = BTreeMap::<SessionId, BTreeSet<ZPath>>::new();
    watched(front, |session, path| {
        by_session.entry(session).or_default().insert(path);
    });
    let mut text = String::new();
    for (session, paths) in by_session {
        line(&mut text, format_args!("{}", Hex(session)));
        for path in paths {
            line(&mut text, format_args!("\t{path}"));
        }
    }
    text.push('\n');
    text
}

pub(super) fn wchp(front: &Front) -> String {
    let mut by_path = BTreeMap::<ZPath, BTreeSet<SessionId>>::new();
    watched(front, |session, path| {
        by_path.entry(path).or_default().insert(session);
    });
    let mut text = String::new();
    for (path, sessions) in by_path {
        line(&mut text, format_args!("{path}"));
        for session in sessions {
            line(&mut text, format_args!("\t{}", Hex(session)));
        }
    }
    text.push('\n');
    text
}

fn watched(front: &Front, mut each: impl FnMut(SessionId, ZPath)) {
    for armed in front.node().armed_watches() {
        let session = armed.session.unwrap_or(NO_SESSION);
        for (path, _) in armed.watches {
            each(session, path);
        }
    }
}
