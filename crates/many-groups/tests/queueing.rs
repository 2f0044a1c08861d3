//! The model's queues against the formulas for waiting times: random arrivals at one server and at two, whose work takes random times
//! or always the same.

use fastrand::Rng;
use many_groups::calendar::Calendar;
use many_groups::names::exponential;
use many_groups::station::Station;
use many_groups::{Nanos, SECOND};

/// So many customers make a mean that is known to some per cent.
const CUSTOMERS: u64 = 400_000;

/// A simulated mean may be off by so much.
const MARGIN: f64 = 0.04;

/// The mean work of one customer, in seconds.
const WORK: f64 = 0.001;

enum Event {
    Comes,
    Goes(Nanos),
}

/// The mean time from coming to going, in units of the work.
fn time_in_system(servers: usize, load: f64, work: impl Fn(&mut Rng) -> f64) -> f64 {
    let mut random = Rng::with_seed(7);
    let mut calendar = Calendar::new();
    let mut station = Station::new(servers);
    let nanos = |seconds: f64| (seconds * SECOND as f64) as Nanos;
    let between = WORK / load / servers as f64;
    let (mut came, mut gone, mut sum) = (0, 0, 0);
    calendar.after(0, Event::Comes);
    while let Some(event) = calendar.advance() {
        let begun = match event {
            Event::Comes => {
                came += 1;
                if came < CUSTOMERS {
                    calendar.after(nanos(exponential(&mut random, between)), Event::Comes);
                }
                station.arrive(nanos(work(&mut random)), calendar.now())
            }
            Event::Goes(came) => {
                gone += 1;
                sum += calendar.now() - came;
                station.leave()
            }
        };
        if let Some((takes, came)) = begun {
            calendar.after(takes, Event::Goes(came));
        }
    }
    assert_eq!(gone, CUSTOMERS, "everybody is served");
    sum as f64 / gone as f64 / SECOND as f64 / WORK
}

fn check(name: &str, simulated: f64, expected: f64) {
    let off = (simulated / expected - 1.0).abs();
    assert!(off < MARGIN, "{name}: {simulated:.3} in place of {expected:.3}");
}

#[test]
fn random_work_at_one_server() {
    for load in [0.3, 0.6, 0.8] {
        let simulated = time_in_system(1, load, |random| exponential(random, WORK));
        check(&format!("M/M/1 at {load}"), simulated, 1.0 / (1.0 - load));
    }
}

#[test]
fn equal_work_at_one_server() {
    for load in [0.3, 0.6, 0.8] {
        let simulated = time_in_system(1, load, |_| WORK);
        // Pollaczek and Khinchine: half of the waiting that random work has.
        let expected = 1.0 + load / (2.0 * (1.0 - load));
        check(&format!("M/D/1 at {load}"), simulated, expected);
    }
}

#[test]
fn random_work_at_two_servers() {
    for load in [0.3f64, 0.6, 0.8] {
        let simulated = time_in_system(2, load, |random| exponential(random, WORK));
        // Erlang's formula with two servers comes to this.
        check(&format!("M/M/2 at {load}"), simulated, 1.0 / (1.0 - load * load));
    }
}
