//! Random requests of several principals in a secured state. What the rules of docs/reference/security.md let through must do there what it
//! does in an open state, and what they do not let through must do nothing: a twin that is open gets the one and is spared the
//! other. Snapshots are restored in between.

use proptest::prelude::*;
use znode_store::{
    AccessCommand, Acl, Command, CreateMode, CreatePath, EntryContext, Identities, Identity, NewToken, Op,
    PathGrant, Refusal, Request, Right, Rights, RoleName, Store, TokenHash, TokenId, ZPath,
};

use crate::cases;
use crate::replicas::{draw, restore};

const CASES: u32 = 200;
const STEPS: usize = 200;
const ENTRY: EntryContext = EntryContext { time_ms: 7, term: 1 };

/// Paths that meet: a place, below it, above it, beside it.
const PATHS: [&str; 7] = ["/a", "/a/b", "/a/b/c", "/a/bc", "/d", "/d/b", "/e"];

/// Model of the policies: the grants of three tokens, and which of them are revoked.
struct Rules {
    grants: [Vec<(usize, Right)>; 3],
    revoked: [bool; 3],
}

impl Rules {
    /// By components, from above.
    fn may(&self, who: usize, right: Right, path: &str) -> bool {
        !self.revoked[who]
            && self.grants[who].iter().any(|(at, granted)| {
                let prefix: Vec<_> = PATHS[*at].split('/').collect();
                let path: Vec<_> = path.split('/').collect();
                *granted == right && path.len() >= prefix.len() && path[..prefix.len()] == prefix[..]
            })
    }

    fn allows(&self, who: usize, op: &Op, twin: &Store) -> bool {
        let may = |right, path: &ZPath| self.may(who, right, path.as_str());
        match op {
            Op::Create { path, parents, .. } => {
                let at = path.parent.join(&path.name).expect("it is a path");
                let mut above = vec![path.parent.clone()];
                while let Some(next) = above[above.len() - 1].parent() {
                    above.push(next);
                }
                let made = above.iter().filter(|path| twin.stat(path).is_none());
                may(Right::Write, &at) && (!parents || made.into_iter().all(|path| may(Right::Write, path)))
            }
            Op::Delete { path, .. } | Op::DeleteRecursive { path } | Op::Set { path, .. } => {
                may(Right::Write, path)
            }
            Op::SetAcl { path, .. } => may(Right::Administer, path),
            Op::Check { path, .. } => may(Right::Read, path),
            Op::Held { .. } => unreachable!("no locks are asked for here"),
        }
    }
}

fn op(kind: usize, at: usize) -> Op {
    let path = ZPath::parse(PATHS[at]).expect("it is a path");
    let version = -1;
    match kind {
        0..4 => Op::Create {
            path: CreatePath::parse(PATHS[at], false).expect("it is a path"),
            data: "x".into(),
            acl: Acl::open(),
            mode: CreateMode::Persistent,
            parents: kind.is_multiple_of(2),
        },
        4 => Op::Delete { path, version },
        5 => Op::DeleteRecursive { path },
        6 => Op::SetAcl {
            path,
            acl: Acl::open(),
            aversion: version,
        },
        7 => Op::Check { path, version },
        _ => Op::Set {
            path,
            data: "y".into(),
            version,
        },
    }
}

fn token(who: usize) -> TokenId {
    TokenId([who as u8 + 2; 16])
}

fn role(who: usize) -> RoleName {
    RoleName::parse(&format!("role{who}")).expect("it is a name")
}

fn set_role(who: usize, grants: &[(usize, Right)]) -> AccessCommand {
    let grant = |(at, right): &(usize, Right)| PathGrant {
        prefix: ZPath::parse(PATHS[*at]).expect("it is a path"),
        rights: Rights::of([*right]),
    };
    AccessCommand::SetRole {
        role: role(who),
        grants: grants.iter().map(grant).collect(),
    }
}

fn new_token(who: usize) -> AccessCommand {
    AccessCommand::CreateToken(NewToken {
        id: token(who),
        hash: TokenHash([0; 32]),
        role: role(who),
        description: "".into(),
        expires_at_ms: None,
    })
}

struct World {
    store: Store,
    /// Open, and asked for only what the rules allow.
    twin: Store,
    rules: Rules,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            store: Store::new(),
            twin: Store::new(),
            rules: Rules {
                grants: Default::default(),
                revoked: [false; 3],
            },
        };
        world.manage(AccessCommand::Secure {
            token: TokenId([1; 16]),
            hash: TokenHash([0; 32]),
            description: "".into(),
            anonymous: None,
        });
        for who in 0..3 {
            world.manage(set_role(who, &[]));
            world.manage(new_token(who));
        }
        world
    }

    /// The operator changes the policies. The twin executes a command without effect, at the same position.
    fn manage(&mut self, command: AccessCommand) {
        let caller = Identities::new([Identity::Super]);
        let request = Request {
            caller,
            ..Request::anonymous(Command::Access(command))
        };
        let applied = self.store.apply(&ENTRY, request, &mut Vec::new());
        assert!(applied.outcome.is_ok(), "{applied}");
        self.pass();
    }

    fn pass(&mut self) {
        let sweep = Request::anonymous(Command::Sweep(Vec::new()));
        self.twin.apply(&ENTRY, sweep, &mut Vec::new());
    }

    fn ask(&mut self, who: usize, ops: Vec<Op>, is_transaction: bool) {
        let denied = ops.iter().position(|op| !self.rules.allows(who, op, &self.twin));
        let command = match is_transaction {
            true => Command::Multi(ops),
            false => Command::Write(ops.into_iter().next().expect("there is one")),
        };
        let asked = |caller| Request {
            caller,
            ..Request::anonymous(command.clone())
        };
        let by = Identities::new([Identity::Token(token(who))]);
        let (mut events, mut expected) = (Vec::new(), Vec::new());
        let outcome = self.store.apply(&ENTRY, asked(by), &mut events).outcome;
        match denied {
            None if !self.rules.revoked[who] => {
                let twin = self.twin.apply(&ENTRY, asked(Identities::none()), &mut expected);
                assert_eq!(outcome, twin.outcome, "{command}");
                assert_eq!(events, expected, "{command}");
            }
            denied => {
                match (&outcome, self.rules.revoked[who]) {
                    (Err(Refusal::Unauthenticated(_)), true) | (Err(Refusal::Forbidden { .. }), false) => {}
                    (Err(Refusal::Multi { index, refusal }), false) => {
                        assert_eq!(Some(*index as usize), denied, "{command}");
                        assert!(matches!(**refusal, Refusal::Forbidden { .. }), "{refusal}");
                    }
                    other => panic!("{command}: {other:?}"),
                }
                assert_eq!(events, [], "{command}");
                self.pass();
            }
        }
    }

    fn take(&mut self, bits: u64) {
        let mut rest = bits;
        let mut roll = |sides: usize| {
            let rolled = rest % sides as u64;
            rest /= sides as u64;
            rolled as usize
        };
        let who = roll(3);
        match roll(12) {
            0 => {
                let grants: Vec<_> = (0..roll(4))
                    .map(|_| (roll(PATHS.len()), Right::ALL[roll(5)]))
                    .collect();
                self.manage(set_role(who, &grants));
                self.rules.grants[who] = grants;
            }
            1 => {
                let everything: Vec<_> = PATHS.iter().zip(0..).map(|(_, at)| (at, Right::Write)).collect();
                self.manage(set_role(who, &everything));
                self.rules.grants[who] = everything;
            }
            2 => {
                match self.rules.revoked[who] {
                    true => self.manage(new_token(who)),
                    false => self.manage(AccessCommand::RevokeToken(token(who))),
                }
                self.rules.revoked[who] = !self.rules.revoked[who];
            }
            3 => {
                let restored = restore(draw(&mut self.store, 1 + roll(5)));
                assert_eq!(restored.digest(), self.store.digest());
                self.store = restored;
            }
            4..6 => {
                let ops = (0..1 + roll(3)).map(|_| op(roll(9), roll(PATHS.len()))).collect();
                self.ask(who, ops, true);
            }
            _ => self.ask(who, vec![op(roll(9), roll(PATHS.len()))], false),
        }
    }
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn allowed_commands_behave_as_in_an_open_state(steps in proptest::collection::vec(any::<u64>(), STEPS)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            prop_assert_eq!(world.store.zxid(), world.twin.zxid());
            prop_assert_eq!(world.store.node_count(), world.twin.node_count());
        }
        for path in PATHS {
            let path = ZPath::parse(path).expect("it is a path");
            prop_assert_eq!(world.store.get(&path), world.twin.get(&path));
        }
    }
}
