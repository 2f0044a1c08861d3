//! Changes between two readings of a configuration, and the part of them that a running node applies.

use std::collections::BTreeMap;
use std::fmt;

use super::settings::{self, DefaultValue, Kind, Reload};

/// Settings by name, in the form of the file.
pub type Set = BTreeMap<&'static str, String>;

/// Changed setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Name.
    pub setting: &'static str,
    /// Old value; `None` if it was not set.
    pub from: Option<String>,
    /// New value; `None` if it is not set.
    pub to: Option<String>,
}

/// Changed settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Changes that a running node applies.
    pub live: Vec<Change>,
    /// Changes that need a restart.
    pub restart: Vec<Change>,
}

impl Changes {
    /// Returns the differences of `new`. A default that is set equals a setting that is not set.
    pub fn between(running: &Set, new: &Set) -> Self {
        let mut changes = Self::default();
        let mut names: Vec<&'static str> = running.keys().chain(new.keys()).copied().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let default = settings::find(name).map(|setting| setting.default);
            let effective = |set: &Set| match (set.get(name), default) {
                (Some(said), _) => Some(said.clone()),
                (None, Some(DefaultValue::Literal(default))) => Some(default.to_owned()),
                (None, _) => None,
            };
            let (from, to) = (effective(running), effective(new));
            if from == to {
                continue;
            }
            let change = Change {
                setting: name,
                from,
                to,
            };
            match settings::find(name).map(|setting| setting.reload) {
                Some(Reload::Live) => changes.live.push(change),
                Some(Reload::Restart) | None => changes.restart.push(change),
            }
        }
        changes
    }

    /// Returns the configuration of a running node after it has applied `new`.
    pub fn applied_to(&self, running: &Set) -> Set {
        let mut now = running.clone();
        for change in &self.live {
            match &change.to {
                Some(value) => now.insert(change.setting, value.clone()),
                None => now.remove(change.setting),
            };
        }
        now
    }
}

/// Writes `http.max_connections: 10000 -> 200`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_secret = settings::find(self.setting).is_some_and(|setting| setting.kind == Kind::Secret);
        if is_secret {
            return write!(f, "{}: changed", self.setting);
        }
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "default".to_owned());
        write!(
            f,
            "{}: {} -> {}",
            self.setting,
            shown(&self.from),
            shown(&self.to)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(said: &[(&'static str, &str)]) -> Set {
        said.iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect()
    }

    #[test]
    fn change_is_reported_with_the_time_at_which_it_applies() {
        let running = set(&[
            ("http.max_connections", "10"),
            ("raft.heartbeat_ms", "60"),
            ("log.level", "\"debug\""),
            ("zookeeper.super_digest", "\"u:one\""),
        ]);
        let new = set(&[
            ("http.max_connections", "20"),
            ("workers", "2"),
            ("zookeeper.super_digest", "\"u:other\""),
        ]);
        let changes = Changes::between(&running, &new);
        let text = |changes: &[Change]| changes.iter().map(Change::to_string).collect::<Vec<_>>();
        assert_eq!(
            text(&changes.live),
            [
                "http.max_connections: 10 -> 20",
                "log.level: \"debug\" -> \"info\"",
                "zookeeper.super_digest: changed",
            ]
        );
        // The heartbeat is the default, set or not.
        assert_eq!(text(&changes.restart), ["workers: default -> 2"]);

        let now = changes.applied_to(&running);
        let again = Changes::between(&now, &new);
        assert_eq!(again.live, []);
        assert_eq!(again.restart, changes.restart);
    }
}
