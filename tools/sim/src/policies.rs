//! Simulated operator who secures the cluster and changes the right to lock, in some seeds. The simulated
//! clients prove nothing, so the role `anonymous` decides for all of them. It loses the right to one lock for
//! a while, and then to another one.

use znode_store::{
    AccessCommand, Command, Identities, Identity, LockName, PathGrant, Request, Right, Rights, RoleName,
    Store, TokenHash, TokenId, ZPath,
};

use crate::clients;
use crate::dice::Dice;
use crate::invariants::Check;
use crate::time::{MILLI, Micros};
use crate::world::World;

/// Seeds of a thousand with an operator.
const SEEDS: u64 = 300;

/// Time between two changes.
const EVERY: std::ops::Range<Micros> = 300 * MILLI..4_000 * MILLI;

/// Operator of one seed.
pub struct Operator {
    dice: Dice,
    /// Time of the next change.
    next: Micros,
}

impl Operator {
    /// Returns the operator of a seed, if it has one. It has dice of its own, so the other seeds stay the runs that they were.
    pub fn draw(seed: u64) -> Option<Self> {
        let mut dice = Dice::new(seed, "policies");
        dice.chance(SEEDS).then(|| {
            let next = dice.between(EVERY);
            Self { dice, next }
        })
    }

    /// Returns the next change.
    fn change(&mut self, is_secured: bool) -> AccessCommand {
        let all = clients::locks();
        // Every other change forbids nothing.
        let forbidden = self.dice.chance(500).then(|| self.dice.pick(&all).clone());
        let grants = grants(&all, forbidden.as_ref());
        match is_secured {
            true => AccessCommand::SetRole {
                role: RoleName::anonymous(),
                grants,
            },
            false => AccessCommand::Secure {
                token: TokenId([1; 16]),
                hash: TokenHash([0; 32]),
                description: "the operator's".into(),
                anonymous: Some(grants),
            },
        }
    }
}

/// Grants `read` and `write` everywhere, and `lock` for all locks but one.
fn grants(all: &[LockName], forbidden: Option<&LockName>) -> Vec<PathGrant> {
    let everything = PathGrant {
        prefix: ZPath::root(),
        rights: Rights::of([Right::Read, Right::Write]),
    };
    let allowed = all.iter().filter(|lock| Some(*lock) != forbidden);
    let locks = allowed.map(|lock| PathGrant::of_locks(lock, Rights::of([Right::Lock])));
    std::iter::once(everything).chain(locks).collect()
}

impl World {
    /// Proposes the operator's next change at the leader, when it is due.
    pub(crate) fn change_policies(&mut self) {
        let now = self.now();
        let leader = self.watch.leader();
        let Some(operator) = self.operator.as_mut().filter(|operator| operator.next <= now) else {
            return;
        };
        operator.next = now + operator.dice.between(EVERY);
        let Some(leader) = leader else { return };
        let Some(node) = self.machines[leader].node() else {
            return;
        };
        let change = operator.change(node.read(Store::is_secured));
        let request = Request {
            session: None,
            request_id: None,
            caller: Identities::new([Identity::Super]),
            command: Command::Access(change),
        };
        self.machines[leader].propose(request);
    }
}

/// Checks that the role allows the lock at the position of its grant. (A command that changes the role grants no lock itself.)
pub fn may_lock(lock: &LockName, store: &Store) -> Check {
    if store.lets_waits_outlive_rights() {
        return Ok(());
    }
    let view = store.seen_by(&Identities::none()).may(Right::Lock, lock.znode());
    view.map_err(|refusal| format!("a contender of {lock} was granted it: {refusal}"))
}
