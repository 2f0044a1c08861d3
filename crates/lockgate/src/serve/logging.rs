//! Log of a node's process: destination, format and level. The level can change while the node runs.

use std::io;

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt};

use crate::config::{LogConfig, LogFormat};
use crate::log_writer::{EscapeStyle, EscapingWriter};

/// Variable that overrides the level of the configuration.
const OVERRIDE_VARIABLE: &str = "RUST_LOG";

/// Libraries whose internal log is off. The node logs in its own words what an operator needs of it.
const SILENT_LIBRARIES: [&str; 2] = ["openraft", "sled"];

/// Handle that changes the level.
#[derive(Debug, Clone)]
pub struct LogLevel(Handle<Targets, Registry>);

impl LogLevel {
    /// Applies the level of `config` from now on.
    pub fn set(&self, config: &LogConfig) -> anyhow::Result<()> {
        let filter = filter(config)?;
        self.0.reload(filter).context("changing the log level")
    }

    /// Returns whether the environment overrides the level of the configuration.
    pub fn is_overridden() -> bool {
        std::env::var_os(OVERRIDE_VARIABLE).is_some()
    }
}

/// Starts the log of this process.
pub fn start(config: &LogConfig) -> anyhow::Result<LogLevel> {
    let (filter, handle) = reload::Layer::new(filter(config)?);
    let escapes = match config.format {
        LogFormat::Text => EscapeStyle::Text,
        LogFormat::Json => EscapeStyle::Json,
    };
    let layer = fmt::layer()
        .with_writer(move || EscapingWriter::new(io::stderr(), escapes))
        .with_ansi(false)
        // A line that cannot be written, as on a full disk, is lost. A complaint on the same stream would
        // panic the thread that logs.
        .log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(filter);
    match config.format {
        LogFormat::Text => registry.with(layer).try_init(),
        LogFormat::Json => registry.with(layer.json()).try_init(),
    }
    .map_err(|error| anyhow::anyhow!("starting the log: {error}"))?;
    Ok(LogLevel(handle))
}

fn filter(config: &LogConfig) -> anyhow::Result<Targets> {
    let named: Targets = match std::env::var(OVERRIDE_VARIABLE) {
        Ok(directives) => directives.parse().context(OVERRIDE_VARIABLE)?,
        // Checked when the configuration was read.
        Err(_) => config.level.parse().context("log.level")?,
    };
    Ok(with_silent_libraries(named))
}

/// Turns off the libraries of [`SILENT_LIBRARIES`] that no directive names.
fn with_silent_libraries(named: Targets) -> Targets {
    let is_named = |target: &str| named.iter().any(|(name, _)| name.starts_with(target));
    let silent: Vec<&str> = SILENT_LIBRARIES
        .into_iter()
        .filter(|target| !is_named(target))
        .collect();
    let silent = silent.into_iter().map(|target| (target, LevelFilter::OFF));
    named.with_targets(silent)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn dependencies_log_only_if_a_directive_names_them() {
        let logs = |directives: &str, target: &str| {
            let targets = with_silent_libraries(directives.parse().unwrap());
            targets.would_enable(target, &Level::ERROR)
        };
        for directives in ["info", "trace", "info,lock_node=debug"] {
            assert!(logs(directives, "lock_node::leader"), "{directives}");
            assert!(
                !logs(directives, "openraft::core::heartbeat::worker"),
                "{directives}"
            );
            assert!(!logs(directives, "sled::pagecache"), "{directives}");
        }
        assert!(logs("info,openraft=warn", "openraft::core::heartbeat::worker"));
        assert!(logs(
            "info,openraft::core=warn",
            "openraft::core::heartbeat::worker"
        ));
        assert!(!logs("info,openraft=warn", "sled::pagecache"));
    }

    #[test]
    fn directives_filter_the_audit_log() {
        let logs = |directives: &str| {
            let targets = with_silent_libraries(directives.parse().unwrap());
            ["lockgate::audit", "lockgate::audit::refused", "lock_node::leader"]
                .map(|target| targets.would_enable(target, &Level::INFO))
        };
        assert_eq!(logs("info"), [true, true, true]);
        assert_eq!(logs("warn,lockgate::audit=info"), [true, true, false]);
        assert_eq!(logs("info,lockgate::audit::refused=off"), [true, false, true]);
        assert_eq!(logs("info,lockgate::audit=off"), [false, false, true]);
    }
}
