//! The places behind a door, and who has them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// How many bits of an address of IPv6 tell one subscriber from another.
const SUBSCRIBER_BITS: u32 = 64;

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// In all.
    pub in_all: usize,
    /// Of one address.
    pub of_an_address: usize,
}

/// Bounds that can be changed while a door is open. Cheap to clone; all clones are the same.
#[derive(Debug, Clone)]
pub struct LiveBounds {
    in_all: Arc<AtomicUsize>,
    of_an_address: Arc<AtomicUsize>,
}

impl LiveBounds {
    /// What they are now.
    pub fn get(&self) -> Bounds {
        Bounds {
            in_all: self.in_all.load(Ordering::Relaxed),
            of_an_address: self.of_an_address.load(Ordering::Relaxed),
        }
    }

    /// What they are from now on. Who is in stays in, also where there are more than that now.
    ///
    /// # Panics
    ///
    /// If no connection may be let in at all.
    pub fn set(&self, bounds: Bounds) {
        bounds.let_somebody_in();
        self.in_all.store(bounds.in_all, Ordering::Relaxed);
        self.of_an_address.store(bounds.of_an_address, Ordering::Relaxed);
    }
}

impl From<Bounds> for LiveBounds {
    fn from(bounds: Bounds) -> Self {
        bounds.let_somebody_in();
        Self {
            in_all: Arc::new(bounds.in_all.into()),
            of_an_address: Arc::new(bounds.of_an_address.into()),
        }
    }
}

impl Bounds {
    fn let_somebody_in(self) {
        assert!(
            self.in_all > 0 && self.of_an_address > 0,
            "a door that lets nobody in"
        );
    }
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// All are taken.
    Full,
    /// The caller's address has as many as one may have.
    TooMany,
}

#[derive(Debug, Default)]
struct Taken {
    in_all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// See the module. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Places {
    bounds: LiveBounds,
    taken: Arc<Mutex<Taken>>,
}

impl Places {
    /// All of them free.
    pub fn new(bounds: impl Into<LiveBounds>) -> Self {
        Self {
            bounds: bounds.into(),
            taken: Arc::default(),
        }
    }

    /// How many there are.
    pub fn bounds(&self) -> &LiveBounds {
        &self.bounds
    }

    /// Takes one for a caller from `address`.
    pub fn take(&self, address: IpAddr) -> Result<Place, NoPlace> {
        let subscriber = subscriber(address);
        let bounds = self.bounds.get();
        let mut taken = self.taken.lock();
        if taken.in_all >= bounds.in_all {
            return Err(NoPlace::Full);
        }
        let own = taken.by_address.entry(subscriber).or_default();
        if *own >= bounds.of_an_address {
            // It has some, so nothing is left behind that would have to be tidied up: the bound is at least one.
            return Err(NoPlace::TooMany);
        }
        *own += 1;
        taken.in_all += 1;
        let places = self.clone();
        Ok(Place { places, subscriber })
    }
}

/// A place that is taken. Given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    subscriber: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.in_all -= 1;
        if let Entry::Occupied(mut own) = taken.by_address.entry(self.subscriber) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// What counts as one address: of IPv6 a network of 64 bits, because whoever has one address of it has all.
pub fn subscriber(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let network = address.to_bits() >> SUBSCRIBER_BITS << SUBSCRIBER_BITS;
            Ipv6Addr::from_bits(network).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_takes_all_places() {
        let places = Places::new(Bounds {
            in_all: 3,
            of_an_address: 2,
        });
        let take = |address: &str| places.take(address.parse().unwrap());
        let first = take("192.0.2.1").unwrap();
        let _mapped = take("::ffff:192.0.2.1").unwrap();
        assert_eq!(take("192.0.2.1").unwrap_err(), NoPlace::TooMany);
        let _other = take("192.0.2.2").unwrap();
        assert_eq!(take("192.0.2.3").unwrap_err(), NoPlace::Full);
        drop(first);
        assert_eq!(places.taken.lock().in_all, 2);
        assert!(take("192.0.2.1").is_ok());
    }

    #[test]
    fn bounds_change_while_people_are_in() {
        let bounds = LiveBounds::from(Bounds {
            in_all: 2,
            of_an_address: 2,
        });
        let places = Places::new(bounds.clone());
        let take = |address: &str| places.take(address.parse().unwrap());
        let in_all = |in_all| {
            bounds.set(Bounds {
                in_all,
                of_an_address: 2,
            });
        };
        let first = take("192.0.2.1").unwrap();
        let _second = take("192.0.2.2").unwrap();
        assert_eq!(take("192.0.2.3").unwrap_err(), NoPlace::Full);
        in_all(3);
        let _third = take("192.0.2.3").unwrap();
        in_all(2);
        drop(first);
        assert_eq!(take("192.0.2.4").unwrap_err(), NoPlace::Full, "two are in still");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let places = Places::new(Bounds {
            in_all: 9,
            of_an_address: 1,
        });
        let take = |address: &str| places.take(address.parse().unwrap());
        let first = take("2001:db8::1").unwrap();
        assert_eq!(take("2001:db8::ffff:2").unwrap_err(), NoPlace::TooMany);
        assert!(take("2001:db8:0:1::1").is_ok());
        drop(first);
        assert!(
            places.taken.lock().by_address.is_empty(),
            "nobody is remembered who is gone"
        );
    }
}
