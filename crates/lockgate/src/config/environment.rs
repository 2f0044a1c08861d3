//! What the machine tells a node beside its file: the variables that override settings, and the machine's name.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use super::settings::{self, ENVIRONMENT_PREFIX, variable};

/// Where Linux tells the name of the machine, or of the container.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// So much alike two names have to be for one to be taken for a slip in the other. What Kubernetes gives every container for
/// each service (`LOCKGATE_SERVICE_HOST`) is not, and neither are the variables of the command line.
const ALIKE: f64 = 0.85;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
    host_name: Option<String>,
}

impl Environment {
    /// What this process is told.
    pub fn of_this_process() -> Self {
        let ours = |(name, value): (OsString, OsString)| {
            let name = name.into_string().ok()?;
            name.starts_with(ENVIRONMENT_PREFIX).then_some((name, value))
        };
        Self {
            variables: std::env::vars_os().filter_map(ours).collect(),
            // Who asks for it and finds none is told so.
            host_name: fs::read_to_string(HOST_NAME_FILE)
                .ok()
                .map(|name| name.trim().to_owned()),
        }
    }

    /// These variables, on a machine of this name.
    pub fn new<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>, host_name: Option<&str>) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.into());
        Self {
            variables: variables.into_iter().map(owned).collect(),
            host_name: host_name.map(str::to_owned),
        }
    }

    /// Says nothing.
    pub fn silent() -> Self {
        Self::default()
    }

    /// A variable's value; an error if it is no text.
    pub(super) fn get(&self, variable: &str) -> Option<Result<String, String>> {
        let value = self.variables.get(variable)?;
        Some(match value.to_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err("is not UTF-8".to_owned()),
        })
    }

    pub(super) fn host_name(&self) -> Option<&str> {
        self.host_name.as_deref()
    }

    /// The variables that are no settings and look as if they were meant to be, each with the one that may be meant.
    pub(super) fn slips(&self) -> Vec<(String, String)> {
        let known: Vec<String> = settings::all()
            .map(|setting| setting.name)
            .chain(["members"])
            .map(variable)
            .collect();
        let names = self.variables.keys().filter(|name| !known.contains(name));
        names
            .filter_map(|name| Some((name.clone(), nearest(name, known.iter().map(String::as_str))?)))
            .collect()
    }
}

/// What may have been meant by `name`, if anything is much like it.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let likeness = |other: &'a str| (strsim::normalized_damerau_levenshtein(name, other), other);
    let best = known.map(likeness).max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(likeness, _)| *likeness >= ALIKE)
        .map(|(_, other)| other.to_owned())
}
