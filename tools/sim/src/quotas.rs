//! Simulated administrator who sets quotas of the namespaces that clients use, in some seeds. Each lock of the clients is in a namespace of
//! its own. The invariant counts the usage of each namespace again at every position.

use znode_store::{Command, Identities, Identity, NamespaceName, Quotas, Request, Store};

use crate::clients;
use crate::dice::Dice;
use crate::invariants::Check;
use crate::time::{MILLI, Micros};
use crate::world::World;

/// Seeds of a thousand with an administrator.
const SEEDS: u64 = 400;

/// Time between two changes.
const EVERY: std::ops::Range<Micros> = 300 * MILLI..3_000 * MILLI;

/// Namespaces of znodes. They get no limits, because clients count on what they create there.
const OF_ZNODES: [&str; 3] = ["unique", "mine", "r0"];

/// Administrator of one seed.
pub struct Administrator {
    dice: Dice,
    /// Time of the next change.
    next: Micros,
}

impl Administrator {
    /// Returns the administrator of a seed, if it has one. It has dice of its own, so the other seeds stay the runs that they were.
    pub fn draw(seed: u64) -> Option<Self> {
        let mut dice = Dice::new(seed, "quotas");
        dice.chance(SEEDS).then(|| {
            let next = dice.between(EVERY);
            Self { dice, next }
        })
    }

    /// Returns the next change.
    fn change(&mut self) -> Command {
        let dice = &mut self.dice;
        let (name, quotas) = match dice.chance(300) {
            true => (
                NamespaceName::parse(dice.pick::<&str>(&OF_ZNODES)),
                Quotas::default(),
            ),
            false => {
                let locks = clients::locks();
                let lock = dice.pick(&locks).as_str().to_owned();
                (NamespaceName::parse(&lock), limits(dice))
            }
        };
        Command::SetQuotas {
            namespace: name.expect("the names of the clients are legal"),
            quotas: (!dice.chance(100)).then_some(quotas),
        }
    }
}

/// Draws limits, of which some refuse everything.
fn limits(dice: &mut Dice) -> Quotas {
    let mut limit = |most| dice.chance(300).then(|| dice.between(0..most));
    Quotas {
        sessions: limit(4),
        locks: limit(2),
        znodes: limit(6),
        bytes: limit(800),
        requests_per_second: None,
    }
}

impl World {
    /// Proposes the administrator's next change at the leader, when it is due.
    pub(crate) fn change_quotas(&mut self) {
        let now = self.now();
        let leader = self.watch.leader();
        let Some(administrator) = self.administrator.as_mut().filter(|one| one.next <= now) else {
            return;
        };
        administrator.next = now + administrator.dice.between(EVERY);
        let command = administrator.change();
        let Some(leader) = leader else { return };
        if self.machines[leader].node().is_none() {
            return;
        }
        let request = Request {
            session: None,
            request_id: None,
            caller: Identities::new([Identity::Super]),
            command,
        };
        self.machines[leader].propose(request);
    }
}

/// Checks that the usage of each namespace with quotas is what a visit of the tree finds.
pub fn check_usage(store: &Store) -> Check {
    for view in store.namespaces() {
        let (counted, found) = (view.usage, store.recounted_usage(&view.namespace));
        if counted != found {
            let name = &view.namespace;
            return Err(format!(
                "namespace {name} uses {found:?}, and was counted as {counted:?}"
            ));
        }
    }
    Ok(())
}
