//! Fail points: places at which a test has a node panic, wait or fail. They exist only with the feature `failpoints`,
//! which no ordinary build has; without it [`fail_step!`](crate::fail_step!) is nothing, not even its name.
//!
//! The crate `fail` keeps what is ordered and counts it down; what an order means is decided here, because a delay in a
//! task must let the other tasks go on, and because a test has to know that a point was reached.
//!
//! What is *not* here: who orders what, and what has to come of it. That is the tests'.

#[cfg(any(test, feature = "failpoints"))]
pub mod table;

#[cfg(feature = "failpoints")]
mod orders;

#[cfg(feature = "failpoints")]
pub use self::orders::*;

/// A place at which a node can be made to panic or to wait; with a second argument, also to fail: the closure turns the
/// [`std::io::Error`] into that of the function, which returns it. In front of the name, `async` says that the delay is
/// the task's alone.
///
/// Every name stands once in the sources and once in the table.
#[cfg(feature = "failpoints")]
#[doc(hidden)]
#[macro_export]
macro_rules! fail_step {
    (async $name:literal) => {
        $crate::fail_points::wait_at($name).await
    };
    (async $name:literal, $refuse:expr) => {
        if let Err(error) = $crate::fail_points::fail_or_wait_at($name).await {
            #[allow(clippy::redundant_closure_call)]
            return Err(($refuse)(error));
        }
    };
    ($name:literal) => {
        $crate::fail_points::stall_at($name)
    };
    ($name:literal, $refuse:expr) => {
        if let Err(error) = $crate::fail_points::fail_or_stall_at($name) {
            #[allow(clippy::redundant_closure_call)]
            return Err(($refuse)(error));
        }
    };
}

/// Nothing: this build has no fail points.
#[cfg(not(feature = "failpoints"))]
#[doc(hidden)]
#[macro_export]
macro_rules! fail_step {
    ($($anything:tt)*) => {};
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use super::table::POINTS;

    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }

    /// The names in the sources of a crate, each with whether its step can fail.
    fn used(source: &str) -> Vec<(String, bool)> {
        // In pieces, so that it is not found here.
        let calls = source.split(concat!("fail_step", "!(")).skip(1);
        let named = calls.filter_map(|call| {
            let call = call.trim_start();
            let call = call.strip_prefix("async").unwrap_or(call).trim_start();
            let (name, rest) = call.strip_prefix('"')?.split_once('"')?;
            Some((name.to_owned(), rest.trim_start().starts_with(',')))
        });
        named.collect()
    }

    #[test]
    fn the_table_has_every_point_of_the_sources_once_and_no_other() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut files = Vec::new();
        for name in [
            "raft-log",
            "raft-node",
            "lock-node",
            "lock-api",
            "zk-front",
            "lockgate",
        ] {
            sources(&crates.join(name).join("src"), &mut files);
        }
        let mut in_sources = BTreeMap::new();
        for file in files {
            let source = std::fs::read_to_string(&file).unwrap();
            for (name, fails) in used(&source) {
                let twice = in_sources.insert(name.clone(), fails);
                assert_eq!(twice, None, "{name} stands twice, the second time in {file:?}");
            }
        }
        let in_table: BTreeMap<String, bool> = POINTS
            .iter()
            .map(|point| (point.name.to_owned(), point.fails))
            .collect();
        assert_eq!(in_table.len(), POINTS.len(), "the table names a point twice");
        assert_eq!(in_table, in_sources);
        assert!(POINTS.len() >= 40);
        for point in POINTS {
            let words = point.name.split_once("::");
            assert!(
                words.is_some_and(|(area, step)| !area.is_empty() && !step.is_empty()),
                "{} is not of the form area::step",
                point.name
            );
        }
    }
}
