//! Problems of a configuration, with their places.

use std::fmt;
use std::path::{Path, PathBuf};

/// Place of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Line of the file.
    Line(usize),
    /// Environment variable.
    Variable(String),
    /// Neither: it is missing, or a default.
    Nowhere,
}

/// Error or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Setting or section; empty for the whole file.
    pub setting: String,
    /// Place.
    pub source: Source,
    /// File.
    pub file: Option<PathBuf>,
    /// Description, with the allowed values.
    pub fact: String,
}

impl ConfigProblem {
    /// Problem of a setting that is not set.
    pub fn new(setting: impl Into<String>, fact: impl Into<String>) -> Self {
        Self {
            setting: setting.into(),
            source: Source::Nowhere,
            file: None,
            fact: fact.into(),
        }
    }

    /// Returns the problem with this place.
    pub fn at(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// Returns the problem with this file.
    pub fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }
}

/// Writes `node-1.toml:12: raft.heartbeat_ms: must be …`, in the format of compilers, so that editors find the place.
impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, &self.source) {
            (_, Source::Variable(name)) => write!(f, "{name}: ")?,
            (Some(file), Source::Line(line)) => write!(f, "{}:{line}: ", file.display())?,
            (None, Source::Line(line)) => write!(f, "line {line}: ")?,
            (Some(file), Source::Nowhere) => write!(f, "{}: ", file.display())?,
            (None, Source::Nowhere) => {}
        }
        match self.setting.as_str() {
            "" => f.write_str(&self.fact),
            setting => write!(f, "{setting}: {}", self.fact),
        }
    }
}

/// Errors of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigProblem>);

/// Writes one error in a line; several in lines of their own below the first.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = &self.0[..] {
            return write!(f, "{only}");
        }
        write!(f, "the configuration has {} errors:", self.0.len())?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for ConfigErrors {}
