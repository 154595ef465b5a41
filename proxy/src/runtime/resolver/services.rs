//! Who serves a name, in what order and how often (SRV, RFC 2782).
//!
//! Calls go to the targets of the lowest priority that have addresses. Among them the weights hold: each address takes
//! part in the order of endpoints as often as its weight says, spread evenly, so that taking endpoints in turn is all
//! that is left to do. With weights 3 and 1 the order is `a a b a`.
//!
//! - Several addresses of one target share its weight.
//! - Weights are brought down by what divides them all. What still needs more than [`SLOTS`] places is rounded to that
//!   many, and everyone keeps one: so a weight of 0 beside others is "a very small chance", as the RFC has it.
//!
//! Not done: a priority whose targets have addresses and fail is not left for the next one. Breakers and ejection take
//! endpoints out, and which of two regions to fall back to is a policy of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::answer::{LONGEST, ResolveError, SHORTEST};

/// Places in an order that cannot be exact.
const SLOTS: u64 = 128;
/// Addresses in an order. Making one takes time by the square of this.
const MOST_ADDRESSES: usize = 1024;
/// Targets that are looked at. With more, which cannot be told to callers anyway, those of the lowest priority count.
const MOST_TARGETS: usize = 256;

/// One target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The lowest is served first.
    pub priority: u16,
    /// Its share among those of its priority.
    pub weight: u16,
    /// A name of its own.
    pub target: Arc<str>,
    /// Where it listens.
    pub port: u16,
}

/// What an SRV name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Services {
    /// By priority, lowest first; never none.
    pub groups: Vec<Vec<Service>>,
    /// How long this may be used without asking again.
    pub holds: Duration,
}

impl Services {
    /// These targets, for `ttl` within bounds.
    ///
    /// # Errors
    /// `NoAddress` when there are none.
    pub fn new(mut targets: Vec<Service>, ttl: Duration) -> Result<Self, ResolveError> {
        // Name servers send records in any order. Ours is the same each time, so that endpoints stay where they were.
        targets.sort_by(|a, b| (a.priority, &a.target, a.port).cmp(&(b.priority, &b.target, b.port)));
        targets.dedup();
        targets.truncate(MOST_TARGETS);
        let mut groups: BTreeMap<u16, Vec<Service>> = BTreeMap::new();
        for target in targets {
            groups.entry(target.priority).or_default().push(target);
        }
        if groups.is_empty() {
            return Err(ResolveError::NoAddress);
        }
        Ok(Self { groups: groups.into_values().collect(), holds: ttl.clamp(SHORTEST, LONGEST) })
    }
}

/// The addresses of one target with its port, and the weight that they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighted {
    /// As written, 0 included.
    pub weight: u16,
    /// Never none.
    pub addresses: Vec<SocketAddr>,
}

/// An order of endpoints in which each comes as often as its weight says. See the module documentation.
#[must_use]
pub fn in_order(targets: &[Weighted]) -> Vec<SocketAddr> {
    let mut shares: Vec<(SocketAddr, u64)> = Vec::new();
    // Counts up to 10 divide this, so that shares of the usual weights stay exact.
    let share = |target: &Weighted| u64::from(target.weight) * 2520 / target.addresses.len() as u64;
    let all = targets.iter().flat_map(|target| target.addresses.iter().map(move |address| (*address, share(target))));
    for (address, share) in all.take(MOST_ADDRESSES) {
        // One address under two names is one endpoint.
        match shares.iter_mut().find(|(known, _)| *known == address) {
            Some((_, known)) => *known += share,
            None => shares.push((address, share)),
        }
    }
    spread(&places(&shares))
}

/// How often each comes.
fn places(shares: &[(SocketAddr, u64)]) -> Vec<(SocketAddr, u64)> {
    let sum: u64 = shares.iter().map(|(_, share)| share).sum();
    let divisor = shares.iter().fold(0, |divisor, (_, share)| gcd(divisor, *share)).max(1);
    let exact = sum / divisor <= SLOTS && shares.iter().all(|(_, share)| *share > 0);
    let place = |share: u64| match sum {
        // Nobody said anything about any of them.
        0 => 1,
        _ if exact => share / divisor,
        _ => ((share * SLOTS + sum / 2) / sum).max(1),
    };
    shares.iter().map(|(address, share)| (*address, place(*share))).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The smooth weighted round robin: whoever is furthest behind its share comes next, the first of equals.
fn spread(places: &[(SocketAddr, u64)]) -> Vec<SocketAddr> {
    let sum: i64 = places.iter().map(|(_, count)| count.cast_signed()).sum();
    let mut behind = vec![0_i64; places.len()];
    let mut order = Vec::new();
    for _ in 0..sum {
        let mut next = 0;
        for (at, (_, count)) in places.iter().enumerate() {
            behind[at] += count.cast_signed();
            if behind[at] > behind[next] {
                next = at;
            }
        }
        behind[next] -= sum;
        order.push(places[next].0);
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_resilience::Random;

    use super::*;

    fn target(weight: u16, last: impl IntoIterator<Item = u8>) -> Weighted {
        Weighted { weight, addresses: last.into_iter().map(|last| ([10, 0, 0, last], 80).into()).collect() }
    }

    fn order(targets: &[Weighted]) -> Vec<u8> {
        let last = |address: SocketAddr| match address.ip() {
            std::net::IpAddr::V4(v4) => v4.octets()[3],
            std::net::IpAddr::V6(_) => panic!("all are v4 here"),
        };
        in_order(targets).into_iter().map(last).collect()
    }

    #[test]
    fn each_endpoint_comes_as_often_as_its_weight_says() {
        assert_eq!(order(&[target(3, [1]), target(1, [2])]), [1, 1, 2, 1]);
        assert_eq!(order(&[target(60, [1]), target(20, [2]), target(20, [3])]), [1, 2, 1, 3, 1]);
        assert_eq!(order(&[target(10, [1]), target(10, [2])]), [1, 2], "the same weight for all is none");
        assert_eq!(order(&[target(0, [1]), target(0, [2])]), [1, 2]);
        assert_eq!(order(&[target(2, [1, 2]), target(1, [3])]), [1, 2, 3], "addresses share what their target has");
        assert_eq!(order(&[target(1, [1, 2]), target(1, [3])]), [3, 1, 2, 3]);
        assert_eq!(order(&[target(1, [1]), target(1, [1])]), [1], "one address, one endpoint");
    }

    #[test]
    fn a_weight_of_nothing_beside_others_is_a_small_chance() {
        let order = order(&[target(0, [1]), target(5, [2])]);
        assert_eq!(order.len(), 129);
        assert_eq!(order.iter().filter(|last| **last == 1).count(), 1);
    }

    #[test]
    fn an_order_is_bounded_whatever_name_servers_say() {
        let address = |number: u32| SocketAddr::from((std::net::Ipv4Addr::from(number), 80));
        let target = |at: u32| Weighted { weight: 1, addresses: (at * 100..(at + 1) * 100).map(address).collect() };
        let order = in_order(&(0..256).map(target).collect::<Vec<_>>());
        assert_eq!(order.len(), MOST_ADDRESSES);
    }

    #[test]
    fn the_lowest_priority_comes_first_and_always_in_the_same_order() {
        let service = |priority, target: &str| Service { priority, weight: 1, target: target.into(), port: 80 };
        let targets = vec![service(20, "c"), service(10, "b"), service(10, "a"), service(10, "b")];
        let services = Services::new(targets, Duration::from_secs(30)).unwrap();
        assert_eq!(services.groups, [vec![service(10, "a"), service(10, "b")], vec![service(20, "c")]]);
        assert!(matches!(Services::new(Vec::new(), Duration::ZERO), Err(ResolveError::NoAddress)));
    }

    #[test]
    fn shares_are_right_to_one_place_and_evenly_spread() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut below = |bound: u64| random.next_u64() % bound;
            let count = below(8) as u8 + 1;
            let weights: Vec<u16> = (0..count).map(|_| below(1000) as u16 + 1).collect();
            let targets: Vec<_> = weights.iter().zip(1..).map(|(weight, last)| target(*weight, [last])).collect();
            let order = order(&targets);
            assert!(order.len() as u64 <= SLOTS + u64::from(count), "seed {seed}");
            let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
            let mut seen: BTreeMap<u8, usize> = BTreeMap::new();
            for (at, last) in order.iter().enumerate() {
                *seen.entry(*last).or_default() += 1;
                for (weight, last) in weights.iter().zip(1..) {
                    let due = (at + 1) as f64 * f64::from(*weight) / sum;
                    let had = seen.get(&last).copied().unwrap_or_default() as f64;
                    // Rounding to places is one part of it, being smooth the other.
                    assert!((due - had).abs() <= 3.0, "seed {seed}: {last} had {had} of {due} after {at}");
                }
            }
        }
    }
}
