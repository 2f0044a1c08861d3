//! Locks and semaphores the way clients of ZooKeeper make them out of znodes: request for request what Curator's recipes send
//! (`InterProcessMutex`, `InterProcessReadWriteLock`, `InterProcessSemaphoreV2`).

use anyhow::Context;
use bytes::Bytes;
use cli_support::api_client::request_id;
use zk_wire::{ErrorCode, Request};

use super::client::{create_sequential, created, delete, done, names, set_path};
use super::session::{Session, refused};

/// In the name of a contender that wants to share (Curator's).
const READER: &str = "__READ__";

/// In the name of one that does not.
const WRITER: &str = "__WRIT__";

/// For whom a lock is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Exclusive,
    /// With others of its kind.
    Shared,
}

/// A lock. Contenders are ephemeral sequential znodes; each watches the one before it.
pub(crate) struct Mutex {
    kind: Kind,
    home: String,
    create: Request,
    children: Request,
    delete: Request,
}

impl Mutex {
    /// The lock whose contenders are below this znode.
    pub fn new(home: &str, kind: Kind, data: Bytes) -> Self {
        let what = match kind {
            Kind::Exclusive => "lock-",
            Kind::Shared => READER,
        };
        // The name that Curator gives to its contenders.
        let contender = format!("{home}/_c_{}-{what}", uuid(&request_id()));
        Self {
            kind,
            home: home.to_owned(),
            create: create_sequential(contender, data),
            children: Request::GetChildren {
                path: home.to_owned(),
                watch: false,
            },
            delete: delete(String::new()),
        }
    }

    /// Waits for it as long as it takes.
    pub async fn acquire(&mut self, session: &mut Session) -> anyhow::Result<()> {
        let contender = created(session.call(&self.create).await?)?;
        loop {
            let queue = names(session.call(&self.children).await?)?;
            let Some(before) = stands_before(&contender, self.kind, &queue) else {
                set_path(&mut self.delete, contender);
                return Ok(());
            };
            let before = format!("{}/{before}", self.home);
            let watch = Request::GetData {
                path: before.clone(),
                watch: true,
            };
            match session.call(&watch).await? {
                Ok(_) => session.wait_for(&before).await?,
                // It has gone in the meantime.
                Err(ErrorCode::NO_NODE) => {}
                Err(code) => return refused(code).context("watching the contender before"),
            }
        }
    }

    /// Gives back what was acquired.
    pub async fn release(&mut self, session: &mut Session) -> anyhow::Result<()> {
        done(session.call(&self.delete).await?)
    }
}

/// A semaphore: a lock, and a lease for each who is let in. Only who has the lock looks whether there is room for its lease.
pub(crate) struct Semaphore {
    lock: Mutex,
    permits: usize,
    leases: String,
    create: Request,
    children: Request,
    delete: Request,
}

impl Semaphore {
    /// Of so many permits. `locks` and `leases` are there below this znode.
    pub fn new(home: &str, permits: u32, data: Bytes) -> Self {
        let leases = format!("{home}/leases");
        let lease = format!("{leases}/_c_{}-lease-", uuid(&request_id()));
        Self {
            lock: Mutex::new(&format!("{home}/locks"), Kind::Exclusive, data.clone()),
            permits: permits as usize,
            create: create_sequential(lease, data),
            children: Request::GetChildren {
                path: leases.clone(),
                watch: true,
            },
            leases,
            delete: delete(String::new()),
        }
    }

    /// What lies below a semaphore's znode.
    pub fn parts(home: &str) -> [String; 2] {
        ["locks", "leases"].map(|part| format!("{home}/{part}"))
    }

    /// Waits for a permit as long as it takes.
    pub async fn acquire(&mut self, session: &mut Session) -> anyhow::Result<()> {
        // The last look at the leases has left a watch, whether it was waited for or not.
        session.forget_fired();
        self.lock.acquire(session).await?;
        set_path(&mut self.delete, created(session.call(&self.create).await?)?);
        while names(session.call(&self.children).await?)?.len() > self.permits {
            session.wait_for(&self.leases).await?;
        }
        self.lock.release(session).await
    }

    /// Gives it back.
    pub async fn release(&mut self, session: &mut Session) -> anyhow::Result<()> {
        done(session.call(&self.delete).await?)
    }
}

/// The name of the contender that another one has to wait for; none: it has the lock.
fn stands_before<'q>(contender: &str, kind: Kind, queue: &'q [String]) -> Option<&'q str> {
    let own = number_of(contender);
    queue
        .iter()
        .map(String::as_str)
        .filter(|other| number_of(other) < own)
        .filter(|other| kind == Kind::Exclusive || other.contains(WRITER))
        .max_by_key(|other| number_of(other))
}

/// The ten digits that ZooKeeper puts behind a sequential znode's name. They are compared as texts, as the recipes do.
fn number_of(name: &str) -> Option<&str> {
    const DIGITS: usize = 10;
    name.get(name.len().checked_sub(DIGITS)?..)
}

/// 32 hexadecimal digits the way UUIDs are written.
fn uuid(digits: &str) -> String {
    let (a, rest) = digits.split_at(8);
    let (b, rest) = rest.split_at(4);
    let (c, rest) = rest.split_at(4);
    let (d, e) = rest.split_at(4);
    format!("{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_are_named_as_curator_names_them() {
        let lock = Mutex::new("/locks/mine", Kind::Exclusive, Bytes::new());
        let Request::Create { path, flags, .. } = lock.create else {
            panic!("the recipe begins with a create");
        };
        let guid = path.strip_prefix("/locks/mine/_c_").unwrap();
        let guid = guid.strip_suffix("-lock-").unwrap();
        let groups: Vec<usize> = guid.split('-').map(str::len).collect();
        assert_eq!((groups, flags), (vec![8, 4, 4, 4, 12], 3));
    }

    #[test]
    fn each_waits_for_the_one_right_before_it_whatever_stands_before_the_number() {
        let queue = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let own = "/locks/mine/_c_b-lock-0000000004";
        let before = |names: &[&str]| stands_before(own, Kind::Exclusive, &queue(names)).map(str::to_owned);
        assert_eq!(before(&["_c_b-lock-0000000004"]), None);
        assert_eq!(before(&["_c_a-lock-0000000005", "_c_b-lock-0000000004"]), None);
        assert_eq!(
            before(&[
                "_c_z-lock-0000000001",
                "_c_c-lock-0000000003",
                "_c_b-lock-0000000004"
            ])
            .unwrap(),
            "_c_c-lock-0000000003"
        );
    }

    #[test]
    fn who_shares_waits_for_who_does_not() {
        let queue = [
            "_c_a-__WRIT__0000000001",
            "_c_b-__READ__0000000002",
            "_c_c-__READ__0000000003",
        ]
        .map(str::to_owned);
        let before = stands_before("/l/_c_c-__READ__0000000003", Kind::Shared, &queue);
        assert_eq!(before, Some("_c_a-__WRIT__0000000001"));
        assert_eq!(
            stands_before("/l/_c_c-__READ__0000000003", Kind::Shared, &queue[1..]),
            None
        );
    }
}
