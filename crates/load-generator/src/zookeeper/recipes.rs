//! Locks and semaphores as ZooKeeper clients implement them with znodes, with the same requests as Curator's
//! recipes (`InterProcessMutex`, `InterProcessReadWriteLock`, `InterProcessSemaphoreV2`).

use anyhow::Context;
use bytes::Bytes;
use cli_support::api_client::request_id;
use zk_wire::{ErrorCode, Request};

use super::client::{create_sequential, created, delete, done, names, set_path};
use super::session::{Session, refused};

/// Marker in the name of a shared contender (Curator's).
const READER: &str = "__READ__";

/// Marker in the name of an exclusive contender.
const WRITER: &str = "__WRIT__";

/// Mode of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Exclusive,
    /// Shared with other holders of this kind.
    Shared,
}

/// Lock recipe. Contenders are ephemeral sequential znodes; each watches its predecessor.
pub(crate) struct Mutex {
    kind: Kind,
    home: String,
    create: Request,
    children: Request,
    delete: Request,
}

impl Mutex {
    /// Creates the recipe for a lock whose contenders are below this znode.
    pub fn new(home: &str, kind: Kind, data: Bytes) -> Self {
        let what = match kind {
            Kind::Exclusive => "lock-",
            Kind::Shared => READER,
        };
        // The naming scheme of Curator's contenders.
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

    /// Acquires the lock, and waits without a limit.
    pub async fn acquire(&mut self, session: &mut Session) -> anyhow::Result<()> {
        let contender = created(session.call(&self.create).await?)?;
        loop {
            let queue = names(session.call(&self.children).await?)?;
            let Some(predecessor) = predecessor(&contender, self.kind, &queue) else {
                set_path(&mut self.delete, contender);
                return Ok(());
            };
            let predecessor = format!("{}/{predecessor}", self.home);
            let watch = Request::GetData {
                path: predecessor.clone(),
                watch: true,
            };
            match session.call(&watch).await? {
                Ok(_) => session.wait_for(&predecessor).await?,
                // The predecessor has left in the meantime.
                Err(ErrorCode::NO_NODE) => {}
                Err(code) => return refused(code).context("watching the predecessor"),
            }
        }
    }

    /// Releases the lock.
    pub async fn release(&mut self, session: &mut Session) -> anyhow::Result<()> {
        done(session.call(&self.delete).await?)
    }
}

/// Semaphore recipe: a lock, and a lease for each holder. Only the holder of the lock checks whether there is
/// a permit for its lease.
pub(crate) struct Semaphore {
    lock: Mutex,
    permits: usize,
    leases: String,
    create: Request,
    children: Request,
    delete: Request,
}

impl Semaphore {
    /// Creates the recipe for a semaphore with this number of permits. `locks` and `leases` exist below this
    /// znode.
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

    /// Returns the znodes below a semaphore's znode.
    pub fn parts(home: &str) -> [String; 2] {
        ["locks", "leases"].map(|part| format!("{home}/{part}"))
    }

    /// Acquires a permit, and waits without a limit.
    pub async fn acquire(&mut self, session: &mut Session) -> anyhow::Result<()> {
        // The last read of the leases has left a watch, which may have fired.
        session.forget_fired();
        self.lock.acquire(session).await?;
        set_path(&mut self.delete, created(session.call(&self.create).await?)?);
        while names(session.call(&self.children).await?)?.len() > self.permits {
            session.wait_for(&self.leases).await?;
        }
        self.lock.release(session).await
    }

    /// Releases the permit.
    pub async fn release(&mut self, session: &mut Session) -> anyhow::Result<()> {
        done(session.call(&self.delete).await?)
    }
}

/// Returns the contender that this one has to wait for; `None` if it holds the lock.
fn predecessor<'q>(contender: &str, kind: Kind, queue: &'q [String]) -> Option<&'q str> {
    let own = number_of(contender);
    queue
        .iter()
        .map(String::as_str)
        .filter(|other| number_of(other) < own)
        .filter(|other| kind == Kind::Exclusive || other.contains(WRITER))
        .max_by_key(|other| number_of(other))
}

/// Returns the ten digits that ZooKeeper appends to a sequential znode's name. They are compared as text, as
/// in the recipes.
fn number_of(name: &str) -> Option<&str> {
    const DIGITS: usize = 10;
    name.get(name.len().checked_sub(DIGITS)?..)
}

/// Formats 32 hexadecimal digits as a UUID.
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
    fn contenders_have_curators_names() {
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
    fn exclusive_contender_waits_for_its_predecessor_by_number() {
        let queue = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let own = "/locks/mine/_c_b-lock-0000000004";
        let before = |names: &[&str]| predecessor(own, Kind::Exclusive, &queue(names)).map(str::to_owned);
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
    fn shared_contender_waits_for_exclusive_ones_only() {
        let queue = [
            "_c_a-__WRIT__0000000001",
            "_c_b-__READ__0000000002",
            "_c_c-__READ__0000000003",
        ]
        .map(str::to_owned);
        let before = predecessor("/l/_c_c-__READ__0000000003", Kind::Shared, &queue);
        assert_eq!(before, Some("_c_a-__WRIT__0000000001"));
        assert_eq!(
            predecessor("/l/_c_c-__READ__0000000003", Kind::Shared, &queue[1..]),
            None
        );
    }
}
