//! How fast opaque connections may be opened: `bulkhead.connectionRate`.
//!
//! A connection that is carried unopened is not counted by what it asks for, so what holds it is how many there are
//! (`maxConnections`, which the shell counts) and how fast they come. The rate is asked after the breaker, so that what
//! is refused there takes no token, and before the breaker's ticket.

use std::time::Duration;

use crate::mode::{Mode, Moded};
use crate::rejection::{Block, Cause, Rejected, Rejection};
use crate::time::Timestamp;
use crate::token_bucket::{self, TokenBucket};
use crate::window::TimeWindow;

use super::Protection;
use super::admission::{Admitted, Wish};
use super::holdings::Holdings;

/// The bucket, and whether its block is in force; it outlives its block, so that a swap there and back fills nothing.
#[derive(Debug, Default)]
pub(super) struct ConnectionRate {
    mode: Option<Mode>,
    state: Option<State>,
}

#[derive(Debug)]
struct State {
    bucket: TokenBucket,
    /// Connections that were asked for in the last interval: what a refusal tells.
    asked: TimeWindow<1>,
}

/// The rate of connections, as plain numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionRateView {
    /// Enforce or Observe.
    pub mode: Mode,
    /// Connections asked for in the last interval, the refused ones too.
    pub asked: u32,
    /// Connections of an interval.
    pub amount: u32,
    /// The interval.
    pub interval: Duration,
    /// Connections that would pass now.
    pub left: u32,
}

impl ConnectionRate {
    pub(super) fn configure(&mut self, block: Option<Moded<token_bucket::Config>>, now: Timestamp) {
        self.mode = block.map(|block| block.mode).filter(|mode| mode.is_on());
        let Some(Moded { config, .. }) = block else { return };
        match &mut self.state {
            Some(state) => {
                if state.bucket.config().interval() != config.interval() {
                    state.asked = TimeWindow::new(config.interval());
                }
                state.bucket.reconfigure(config, now);
            }
            None => {
                let asked = TimeWindow::new(config.interval());
                self.state = Some(State { bucket: TokenBucket::new(config, now), asked });
            }
        }
    }

    pub(super) fn view(&self, now: Timestamp) -> Option<ConnectionRateView> {
        let (mode, state) = (self.mode?, self.state.as_ref()?);
        let config = state.bucket.config();
        Some(ConnectionRateView {
            mode,
            asked: state.asked.totals(now)[0],
            amount: config.amount(),
            interval: config.interval(),
            left: state.bucket.tokens(now),
        })
    }

    pub(super) fn check_invariants(&self) {
        if let Some(State { bucket, asked }) = &self.state {
            bucket.check_invariants();
            asked.check_invariants();
        }
    }
}

impl State {
    fn try_take(&mut self, now: Timestamp) -> Result<(), Rejected> {
        let place = self.asked.roll(now);
        self.asked.add(place, 0);
        self.bucket.try_take(now).map_err(|rejected| {
            let (observed, limit) = (self.asked.totals(now)[0], self.bucket.config().amount());
            let cause = Some(Cause::ConnectionRate);
            Rejected { cause, observed: observed.into(), limit: limit.into(), ..rejected }
        })
    }
}

impl Protection {
    /// A ticket for an opaque connection, or a refusal: it needs no permits, and never waits for one.
    pub(crate) fn admit_opaque(&mut self, holdings: &mut Holdings, wish: Wish, now: Timestamp) -> Admitted {
        holdings.refused_in_model = false;
        let asked = self.ask_breaker(holdings, wish.asker, now);
        match asked.and_then(|()| self.try_connect(holdings, now)) {
            Ok(()) => self.take_ticket(holdings, wish.asker, now),
            Err(rejection) => Admitted::Refused(rejection),
        }
    }

    fn try_connect(&mut self, holdings: &mut Holdings, now: Timestamp) -> Result<(), Rejection> {
        let ConnectionRate { mode: Some(mode), state: Some(state) } = &mut self.connections else { return Ok(()) };
        let enforces = mode.enforces();
        if !enforces && holdings.refused_in_model {
            return Ok(());
        }
        let Err(rejected) = state.try_take(now) else { return Ok(()) };
        let rejection = Rejection::new(rejected, Block::Bulkhead, holdings.route(), false);
        if enforces {
            return Err(rejection);
        }
        self.refuse_in_model(rejection, holdings, now);
        Ok(())
    }
}
