//! Random requests that change znodes, alone and in a multi.

use super::{Generator, material};
use crate::program::{QUOTA_ROOT, WRITTEN_ROOT};
use crate::wire::{AclEntry, CreateCall, Request};

/// Longest time to live that fits into an `ephemeralOwner`: 40 bits of milliseconds.
const LONGEST_TTL_MS: i64 = (1 << 40) - 1;

/// Subtrees whose quotas programs read and write: all that `set_up_quota` may use.
const QUOTA_SUBTREES: [&str; 3] = ["/p", "/p/a", "/p/a/b"];

#[derive(Clone, Copy)]
enum Write {
    Create,
    Delete,
    SetData,
    SetAcl,
    Multi,
    Illegal,
    Quota,
}

impl Generator {
    pub(super) fn write(&mut self, session: usize) -> Request {
        let kind = self.rng.weighted(&[
            (42, Write::Create),
            (16, Write::Delete),
            (16, Write::SetData),
            (if self.theme.acl { 14 } else { 2 }, Write::SetAcl),
            (14, Write::Multi),
            (2, Write::Illegal),
            (if self.theme.quota { 12 } else { 0 }, Write::Quota),
        ]);
        match kind {
            Write::Create => self.create(),
            Write::Delete => self.delete(),
            Write::SetData => self.set_data(),
            Write::SetAcl => {
                // The root stays open, or no further request would have an effect.
                let path = match self.path() {
                    root if root == WRITTEN_ROOT => self.fresh(),
                    path => path,
                };
                Request::SetAcl {
                    path,
                    acl: material::acl(&mut self.rng),
                    version: material::version(&mut self.rng),
                }
            }
            Write::Multi => self.multi(session),
            Write::Illegal => self.illegal_write(3),
            Write::Quota => self.quota(),
        }
    }

    fn create(&mut self) -> Request {
        let (call, flags) = self.create_call();
        let path = if matches!(flags, 2 | 3 | 6) {
            format!("{}/{}", self.path(), material::prefix(&mut self.rng))
        } else {
            match self.rng.below(10) {
                0..=7 => self.fresh(),
                _ => self.path(),
            }
        };
        let data = material::data(&mut self.rng);
        Request::Create {
            call,
            path,
            data,
            acl: self.acl(),
            flags,
        }
    }

    /// Draws a kind of create with its flags. Flags that do not fit the request have the same meaning on both
    /// sides, except for the cases of `create-flags` in `differences`.
    fn create_call(&mut self) -> (CreateCall, i32) {
        let plain = if self.rng.percent(50) {
            CreateCall::Create
        } else {
            CreateCall::Create2
        };
        match self.rng.below(40) {
            0..=15 => (plain, 0),
            16..=20 => (plain, 1),
            21..=26 => (plain, 2),
            27..=29 => (plain, 3),
            30..=32 => (CreateCall::Container, 4),
            33..=35 => (CreateCall::Ttl(self.ttl()), 5),
            36 | 37 => (CreateCall::Ttl(self.ttl()), 6),
            38 => self
                .rng
                .pick(&[(plain, 4), (plain, 5), (plain, 6), (plain, 7), (plain, -1)]),
            _ => self.rng.pick(&[
                (CreateCall::Container, 0),
                (CreateCall::Container, 5),
                (CreateCall::Container, 9),
                (CreateCall::Ttl(1), 0),
                (CreateCall::Ttl(0), 1),
                (CreateCall::Ttl(5), 4),
                (CreateCall::Ttl(5), 7),
            ]),
        }
    }

    fn ttl(&mut self) -> i64 {
        self.rng.weighted(&[
            (10, 1),
            (30, 10_000),
            (10, LONGEST_TTL_MS),
            (2, LONGEST_TTL_MS + 1),
            (2, 0),
            (2, -1),
            (1, i64::MAX),
            (1, i64::MIN),
        ])
    }

    fn acl(&mut self) -> Option<Vec<AclEntry>> {
        let special = if self.theme.acl { 50 } else { 4 };
        if self.rng.percent(special) {
            material::acl(&mut self.rng)
        } else {
            material::open_acl()
        }
    }

    fn delete(&mut self) -> Request {
        let leaf = if self.rng.percent(60) {
            self.expected.leaf(&mut self.rng)
        } else {
            None
        };
        let path = match leaf {
            Some(leaf) => leaf,
            None => self.path(),
        };
        // The root stays, since requests without a parent reveal little.
        let path = if path == WRITTEN_ROOT { self.fresh() } else { path };
        Request::Delete {
            version: self.version(&path),
            path,
        }
    }

    fn set_data(&mut self) -> Request {
        let path = self.path();
        let data = material::data(&mut self.rng);
        Request::SetData {
            version: self.version(&path),
            path,
            data,
        }
    }

    fn check(&mut self) -> Request {
        let path = self.path();
        Request::Check {
            version: self.version(&path),
            path,
        }
    }

    fn multi(&mut self, session: usize) -> Request {
        if self.rng.percent(2) {
            return Request::Multi(Vec::new());
        }
        // Later items build upon earlier ones, until one of them is to fail.
        let before = self.expected.clone();
        let mut items = Vec::new();
        for _ in 0..1 + self.rng.below(5) {
            // See `quota-in-multi` in `differences`: with a quota, only one item may change the usage.
            if self.theme.quota && !items.is_empty() {
                items.push(self.check());
                continue;
            }
            // Items that are likely to succeed make longer multis succeed.
            let wants_success = self.rng.percent(85);
            for attempt in 0..8 {
                let item = match self.rng.below(40) {
                    0..=17 => self.create(),
                    18..=23 => self.delete(),
                    24..=31 => self.set_data(),
                    32..=38 => self.check(),
                    _ => self.illegal_write(4),
                };
                let item = with_ttl_of_its_own(item);
                if self.expected.note(session, &item) || !wants_success || attempt == 7 {
                    items.push(item);
                    break;
                }
            }
        }
        if self.theme.quota && self.rng.percent(50) {
            items.rotate_left(1);
        }
        self.expected = before;
        Request::Multi(items)
    }

    /// Draws an invalid request. Used inside of a multi as well, so without setACL; a check, the last kind,
    /// is valid only in a multi.
    fn illegal_write(&mut self, kinds: usize) -> Request {
        let path = self.rng.pick(&material::ILLEGAL).to_owned();
        match self.rng.below(kinds) {
            0 => Request::Create {
                call: CreateCall::Create2,
                path: self.rng.pick(&material::ILLEGAL_CHILDREN).to_owned(),
                data: None,
                acl: material::open_acl(),
                flags: 0,
            },
            1 => Request::Delete {
                path: self.rng.pick(&material::ILLEGAL_CHILDREN).to_owned(),
                version: -1,
            },
            2 => Request::SetData {
                path,
                data: None,
                version: -1,
            },
            _ => Request::Check { path, version: -1 },
        }
    }

    pub(super) fn limits(&mut self) -> String {
        let count = self.rng.below(8);
        let bytes = self.rng.below(30);
        match self.rng.below(6) {
            0 => format!("count={count},bytes={bytes}"),
            1 => format!("count=-1,bytes=-1=;byteHardLimit={bytes}"),
            2 => format!("count=-1,bytes=-1=;countHardLimit={count}"),
            3 => "count=-1,bytes=-1".to_owned(),
            _ => format!("count=1,bytes=-1=;byteHardLimit={bytes};countHardLimit={count}"),
        }
    }

    /// Draws a request that creates, changes or deletes the znodes of a quota. Malformed limits are omitted,
    /// see `malformed-quotas` in `differences`.
    fn quota(&mut self) -> Request {
        let subtree = self.rng.pick(&QUOTA_SUBTREES);
        let limits = format!("{QUOTA_ROOT}{subtree}/{}", material::LIMITS);
        let usage = format!("{QUOTA_ROOT}{subtree}/{}", material::USAGE);
        match self.rng.below(12) {
            0 | 1 => {
                let text = self.limits();
                material::plain_create(&limits, text.as_bytes())
            }
            2..=4 => Request::SetData {
                path: limits,
                data: Some(self.limits().into()),
                version: -1,
            },
            5 => Request::Delete {
                path: limits,
                version: -1,
            },
            6 => material::plain_create(&usage, b"count=0,bytes=0"),
            7 => Request::Delete {
                path: usage,
                version: -1,
            },
            8 => material::plain_create(&format!("{QUOTA_ROOT}{subtree}"), b""),
            9 => Request::GetData {
                path: limits,
                watch: false,
            },
            10 => Request::GetData {
                path: usage,
                watch: true,
            },
            _ => Request::GetChildren2 {
                path: format!("{QUOTA_ROOT}{subtree}"),
                watch: false,
            },
        }
    }
}

/// Adds a time to live if the flags require one. In a multi only the flags determine what is created, and a
/// missing time to live is an error: see `ttl-flags-in-multi` in `differences`.
fn with_ttl_of_its_own(request: Request) -> Request {
    match request {
        Request::Create {
            path,
            data,
            acl,
            flags: flags @ (5 | 6),
            ..
        } => Request::Create {
            call: CreateCall::Ttl(1),
            path,
            data,
            acl,
            flags,
        },
        other => other,
    }
}
