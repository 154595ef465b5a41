//! Room 7: which endpoint?
//!
//! Round robin over the endpoints that their breakers allow, or the one with least in flight, keeping away from the one
//! that the last attempt failed at where there is a choice.

use std::net::SocketAddr;

use plimsoll_resilience::breaker::Asker;
use plimsoll_resilience::flight::AttemptKind;
use plimsoll_resilience::protection::Protection;
use plimsoll_resilience::rejection::EndpointKey;
use plimsoll_resilience::rules::DifferentEndpoint;
use plimsoll_resilience::time::Timestamp;

/// One address of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its socket address.
    pub address: SocketAddr,
    /// What its breaker and ejections are kept under.
    pub key: EndpointKey,
}

impl Endpoint {
    /// The endpoint at `address`.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self { address, key: key_of(address) }
    }
}

/// Why no endpoint could be picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoEndpoint {
    /// There are endpoints, and the breaker of every one is open.
    pub all_open: bool,
}

/// The next endpoint after `turn` whose breaker allows a call; with least request the one with least in flight, and
/// `turn` draws among equals.
///
/// # Errors
/// [`NoEndpoint`] when there is none.
pub fn pick(
    endpoints: &[Endpoint],
    turn: usize,
    avoid: Option<Avoid>,
    kind: AttemptKind,
    protection: &mut Protection,
    now: Timestamp,
) -> Result<Endpoint, NoEndpoint> {
    let asker = match kind {
        AttemptKind::First => Asker::First,
        AttemptKind::Retry => Asker::Retry,
    };
    let away_from = avoid.map(|avoid| avoid.key);
    if let Some(least) = protection.pick_least(endpoints, |one| one.key, away_from, asker, turn as u64, now) {
        return Ok(endpoints[least]);
    }
    let mut second_best = None;
    let mut all_open = !endpoints.is_empty();
    for step in 0..endpoints.len() {
        let candidate = endpoints[(turn.wrapping_add(step)) % endpoints.len()];
        let allowed = protection.endpoint_allows(candidate.key, asker, now);
        all_open &= !allowed;
        match avoid {
            _ if !allowed => {}
            Some(avoid) if avoid.key == candidate.key => second_best = Some(candidate).filter(|_| !avoid.strictly),
            _ => return Ok(candidate),
        }
    }
    second_best.ok_or(NoEndpoint { all_open })
}

/// An endpoint that the last attempt failed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avoid {
    key: EndpointKey,
    strictly: bool,
}

impl Avoid {
    /// What `rule` makes of the endpoint of the attempt before.
    #[must_use]
    pub fn of(last: Option<EndpointKey>, rule: Option<DifferentEndpoint>) -> Option<Self> {
        let strictly = match rule? {
            DifferentEndpoint::Any => return None,
            DifferentEndpoint::Prefer => false,
            DifferentEndpoint::Require => true,
        };
        Some(Self { key: last?, strictly })
    }
}

/// The key of a destination that is known by name only.
#[must_use]
pub fn key_of_name(name: &str, port: u16) -> EndpointKey {
    key_of_bytes(name.bytes().chain(port.to_be_bytes()))
}

/// A key that is the same for the same address in every generation.
fn key_of(address: SocketAddr) -> EndpointKey {
    let ip = match address.ip() {
        std::net::IpAddr::V4(v4) => u128::from(u32::from(v4)),
        std::net::IpAddr::V6(v6) => u128::from(v6),
    };
    key_of_bytes(ip.to_be_bytes().into_iter().chain(address.port().to_be_bytes()))
}

fn key_of_bytes(bytes: impl Iterator<Item = u8>) -> EndpointKey {
    // FNV-1a: the addresses come from policy or the kernel, so nobody gains by making two of them collide.
    EndpointKey(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}
