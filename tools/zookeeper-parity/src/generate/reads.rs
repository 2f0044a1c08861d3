//! Random requests that change no znode, and those about watches and identities.

use super::material::{self, ALICE, BOB, IMPOSTOR, NAMELESS};
use super::{Generator, SessionModel, Watched};
use crate::program::{QUOTA_ROOT, WRITTEN_ROOT, auth};
use crate::server::SUPER_CREDENTIALS;
use crate::wire::Request;

impl Generator {
    pub(super) fn read(&mut self, session: usize) -> Request {
        if self.rng.percent(3) {
            let path = self.rng.pick(&material::ILLEGAL).to_owned();
            let watch = self.rng.percent(50);
            return match self.rng.below(5) {
                0 => Request::Exists { path, watch },
                1 => Request::GetData { path, watch },
                2 => Request::GetAcl { path },
                3 => Request::GetChildren { path, watch },
                _ => Request::GetAllChildrenNumber { path },
            };
        }
        let path = self.path();
        let watch = self.rng.percent(if self.theme.watches { 60 } else { 20 })
            && self.may_watch(session, &path, Watched::Once);
        match self.rng.below(if self.theme.acl { 28 } else { 22 }) {
            0..=3 => Request::Exists { path, watch },
            4..=7 => Request::GetData { path, watch },
            8 | 9 => Request::GetAcl { path },
            10..=12 => Request::GetChildren {
                path: self.parent_or(path, watch),
                watch,
            },
            13..=15 => Request::GetChildren2 {
                path: self.parent_or(path, watch),
                watch,
            },
            16 => Request::GetAllChildrenNumber { path },
            17 | 18 => self.ephemerals(path),
            19 | 20 => self.multi_read(),
            21 => Request::Sync { path },
            _ => Request::GetAcl { path },
        }
    }

    /// Parents are where children change; but a watch was recorded for the path itself.
    fn parent_or(&mut self, path: String, watch: bool) -> String {
        if watch || self.rng.percent(50) {
            return path;
        }
        match path.rfind('/') {
            Some(at) if at >= WRITTEN_ROOT.len() => path[..at].to_owned(),
            _ => path,
        }
    }

    fn ephemerals(&mut self, path: String) -> Request {
        let prefix = match self.rng.below(6) {
            0 => "/".to_owned(),
            4 => String::new(),
            5 => "p".to_owned(),
            1 => WRITTEN_ROOT.to_owned(),
            2 => path,
            _ => format!("{WRITTEN_ROOT}/a"),
        };
        Request::GetEphemerals { prefix }
    }

    fn multi_read(&mut self) -> Request {
        let mut items = Vec::new();
        for _ in 0..self.rng.below(5) {
            let path = self.path();
            items.push(if self.rng.percent(60) {
                Request::GetData { path, watch: false }
            } else {
                Request::GetChildren { path, watch: false }
            });
        }
        Request::MultiRead(items)
    }

    /// Draws a request about watches; `None` stands for setWatches2.
    pub(super) fn watch(&mut self, session: usize) -> Option<Request> {
        let path = self.path();
        Some(match self.rng.below(20) {
            0..=3 if self.may_watch(session, &path, Watched::Persistently) => {
                Request::AddWatch { path, mode: 0 }
            }
            4..=8 => {
                let path = match self.rng.below(10) {
                    0 => "/".to_owned(),
                    1..=3 => WRITTEN_ROOT.to_owned(),
                    _ => path,
                };
                if !self.may_watch(session, &path, Watched::Recursively) {
                    return Some(Request::Exists { path, watch: false });
                }
                Request::AddWatch { path, mode: 1 }
            }
            9..=11 => Request::RemoveWatches {
                kind: self.watcher_type(session, &path),
                path,
            },
            // See `check-watches` in `differences`: with other sessions the answer would be about their
            // watches as well.
            12 | 13 if self.sessions.len() == 1 => Request::CheckWatches {
                kind: self.watcher_type(session, &path),
                path,
            },
            14 => Request::AddWatch {
                path,
                mode: self.rng.pick(&[2, -1]),
            },
            15 => return None,
            _ => {
                let watch = self.may_watch(session, &path, Watched::Once);
                match self.rng.below(3) {
                    0 => Request::Exists { path, watch },
                    1 => Request::GetData { path, watch },
                    _ => Request::GetChildren { path, watch },
                }
            }
        })
    }

    /// Draws the type of watches to remove or check. Persistent ones do not have the type of standard ones,
    /// see `watcher-types` in `differences`.
    fn watcher_type(&mut self, session: usize, path: &str) -> i32 {
        match self.sessions[session].watched.get(path) {
            Some(Watched::Persistently | Watched::Recursively) => 3,
            _ => self.rng.weighted(&[(30, 1), (30, 2), (30, 3), (3, 0), (3, 9)]),
        }
    }

    pub(super) fn auth(&mut self, session: usize) -> Request {
        let digest = |credentials: &str| auth("digest", credentials);
        match self.rng.below(20) {
            0..=8 => digest(ALICE.0),
            9..=14 => digest(BOB.0),
            15 => digest(IMPOSTOR.0),
            16 => digest(NAMELESS.0),
            17 => {
                self.sessions[session] = SessionModel {
                    open: true,
                    ..SessionModel::default()
                };
                auth("nobody", "knows")
            }
            18 => Request::WhoAmI,
            _ => {
                self.sessions[session].is_super = true;
                digest(SUPER_CREDENTIALS)
            }
        }
    }

    /// Draws a request about the reserved tree. A check outside of a multi is omitted, see `lone-check` in
    /// `differences`.
    pub(super) fn special(&mut self, session: usize) -> Request {
        let reserved = self.rng.pick(&["/zookeeper", "/zookeeper/config"]);
        let path = reserved.to_owned();
        match self.rng.below(12) {
            0 => Request::Delete { path, version: -1 },
            1 => Request::Delete {
                path: "/".to_owned(),
                version: -1,
            },
            2 => Request::Delete {
                path: QUOTA_ROOT.to_owned(),
                version: -1,
            },
            3 => material::plain_create("/", b""),
            4 => material::plain_create("/zookeeper/config", b""),
            // The super user would change znodes that all programs share.
            5 if !self.sessions[session].is_super => Request::SetData {
                path: "/zookeeper/config".to_owned(),
                data: None,
                version: -1,
            },
            6 => Request::GetData {
                path: "/zookeeper/config".to_owned(),
                watch: false,
            },
            7 => Request::GetChildren { path, watch: false },
            8 => Request::GetAcl {
                path: "/zookeeper/config".to_owned(),
            },
            _ => Request::WhoAmI,
        }
    }
}
