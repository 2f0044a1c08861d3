//! Connection limits, in total and per client address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Prefix length of an IPv6 address that identifies a client's network.
const IPV6_NETWORK_BITS: u32 = 64;

/// Maximum number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In total.
    pub total: usize,
    /// Per client address.
    pub per_address: usize,
}

/// Connection limits that can be changed while a listener runs. Cheap to clone; all clones share the values.
#[derive(Debug, Clone)]
pub struct LiveConnectionLimits {
    total: Arc<AtomicUsize>,
    per_address: Arc<AtomicUsize>,
}

impl LiveConnectionLimits {
    /// Returns the current limits.
    pub fn get(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: self.total.load(Ordering::Relaxed),
            per_address: self.per_address.load(Ordering::Relaxed),
        }
    }

    /// Sets the limits. Open connections stay open, even above the new limits.
    ///
    /// # Panics
    ///
    /// If a limit is zero, since then no connection could be admitted.
    pub fn set(&self, limits: ConnectionLimits) {
        limits.assert_admits_connections();
        self.total.store(limits.total, Ordering::Relaxed);
        self.per_address.store(limits.per_address, Ordering::Relaxed);
    }
}

impl From<ConnectionLimits> for LiveConnectionLimits {
    fn from(limits: ConnectionLimits) -> Self {
        limits.assert_admits_connections();
        Self {
            total: Arc::new(limits.total.into()),
            per_address: Arc::new(limits.per_address.into()),
        }
    }
}

impl ConnectionLimits {
    fn assert_admits_connections(self) {
        assert!(
            self.total > 0 && self.per_address > 0,
            "connection limits must admit at least one connection"
        );
    }
}

/// Limit that rejects a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitReached {
    /// The total limit is reached.
    Total,
    /// The limit of the client's address is reached.
    PerAddress,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Admission control of connections. Cheap to clone; all clones share the count.
#[derive(Debug, Clone)]
pub struct ConnectionLimiter {
    limits: LiveConnectionLimits,
    open: Arc<Mutex<Open>>,
}

impl ConnectionLimiter {
    /// Creates a limiter without open connections.
    pub fn new(limits: impl Into<LiveConnectionLimits>) -> Self {
        Self {
            limits: limits.into(),
            open: Arc::default(),
        }
    }

    /// Returns the limits.
    pub fn limits(&self) -> &LiveConnectionLimits {
        &self.limits
    }

    /// Admits a connection from `address`, or returns the limit that rejects it.
    pub fn try_acquire(&self, address: IpAddr) -> Result<ConnectionPermit, LimitReached> {
        let network = client_network(address);
        let limits = self.limits.get();
        let mut open = self.open.lock();
        if open.total >= limits.total {
            return Err(LimitReached::Total);
        }
        let own = open.by_address.entry(network).or_default();
        if *own >= limits.per_address {
            // The address has connections, as its limit is at least one: the entry was not created just now
            // and needs no removal.
            return Err(LimitReached::PerAddress);
        }
        *own += 1;
        open.total += 1;
        let limiter = self.clone();
        Ok(ConnectionPermit { limiter, network })
    }
}

/// Permit of one admitted connection; returned when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    limiter: ConnectionLimiter,
    network: IpAddr,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.limiter.open.lock();
        open.total -= 1;
        if let Entry::Occupied(mut own) = open.by_address.entry(self.network) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// Returns the address that counts as one client: an IPv4 address itself, or the 64-bit network of an IPv6
/// address, because the owner of one address of the network usually controls all of them.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let network = address.to_bits() >> IPV6_NETWORK_BITS << IPV6_NETWORK_BITS;
            Ipv6Addr::from_bits(network).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_exceed_its_limit() {
        let limiter = ConnectionLimiter::new(ConnectionLimits {
            total: 3,
            per_address: 2,
        });
        let take = |address: &str| limiter.try_acquire(address.parse().unwrap());
        let first = take("192.0.2.1").unwrap();
        let _mapped = take("::ffff:192.0.2.1").unwrap();
        assert_eq!(take("192.0.2.1").unwrap_err(), LimitReached::PerAddress);
        let _other = take("192.0.2.2").unwrap();
        assert_eq!(take("192.0.2.3").unwrap_err(), LimitReached::Total);
        drop(first);
        assert_eq!(limiter.open.lock().total, 2);
        assert!(take("192.0.2.1").is_ok());
    }

    #[test]
    fn limits_change_while_connections_are_open() {
        let limits = LiveConnectionLimits::from(ConnectionLimits {
            total: 2,
            per_address: 2,
        });
        let limiter = ConnectionLimiter::new(limits.clone());
        let take = |address: &str| limiter.try_acquire(address.parse().unwrap());
        let set_total = |total| {
            limits.set(ConnectionLimits {
                total,
                per_address: 2,
            });
        };
        let first = take("192.0.2.1").unwrap();
        let _second = take("192.0.2.2").unwrap();
        assert_eq!(take("192.0.2.3").unwrap_err(), LimitReached::Total);
        set_total(3);
        let _third = take("192.0.2.3").unwrap();
        set_total(2);
        drop(first);
        assert_eq!(
            take("192.0.2.4").unwrap_err(),
            LimitReached::Total,
            "two connections are still open"
        );
    }

    #[test]
    fn ipv6_network_counts_as_one_address() {
        let limiter = ConnectionLimiter::new(ConnectionLimits {
            total: 9,
            per_address: 1,
        });
        let take = |address: &str| limiter.try_acquire(address.parse().unwrap());
        let first = take("2001:db8::1").unwrap();
        assert_eq!(take("2001:db8::ffff:2").unwrap_err(), LimitReached::PerAddress);
        assert!(take("2001:db8:0:1::1").is_ok());
        drop(first);
        assert!(
            limiter.open.lock().by_address.is_empty(),
            "an address without connections leaves no entry"
        );
    }
}
