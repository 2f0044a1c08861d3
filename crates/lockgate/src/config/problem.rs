//! What is wrong with a configuration, and where it was said.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where something was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In the file, in this line.
    Line(usize),
    /// In this environment variable.
    Variable(String),
    /// Nowhere: it is missing, or follows from a default.
    Nowhere,
}

/// One thing that is wrong, or deserves a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The setting, or the section; empty if it is the whole file.
    pub setting: String,
    /// Where it was said.
    pub source: Source,
    /// Which file was read.
    pub file: Option<PathBuf>,
    /// What is wrong, and what is allowed.
    pub fact: String,
}

impl ConfigProblem {
    /// Of a setting that nobody set.
    pub fn new(setting: impl Into<String>, fact: impl Into<String>) -> Self {
        Self {
            setting: setting.into(),
            source: Source::Nowhere,
            file: None,
            fact: fact.into(),
        }
    }

    /// The same, said here.
    pub fn at(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// The same, of this file.
    pub fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }
}

/// `node-1.toml:12: raft.heartbeat_ms: must be …`, as compilers say it, so that editors find the place.
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

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigProblem>);

/// One error is a line; of more, each has a line of its own below the first.
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
