//! Reload of the configuration while the node runs. The whole configuration is read and checked first; if it
//! has an error, the node keeps its current one.

use std::path::{Path, PathBuf};

use lock_node::RuntimeConfig;
use tracing::{error, info, warn};

use super::logging::LogLevel;
use crate::config::changes::{Changes, Set};
use crate::config::{Loaded, ServeConfig};
use crate::server::{LiveSettings, Lockgate};

/// Place of the configuration, and the settings with which the node runs.
pub struct Reloader {
    file: Option<PathBuf>,
    running: Set,
    level: LogLevel,
}

impl Reloader {
    /// Creates the reloader of a node that was started with `set`, from `file` and the environment.
    pub fn new(file: Option<&Path>, set: Set, level: LogLevel) -> Self {
        Self {
            file: file.map(Path::to_owned),
            running: set,
            level,
        }
    }

    /// Reads the configuration again and applies the settings that can change at run time. Logs each of them.
    pub fn reload(&mut self, server: &Lockgate) {
        let node = server.node().id();
        let Loaded {
            config,
            set,
            warnings,
        } = match ServeConfig::load(self.file.as_deref()) {
            Ok(loaded) => loaded,
            Err(errors) => {
                for problem in &errors.0 {
                    error!(node, "configuration: {problem}");
                }
                error!(
                    node,
                    errors = errors.0.len(),
                    "the configuration has errors; nothing of it is applied"
                );
                return;
            }
        };
        for warning in warnings {
            warn!(node, "configuration: {warning}");
        }
        let changes = Changes::between(&self.running, &set);
        if changes == Changes::default() {
            info!(node, "the configuration is unchanged");
            return;
        }
        let tuning = RuntimeConfig::of(&config.node);
        let applied = server.reconfigure(LiveSettings {
            http: config.http,
            admin: config.admin,
            zookeeper: config.zookeeper,
            redis: config.redis,
            admission: config.node.admission,
            tuning,
        });
        if let Err(refusal) = applied {
            error!(
                node,
                "the configuration contradicts settings that cannot change before a restart; nothing of it is applied: {refusal}"
            );
            return;
        }
        let level_changed = changes.live.iter().any(|change| change.setting == "log.level");
        if level_changed {
            if LogLevel::is_overridden() {
                warn!(node, "log.level has no effect: RUST_LOG overrides it");
            }
            if let Err(error) = self.level.set(&config.log) {
                error!(node, "cannot change the log level: {error:#}");
            }
        }
        for change in &changes.live {
            info!(node, "setting applied: {change}");
        }
        for change in &changes.restart {
            warn!(node, "setting needs a restart: {change}");
        }
        self.running = changes.applied_to(&self.running);
    }
}
