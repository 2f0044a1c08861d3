//! Configuration file of the command line: clusters under names, called contexts.
//!
//! ```toml
//! current_context = "production"
//!
//! [contexts.production]
//! servers = ["lock-1.example:7400", "lock-2.example:7400"]
//! ca = "ca.pem"
//! token_file = "production.token"
//! ```
//!
//! A relative path is relative to the directory of the file.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::usage::UsageError;

/// Path of the file below the directory of configurations.
const FILE: &str = "lockgate/config.toml";

/// Permission bits of other users than the owner.
const OTHERS: u32 = 0o077;

/// Variables of the environment: `std::env::var_os`, or those of a test.
pub type Environment<'e> = &'e dyn Fn(&str) -> Option<std::ffi::OsString>;

/// Contents of the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    current_context: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, ClusterContext>,
}

/// Connection to one cluster. A missing field has no effect.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ClusterContext {
    /// Addresses of some servers: `host:port`.
    pub servers: Vec<String>,
    /// PEM file of the authority that signed the servers' certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file of the client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Private key of the client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// File with the access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// The access token itself. It is never printed.
    #[serde(skip_serializing)]
    pub token: Option<String>,
}

/// Configuration file that was read and checked.
#[derive(Debug)]
pub struct ContextFile {
    path: PathBuf,
    text: String,
    contents: Contents,
}

impl ContextFile {
    /// Reads the user's file; a missing file has no contexts.
    pub fn read(environment: Environment<'_>) -> anyhow::Result<Self> {
        let message = "contexts need HOME or XDG_CONFIG_HOME, an absolute path";
        Self::read_from(user_file(environment).ok_or_else(|| UsageError(message.to_owned()))?)
    }

    fn read_from(path: PathBuf) -> anyhow::Result<Self> {
        let wrong = |why: String| UsageError(format!("{}: {why}", path.display()));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(wrong(error.to_string()).into()),
        };
        // Not the text of the error itself, which repeats the line: that may be a token.
        let mut contents: Contents = toml::from_str(&text).map_err(|error| {
            let before = error
                .span()
                .and_then(|span| text.get(..span.start))
                .unwrap_or_default();
            wrong(format!(
                "line {}: {}",
                before.matches('\n').count() + 1,
                error.message()
            ))
        })?;
        for (name, context) in &mut contents.contexts {
            let fault = context.fault();
            if let Some(fault) = fault {
                return Err(wrong(format!("context {name:?}: {fault}")).into());
            }
            context.resolve(path.parent().unwrap_or(Path::new("")));
        }
        if contents.contexts.values().any(|context| context.token.is_some()) {
            let mode = fs::metadata(&path)
                .with_context(|| path.display().to_string())?
                .permissions()
                .mode();
            if mode & OTHERS != 0 {
                let why =
                    "the file has a token, and other users may read it: chmod 600, or name a token_file";
                return Err(wrong(why.to_owned()).into());
            }
        }
        let file = Self { path, text, contents };
        if let Some(name) = &file.contents.current_context {
            file.context(name)
                .map_err(|error| UsageError(format!("current_context: {error}")))?;
        }
        Ok(file)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the current context.
    pub fn current(&self) -> Option<&str> {
        self.contents.current_context.as_deref()
    }

    /// Returns all contexts by their names.
    pub fn contexts(&self) -> &BTreeMap<String, ClusterContext> {
        &self.contents.contexts
    }

    /// Returns the context with this name.
    pub fn context(&self, name: &str) -> Result<&ClusterContext, UsageError> {
        self.contents.contexts.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.contents.contexts.keys().map(String::as_str).collect();
            let known = match names.is_empty() {
                true => "there are none".to_owned(),
                false => format!("there are {}", names.join(", ")),
            };
            UsageError(format!("{}: no context {name:?}; {known}", self.path.display()))
        })
    }

    /// Makes a context the current one. The rest of the file, with its comments, stays as it is.
    pub fn set_current(&self, name: &str) -> anyhow::Result<()> {
        self.context(name)?;
        let line = format!("current_context = {}", toml::Value::from(name));
        // A key of the top level stands before the first table.
        let is_setting = |text: &str| {
            text.split('=')
                .next()
                .is_some_and(|key| key.trim() == "current_context")
        };
        let mut lines: Vec<&str> = self.text.lines().collect();
        let end = lines
            .iter()
            .position(|text| text.trim_start().starts_with('['))
            .unwrap_or(lines.len());
        match lines[..end].iter().position(|text| is_setting(text)) {
            Some(at) => lines[at] = &line,
            None => lines.insert(0, &line),
        }
        let text = format!("{}\n", lines.join("\n"));
        // The link of a user who keeps such files elsewhere stays a link.
        let path = fs::canonicalize(&self.path).with_context(|| self.path.display().to_string())?;
        let mode = fs::metadata(&path)
            .with_context(|| path.display().to_string())?
            .permissions();
        let dir = path.parent().context("a file is in a directory")?;
        let write = || -> std::io::Result<()> {
            let part = dir.join(format!("config.toml.{}.part", std::process::id()));
            let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&part)?;
            let written = fs::set_permissions(&part, mode)
                .and_then(|()| file.write_all(text.as_bytes()))
                .and_then(|()| file.sync_all())
                .and_then(|()| fs::rename(&part, &path));
            if written.is_err() {
                fs::remove_file(&part)?;
            }
            written
        };
        write().with_context(|| format!("writing {}", path.display()))
    }
}

impl ClusterContext {
    /// Returns what is wrong with the context.
    fn fault(&self) -> Option<&'static str> {
        match self {
            _ if self.servers.is_empty() => Some("`servers` is empty"),
            _ if self.cert.is_some() != self.key.is_some() => Some("`cert` and `key` belong together"),
            _ if self.cert.is_some() && self.ca.is_none() => Some("`cert` needs `ca`"),
            _ if self.token.is_some() && self.token_file.is_some() => Some("give `token` or `token_file`"),
            _ => None,
        }
    }

    fn resolve(&mut self, dir: &Path) {
        let files = [&mut self.ca, &mut self.cert, &mut self.key, &mut self.token_file];
        for file in files.into_iter().flatten() {
            *file = dir.join(&*file);
        }
    }
}

/// Returns the path of the user's file, by the XDG Base Directory Specification: `XDG_CONFIG_HOME` if it is an
/// absolute path, otherwise `.config` in the home directory.
fn user_file(environment: Environment<'_>) -> Option<PathBuf> {
    let directory = |name| {
        environment(name)
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
    };
    let dir = directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")));
    Some(dir?.join(FILE))
}

/// Returns whether the user has a directory for configurations. Services often have none.
pub fn has_home(environment: Environment<'_>) -> bool {
    user_file(environment).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the file with this text, or its error.
    fn file(text: &str, mode: u32) -> (tempfile::TempDir, anyhow::Result<ContextFile>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let read = ContextFile::read_from(path);
        (dir, read)
    }

    const TWO: &str = "# mine\n\n[contexts.a]\nservers = [\"a:1\"]\nca = \"ca.pem\"\n\n[contexts.b]\nservers = [\"b:1\"]\n\
                       token = \"lg_hidden\"\n";

    #[test]
    fn relative_paths_are_relative_to_the_file() {
        let (dir, read) = file(TWO, 0o600);
        let read = read.unwrap();
        assert_eq!(read.context("a").unwrap().ca, Some(dir.path().join("ca.pem")));
        assert_eq!(read.current(), None);
    }

    #[test]
    fn current_context_is_replaced_and_comments_stay() {
        let (dir, read) = file(TWO, 0o600);
        read.unwrap().set_current("b").unwrap();
        let path = dir.path().join("config.toml");
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("current_context = \"b\"\n{TWO}")
        );
        let read = ContextFile::read_from(path.clone()).unwrap();
        assert_eq!(read.current(), Some("b"));
        read.set_current("a").unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("current_context = \"a\"\n{TWO}")
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(
            read.set_current("c")
                .unwrap_err()
                .to_string()
                .contains("no context \"c\"; there are a, b")
        );
    }

    #[test]
    fn missing_file_has_no_contexts() {
        let dir = tempfile::tempdir().unwrap();
        let read = ContextFile::read_from(dir.path().join("config.toml")).unwrap();
        let error = read.context("a").unwrap_err().to_string();
        assert!(error.ends_with("no context \"a\"; there are none"), "{error}");
    }

    #[test]
    fn bad_files_are_refused_by_name_and_reason() {
        for (text, reason) in [
            ("current_context = \"a\"", "current_context: "),
            ("servers = [\"a:1\"]", "unknown field `servers`"),
            (
                "[contexts.a]\nservers = [\"a:1\"]\ntokens = 1",
                "unknown field `tokens`",
            ),
            ("[contexts.a]\nca = \"ca.pem\"", "missing field `servers`"),
            ("[contexts.a]\nservers = []", "context \"a\": `servers` is empty"),
            (
                "[contexts.a]\nservers = [\"a:1\"]\ncert = \"c\"",
                "belong together",
            ),
            (
                "[contexts.a]\nservers = [\"a:1\"]\ncert = \"c\"\nkey = \"k\"",
                "`cert` needs `ca`",
            ),
            (
                "[contexts.a]\nservers = [\"a:1\"]\ntoken = \"t\"\ntoken_file = \"f\"",
                "`token` or `token_file`",
            ),
            ("\n[contexts.a", "line 2: "),
            ("[contexts.a]\ntoken = lg_hidden", "line 2: "),
        ] {
            let (_dir, read) = file(text, 0o600);
            let error = read.unwrap_err();
            assert!(error.is::<UsageError>(), "{error}");
            let error = error.to_string();
            assert!(
                error.contains("config.toml") && error.contains(reason) && !error.contains("lg_hidden"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn file_with_a_token_must_be_private() {
        let (_dir, read) = file(TWO, 0o644);
        let error = read.unwrap_err().to_string();
        assert!(
            error.contains("chmod 600") && !error.contains("hidden"),
            "{error}"
        );
    }
}
