//! Least request: what is in flight to each endpoint, counted by the flights themselves.

use crate::breaker::Asker;
use crate::outcome::{Ended, classify};
use crate::random::Random;
use crate::rejection::EndpointKey;
use crate::time::Timestamp;

use super::Protection;
use super::holdings::Holdings;

impl Protection {
    /// With `loadBalancing.algorithm: LeastRequest`: the position of the endpoint that an attempt is to go to, of those
    /// that their breakers allow and that are not `avoid`. `None` if there is none, or with another algorithm: then the
    /// endpoints have their turns. The same `seed` chooses the same.
    pub fn pick_least<T>(
        &mut self,
        endpoints: &[T],
        key: impl Fn(&T) -> EndpointKey,
        avoid: Option<EndpointKey>,
        asker: Asker,
        seed: u64,
        now: Timestamp,
    ) -> Option<usize> {
        if !self.least_request {
            return None;
        }
        // Breakers are asked meanwhile, which have no need of it.
        let loads = std::mem::take(&mut self.loads);
        let passes = |endpoint| Some(endpoint) != avoid && self.endpoint_allows(endpoint, asker, now);
        let position = |position: usize| key(&endpoints[position]);
        let picked = loads.pick(endpoints.len(), position, passes, &mut Random::new(seed), now);
        self.loads = loads;
        picked
    }

    /// An attempt goes to this endpoint.
    #[inline]
    pub(crate) fn enter_endpoint(&mut self, holdings: &mut Holdings, endpoint: EndpointKey, now: Timestamp) {
        if self.least_request {
            holdings.counted = self.loads.begin(endpoint, now);
        }
    }

    /// It is over, or has been taken back.
    #[inline]
    pub(super) fn leave_endpoint(&mut self, holdings: &mut Holdings, ended: Ended, now: Timestamp) {
        if !std::mem::take(&mut holdings.counted) {
            return;
        }
        let endpoint = holdings.endpoint.expect("an attempt that is counted goes somewhere");
        self.loads.end(endpoint, classify(ended), now);
        if !self.least_request {
            self.loads.retire();
        }
    }

    /// Counts of what is in flight outlive the algorithm, so that they are right when it returns.
    pub(super) fn balance(&mut self, least_request: bool) {
        self.least_request = least_request;
        if !least_request {
            self.loads.retire();
        }
    }
}
