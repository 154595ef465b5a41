//! Where a connection goes that is not HTTP.

use plimsoll_resilience::Reason;

use super::{NotRouted, Routed, Target, by_destination, inbound};
use crate::capture::{Origin, Purpose};
use crate::runtime::process::Process;
use crate::snapshot::{Endpoints, ServiceIndex, Snapshot};

/// Routes a connection by what led it here, and by the name in its ClientHello.
///
/// # Errors
/// [`NotRouted`]: `NoRoute`, `Forbidden`, `Loop`.
pub fn find_opaque(
    process: &Process,
    snapshot: &Snapshot,
    origin: &Origin,
    name: Option<&str>,
) -> Result<Routed, NotRouted> {
    let (service, target) = match origin.purpose {
        Purpose::Inbound => (ServiceIndex::INBOUND, inbound(process, origin)?),
        Purpose::Listen(address) => {
            let gone = NotRouted::new(Reason::NoRoute, "no policy listens at this address any more");
            (snapshot.by_listen(address).ok_or(gone)?, Target::Endpoints)
        }
        Purpose::Outbound => {
            let nowhere = "what is not HTTP says no destination: it has to be redirected here, or to call a dependency's `listen` address";
            let destination = origin.destination.ok_or(NotRouted::new(Reason::NoRoute, nowhere))?;
            // A name that no policy lists is not taken for another one, though both may stand for one address.
            let service = match name {
                Some(name) => snapshot.by_host(name, destination.port()).or_else(|| snapshot.by_address(destination)),
                None => by_destination(process, snapshot, destination),
            };
            let service = service.unwrap_or(ServiceIndex::UNLISTED);
            match snapshot.service(service).endpoints {
                Endpoints::AsAddressed => (service, Target::Address(destination)),
                Endpoints::Fixed(_) | Endpoints::Resolved(_) => (service, Target::Endpoints),
            }
        }
    };
    if let Target::Address(address) = target
        && process.own.is_at(address)
    {
        return Err(NotRouted { reason: Reason::Loop, detail: None });
    }
    Ok(Routed { service, route: 0, target })
}
