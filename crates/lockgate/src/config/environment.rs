//! Environment of a node: the variables that override settings, and the name of the machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use super::settings::{self, ENVIRONMENT_PREFIX, variable};

/// File with the name of the machine or the container.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// Minimum similarity of a variable to a setting to be reported as a typing error. Variables that Kubernetes sets for each service
/// (`LOCKGATE_SERVICE_HOST`) are less similar, and so are those of the command line.
const MIN_SIMILARITY: f64 = 0.85;

/// Variables and name of the machine.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
    host_name: Option<String>,
}

impl Environment {
    /// Environment of this process.
    pub fn of_this_process() -> Self {
        let ours = |(name, value): (OsString, OsString)| {
            let name = name.into_string().ok()?;
            name.starts_with(ENVIRONMENT_PREFIX).then_some((name, value))
        };
        Self {
            variables: std::env::vars_os().filter_map(ours).collect(),
            // A setting that needs the name reports that it is missing.
            host_name: fs::read_to_string(HOST_NAME_FILE)
                .ok()
                .map(|name| name.trim().to_owned()),
        }
    }

    /// Environment with these variables, on a machine of this name.
    pub fn new<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>, host_name: Option<&str>) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.into());
        Self {
            variables: variables.into_iter().map(owned).collect(),
            host_name: host_name.map(str::to_owned),
        }
    }

    /// Empty environment.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Returns the value of a variable; an error if it is no text.
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

    /// Returns variables that are probably typing errors of a setting, each with that setting.
    pub(super) fn probable_typos(&self) -> Vec<(String, String)> {
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

/// Returns the most similar name, if any is similar enough.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let similarity = |other: &'a str| (strsim::normalized_damerau_levenshtein(name, other), other);
    let best = known
        .map(similarity)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .map(|(_, other)| other.to_owned())
}
