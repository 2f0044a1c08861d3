//! Taking a changed configuration up while the node runs: all of it is read and checked first, and if anything is wrong the node
//! goes on with what it has.

use std::path::{Path, PathBuf};

use raft_node::Tuning;
use tracing::{error, info, warn};

use super::logging::LogLevel;
use crate::config::changes::{Changes, Set};
use crate::config::{Loaded, ServeConfig};
use crate::server::{LiveSettings, Lockgate};

/// Where the configuration is, and what of it the node runs with.
pub struct Reloader {
    file: Option<PathBuf>,
    running: Set,
    level: LogLevel,
}

impl Reloader {
    /// Of a node that was started with `set`, out of `file` and the environment.
    pub fn new(file: Option<&Path>, set: Set, level: LogLevel) -> Self {
        Self {
            file: file.map(Path::to_owned),
            running: set,
            level,
        }
    }

    /// Reads the configuration again, and has the node take up what it can. Says in the log what that is.
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
                    "the configuration is refused as a whole, and the node goes on with the one before"
                );
                return;
            }
        };
        for warning in warnings {
            warn!(node, "configuration: {warning}");
        }
        let changes = Changes::between(&self.running, &set);
        if changes == Changes::default() {
            info!(node, "nothing has changed in the configuration");
            return;
        }
        let tuning = Tuning::of(&config.node);
        let applied = server.reconfigure(LiveSettings {
            http: config.http,
            admin: config.admin,
            zookeeper: config.zookeeper,
            admission: config.node.admission,
            tuning,
        });
        if let Err(refusal) = applied {
            error!(
                node,
                "the configuration does not go together with what holds until the next start, and nothing of it is taken up: {refusal}"
            );
            return;
        }
        let level_changed = changes.live.iter().any(|change| change.setting == "log.level");
        if level_changed {
            if LogLevel::is_overridden() {
                warn!(node, "log.level has no effect: RUST_LOG goes before it");
            }
            if let Err(error) = self.level.set(&config.log) {
                error!(node, "the log goes on as before: {error:#}");
            }
        }
        for change in &changes.live {
            info!(node, "taken up: {change}");
        }
        for change in &changes.restart {
            warn!(node, "holds from the next start on: {change}");
        }
        self.running = changes.applied_to(&self.running);
    }
}
