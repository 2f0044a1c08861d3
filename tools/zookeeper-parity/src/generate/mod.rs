//! Random programs, from a seed.
//!
//! The generator aims at collisions: few names, few versions, and existing paths. What it avoids because the
//! two sides differ on purpose is listed in `differences`; comments in the code name the entry.

mod expected_tree;
mod material;
mod reads;
mod writes;

pub use material::credentials;

use std::collections::BTreeMap;

use expected_tree::ExpectedTree;

use crate::program::{Program, QUOTA_ROOT, Relative, Step, WRITTEN_ROOT};
use crate::rng::Rng;
use crate::wire::{Request, SetWatches};

/// Minimum number of steps; the maximum is [`MOST_STEPS`] (and a few more where steps belong together).
const FEWEST_STEPS: usize = 10;
const MOST_STEPS: usize = 40;

/// Maximum depth of paths below the root.
const DEEPEST: usize = 4;
const NARROW_DEPTH: usize = 2;

/// Maximum number of sessions; more would collide less often.
const MOST_SESSIONS: usize = 3;

/// Generates the program of a seed.
pub fn program(seed: u64) -> Program {
    let mut rng = Rng::new(seed);
    let sessions = 1 + rng.below(MOST_SESSIONS);
    let theme = Theme {
        narrow: rng.percent(50),
        acl: rng.percent(40),
        quota: rng.percent(20),
        watches: rng.percent(60),
        connections: rng.percent(40),
    };
    let length = FEWEST_STEPS + rng.below(MOST_STEPS - FEWEST_STEPS + 1);
    let mut generator = Generator {
        rng,
        theme,
        sessions: (0..sessions).map(|_| SessionModel::default()).collect(),
        expected: ExpectedTree::new(),
        steps: Vec::new(),
    };
    generator.sessions[0].open = true;
    generator.sessions[0].connected = true;
    if generator.theme.quota {
        generator.set_up_quota();
    }
    while generator.steps.len() < length {
        generator.step();
    }
    Program {
        seed,
        sessions,
        steps: generator.steps,
    }
}

/// Focus of a program; every kind of step may happen in each.
struct Theme {
    /// Few and short paths, so that steps affect each other.
    narrow: bool,
    acl: bool,
    quota: bool,
    watches: bool,
    connections: bool,
}

/// The generator's model of a session.
#[derive(Default)]
struct SessionModel {
    open: bool,
    connected: bool,
    is_super: bool,
    /// Paths on which the connection may have watches.
    watched: BTreeMap<String, Watched>,
}

/// Kind of watch on a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Once,
    Persistently,
    Recursively,
}

struct Generator {
    rng: Rng,
    theme: Theme,
    sessions: Vec<SessionModel>,
    expected: ExpectedTree,
    steps: Vec<Step>,
}

#[derive(Clone, Copy)]
enum Kind {
    Write,
    Read,
    Watch,
    Auth,
    Special,
    Connection,
}

impl Generator {
    fn step(&mut self) {
        let session = self.rng.below(self.sessions.len());
        if !self.sessions[session].open {
            self.open(session);
            return;
        }
        if !self.sessions[session].connected && self.rng.percent(60) {
            self.resume(session);
            return;
        }
        let kind = self.rng.weighted(&[
            (50, Kind::Write),
            (25, Kind::Read),
            (if self.theme.watches { 30 } else { 5 }, Kind::Watch),
            (if self.theme.acl { 9 } else { 1 }, Kind::Auth),
            (3, Kind::Special),
            (if self.theme.connections { 8 } else { 1 }, Kind::Connection),
        ]);
        let request = match kind {
            Kind::Write => self.write(session),
            Kind::Read => self.read(session),
            Kind::Watch => match self.watch(session) {
                Some(request) => request,
                None => return self.rewatch(session),
            },
            Kind::Auth => self.auth(session),
            Kind::Special => self.special(session),
            Kind::Connection => return self.connection(session),
        };
        self.call(session, request);
    }

    fn call(&mut self, session: usize, request: Request) {
        self.expected.note(session, &request);
        self.steps.push(Step::Call { session, request });
    }

    fn close(&mut self, session: usize) {
        self.expected.end(session);
        self.sessions[session].open = false;
        self.steps.push(Step::Close { session });
    }

    fn open(&mut self, session: usize) {
        self.steps.push(Step::Open { session });
        self.sessions[session] = SessionModel {
            open: true,
            connected: true,
            ..SessionModel::default()
        };
    }

    fn resume(&mut self, session: usize) {
        if self.rng.percent(10) {
            self.steps.push(Step::Resume {
                session,
                wrong_password: true,
            });
        }
        self.steps.push(Step::Resume {
            session,
            wrong_password: false,
        });
        let sketch = &mut self.sessions[session];
        sketch.connected = true;
        sketch.is_super = false;
        sketch.watched.clear();
        if self.rng.percent(60) {
            self.rewatch(session);
        }
    }

    fn connection(&mut self, session: usize) {
        match self.rng.below(10) {
            0..=4 => {
                self.steps.push(Step::Drop { session });
                self.sessions[session].connected = false;
            }
            5 | 6 => self.resume(session),
            7 => {
                self.close(session);
                // An ended session may still send requests, which have no effect until another one is opened.
                if self.rng.percent(30) {
                    self.steps.push(Step::Resume {
                        session,
                        wrong_password: false,
                    });
                }
            }
            _ => {
                // All znodes of the session disappear, and another session reads.
                self.close(session);
                let other = self.rng.below(self.sessions.len());
                let request = self.read(other);
                self.call(other, request);
            }
        }
    }

    fn rewatch(&mut self, session: usize) {
        let mut watches = SetWatches::default();
        for _ in 0..1 + self.rng.below(4) {
            let path = self.path();
            let (list, watched) = match self.rng.below(5) {
                0 => (&mut watches.data, Watched::Once),
                1 => (&mut watches.exist, Watched::Once),
                2 => (&mut watches.child, Watched::Once),
                3 => (&mut watches.persistent, Watched::Persistently),
                _ => (&mut watches.persistent_recursive, Watched::Recursively),
            };
            if self.may_watch(session, &path, watched) {
                list.push(path);
            }
        }
        let relative = match self.rng.below(20) {
            0 | 1 => Relative::Zero,
            2 => Relative::Future,
            _ => Relative::Reply(self.rng.below(6)),
        };
        self.steps.push(Step::Rewatch {
            session,
            relative,
            watches,
        });
    }

    /// Records a watch; returns `false` if it must not be set because there is one of another kind: see
    /// `kinds-of-watches` in `differences`.
    fn may_watch(&mut self, session: usize, path: &str, watched: Watched) -> bool {
        *self.sessions[session]
            .watched
            .entry(path.to_owned())
            .or_insert(watched)
            == watched
    }

    /// Creates one or two quotas on the root or below it, as ZooKeeper's shell does, with their subtrees.
    fn set_up_quota(&mut self) {
        let subtrees: &[_] = match self.rng.below(6) {
            0 | 1 => &["/p"],
            2 => &["/p/a"],
            3 => &["/p/a/b"],
            4 => &["/p", "/p/a"],
            _ => &["/p/a", "/p/a/b"],
        };
        for subtree in subtrees {
            let mut calls = Vec::new();
            let mut path = WRITTEN_ROOT.to_owned();
            calls.push(material::plain_create(&format!("{QUOTA_ROOT}{path}"), b""));
            for name in subtree[WRITTEN_ROOT.len()..].split('/').skip(1) {
                path = format!("{path}/{name}");
                calls.push(material::plain_create(&path, b"x"));
                calls.push(material::plain_create(&format!("{QUOTA_ROOT}{path}"), b""));
            }
            let limits = material::plain_create(
                &format!("{QUOTA_ROOT}{subtree}/{}", material::LIMITS),
                self.limits().as_bytes(),
            );
            let usage = material::plain_create(
                &format!("{QUOTA_ROOT}{subtree}/{}", material::USAGE),
                b"count=0,bytes=0",
            );
            if self.rng.percent(20) {
                calls.extend([usage, limits]);
            } else {
                calls.extend([limits, usage]);
            }
            for request in calls {
                self.call(0, request);
            }
        }
    }

    /// Draws a path for a request: mostly an existing one, otherwise one near it, otherwise any.
    fn path(&mut self) -> String {
        match self.rng.below(100) {
            0..=74 => self.expected.existing(&mut self.rng),
            75..=91 => self.fresh(),
            _ => {
                let deepest = self.depth();
                material::path(&mut self.rng, deepest)
            }
        }
    }

    fn depth(&self) -> usize {
        if self.theme.narrow { NARROW_DEPTH } else { DEEPEST }
    }

    /// Draws a path below an existing one, which may be new.
    fn fresh(&mut self) -> String {
        let parent = self.expected.existing(&mut self.rng);
        let deep = parent.matches('/').count() > self.depth();
        let parent = if deep { WRITTEN_ROOT } else { &parent };
        let name = if self.theme.narrow {
            material::common_name(&mut self.rng)
        } else {
            material::name(&mut self.rng)
        };
        format!("{parent}/{name}")
    }

    /// Draws a version for a request about a path: any, the right one, or another one.
    fn version(&mut self, path: &str) -> i32 {
        match self.rng.below(100) {
            0..=54 => -1,
            55..=79 => self.expected.version(path),
            _ => material::version(&mut self.rng),
        }
    }
}
