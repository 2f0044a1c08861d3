//! Isolation of a cell's process in namespaces of its own, as far as this machine allows.
//! A cell runs in a process that is the first of its process namespace, with a network and mounts that no
//! other process sees. When it ends, for whatever reason, the kernel ends all nodes, removes the network and
//! unmounts every disk. There is nothing to clean up, and nothing that could be forgotten. It ends with the
//! process that started it.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// Isolation of a cell from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// All namespaces, created by root: networks, and disks in images.
    Root,
    /// The same namespaces inside a user namespace: networks, but no disks.
    User,
    /// None: nodes share the loopback interface.
    None,
}

impl Isolation {
    /// Returns the strongest isolation that this machine allows.
    pub fn best() -> Self {
        let works = |isolation: Self| {
            let mut command = isolation.command(Path::new("nft"));
            let quiet = command.args(["list", "tables"]).stdin(Stdio::null());
            let ended = quiet.stdout(Stdio::null()).stderr(Stdio::null()).status();
            ended.is_ok_and(|status| status.success())
        };
        [Self::Root, Self::User]
            .into_iter()
            .find(|isolation| works(*isolation))
            .unwrap_or(Self::None)
    }

    /// Returns a command that runs a program with this isolation and ends it with the process that starts it.
    pub fn command(self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if self != Self::None {
            command.arg("unshare");
            if self == Self::User {
                command.args(["--user", "--map-root-user"]);
            }
            command.args([
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "--",
            ]);
        }
        command.arg(program);
        command
    }

    /// Describes the isolation for the user.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Root => "namespaces made by root: networks, disk images",
            Self::User => "namespaces of an ordinary user: networks, no disk images",
            Self::None => "no namespaces: loopback and proxies, no disk images",
        }
    }
}
