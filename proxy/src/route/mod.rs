//! Room 4: which dependency, which of its rules, and where to?

pub mod hosts;
mod opaque;

use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use std::borrow::Cow;

use plimsoll_h1::{RequestHead, TargetForm};
use plimsoll_policy::normal_path;
use plimsoll_resilience::Reason;

use self::hosts::split_authority;
pub use self::opaque::find_opaque;
use crate::capture::{Origin, Purpose};
use crate::exchange::is_tunnel_asked;
use crate::reject::Refusal;
use crate::runtime::process::Process;
use crate::snapshot::{Endpoints, Route, Service, ServiceIndex, Snapshot};

/// Where a call belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    service: ServiceIndex,
    route: usize,
    target: Target,
}

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To one of the dependency's endpoints.
    Endpoints,
    /// To this address.
    Address(SocketAddr),
    /// To whatever this name stands for.
    Name(Arc<str>, u16),
}

impl Routed {
    /// The service and its rules, in the snapshot that the call was routed with.
    #[must_use]
    pub fn find<'s>(&self, snapshot: &'s Snapshot) -> (&'s Service, &'s Route) {
        let service = snapshot.service(self.service);
        (service, service.route(self.route))
    }

    /// Where to.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }
}

/// Why a call goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRouted {
    reason: Reason,
    detail: Option<&'static str>,
}

impl NotRouted {
    fn new(reason: Reason, detail: &'static str) -> Self {
        Self { reason, detail: Some(detail) }
    }

    /// What the caller is told.
    #[must_use]
    pub fn refusal(&self) -> Refusal<'static> {
        let mut refusal = Refusal::new(self.reason);
        refusal.detail = self.detail;
        refusal
    }
}

/// Routes the request with this head.
///
/// # Errors
/// [`NotRouted`]: `NoRoute`, `Forbidden`, `Loop`, and `MalformedRequest` for a host that is none.
pub fn find(
    process: &Process,
    snapshot: &Snapshot,
    origin: &Origin,
    head: &RequestHead,
    buf: &[u8],
) -> Result<Routed, NotRouted> {
    if is_tunnel_asked(head) && origin.purpose != Purpose::Outbound {
        return Err(NotRouted::new(
            Reason::Forbidden,
            "CONNECT is served on the outbound listener alone: that is the address for HTTPS_PROXY",
        ));
    }
    // Looked at only where something depends on it.
    let asked = || Asked::of(head, buf);
    let (service, target) = match origin.purpose {
        Purpose::Inbound => (ServiceIndex::INBOUND, inbound(process, origin)?),
        Purpose::Listen(address) => {
            let gone = NotRouted::new(Reason::NoRoute, "no policy listens at this address any more");
            (snapshot.by_listen(address).ok_or(gone)?, Target::Endpoints)
        }
        Purpose::Outbound => outbound(process, snapshot, origin, head, &asked()?)?,
    };
    if let Target::Address(address) = target
        && process.own.is_at(address)
    {
        return Err(NotRouted { reason: Reason::Loop, detail: None });
    }
    let rules = snapshot.service(service);
    let route = if rules.routes.is_empty() { 0 } else { rules.route_for(&asked()?) };
    Ok(Routed { service, route, target })
}

/// Redirected inbound traffic goes on to its original destination and never to loopback in its stead: a port that the
/// application keeps to itself stays its own.
fn inbound(process: &Process, origin: &Origin) -> Result<Target, NotRouted> {
    let loops = NotRouted { reason: Reason::Loop, detail: None };
    match (origin.destination, process.options.app) {
        (Some(destination), _) if process.own.is_address(destination.ip()) => Ok(Target::Address(destination)),
        // A redirect also catches what is only on its way through this machine: it is not ours to carry.
        (Some(_), _) => Err(NotRouted::new(Reason::Forbidden, "the destination is not an address of this workload")),
        (None, Some(app)) => Ok(Target::Address(app)),
        (None, None) => Err(loops),
    }
}

/// Whose an address is that a connection was going to, when it names nobody: that of a name in `target.hosts` that
/// stands for it, else by `target.addresses`.
#[must_use]
pub fn by_destination(process: &Process, snapshot: &Snapshot, address: SocketAddr) -> Option<ServiceIndex> {
    let by_name = process.resolver.book().find(address, |host| snapshot.by_host(host, address.port()));
    by_name.or_else(|| snapshot.by_address(address))
}

fn outbound(
    process: &Process,
    snapshot: &Snapshot,
    origin: &Origin,
    head: &RequestHead,
    asked: &Asked<'_>,
) -> Result<(ServiceIndex, Target), NotRouted> {
    if origin.destination.is_none() && !origin.peer.ip().is_loopback() {
        return Err(NotRouted::new(Reason::Forbidden, "the forward proxy serves this machine only"));
    }
    if head.https {
        return Err(NotRouted::new(
            Reason::NoRoute,
            "an https:// target cannot be fetched for a caller; use CONNECT or http:// with a policy",
        ));
    }
    let port = asked.port.or(origin.destination.map(|destination| destination.port())).unwrap_or(80);
    let by_host = snapshot.by_host(asked.host, port);
    // A name that no policy lists is not taken for another one, though both may stand for one address.
    let of_destination = |address| match asked.names_somebody() {
        true => snapshot.by_address(address),
        false => by_destination(process, snapshot, address),
    };
    let service = by_host.or_else(|| origin.destination.and_then(of_destination));
    let service = service.or_else(|| asked.address(port).and_then(|address| snapshot.by_address(address)));
    let service = service.unwrap_or(ServiceIndex::UNLISTED);
    if !matches!(snapshot.service(service).endpoints, Endpoints::AsAddressed) {
        return Ok((service, Target::Endpoints));
    }
    let target = match (origin.destination, asked.address(port)) {
        (Some(destination), _) => Target::Address(destination),
        (None, Some(address)) => Target::Address(address),
        (None, None) if asked.host.is_empty() => {
            return Err(NotRouted::new(Reason::NoRoute, "the request names no host"));
        }
        (None, None) => Target::Name(asked.host.into(), port),
    };
    Ok((service, target))
}

/// What a request asks for, as policy looks at it.
struct Asked<'a> {
    head: &'a RequestHead,
    buf: &'a [u8],
    host: &'a str,
    port: Option<u16>,
    path: OnceCell<Cow<'a, str>>,
}

impl<'a> Asked<'a> {
    fn of(head: &'a RequestHead, buf: &'a [u8]) -> Result<Self, NotRouted> {
        let authority = text(head.host.of(buf));
        let (host, port) = split_authority(authority)
            .ok_or(NotRouted::new(Reason::MalformedRequest, "Host has a port that is no number"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Ok(Self { head, buf, host, port, path: OnceCell::new() })
    }

    fn names_somebody(&self) -> bool {
        !self.host.is_empty() && self.host.parse::<IpAddr>().is_err()
    }

    fn address(&self, port: u16) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.host.parse::<IpAddr>().ok()?, port))
    }
}

impl plimsoll_policy::Request for Asked<'_> {
    fn method(&self) -> &str {
        text(self.head.method_name.of(self.buf))
    }

    fn path(&self) -> &str {
        self.path.get_or_init(|| {
            let path = match self.head.form {
                TargetForm::Origin | TargetForm::Absolute => text(self.head.path.of(self.buf)),
                TargetForm::Authority | TargetForm::Asterisk => "",
            };
            normal_path(path.split(['?', '#']).next().unwrap_or(""))
        })
    }

    fn host(&self) -> &str {
        self.host
    }

    fn port(&self) -> u16 {
        self.port.unwrap_or(80)
    }

    fn has_header(&self, name: &str, value: Option<&str>) -> bool {
        self.head.fields.iter().any(|field| {
            field.name.of(self.buf).eq_ignore_ascii_case(name.as_bytes())
                && value.is_none_or(|value| field.value.of(self.buf) == value.as_bytes())
        })
    }
}

/// Start lines and hosts have been checked to hold visible ASCII only where it matters; anything else matches nothing.
fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or("\u{fffd}")
}
