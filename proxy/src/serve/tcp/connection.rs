//! One opaque connection, from its route to its report.

use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use plimsoll_resilience::breaker::State;
use plimsoll_resilience::flight::{Action, Attempt, AttemptKind, Call, Failure, Flight, Safety};
use plimsoll_resilience::protection::{BreakerScope, BreakerView, Protection};
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::rejection::{Block, EndpointKey, Rejected, Rejection};
use plimsoll_resilience::time::Timestamp;

use super::flow::Lender;
use super::relay::{Ended, Relay};
use super::wire::reset_on_close;
use crate::dependency::Dependency;
use crate::dial::{Destination, DialError, Dialed, Security, dial};
use crate::pick::{self, Endpoint, NoEndpoint, key_of_name};
use crate::pool::Upstream;
use crate::route::hosts::split_authority;
use crate::route::{Routed, Target};
use crate::runtime::buffers::Lent;
use crate::runtime::worker::Worker;
use crate::serve::Downstream;
use crate::snapshot::{Endpoints, Route, Service, Snapshot};
use crate::sockets::OpenSocket;
use crate::tls::Offer;

/// How often a side that nobody reads any more is asked whether it was reset.
const LOOK: Duration = Duration::from_millis(250);

/// A connection in progress.
pub(super) struct Connection {
    pub(super) worker: Rc<Worker>,
    pub(super) down: Lent<Downstream>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) routed: Routed,
    /// The caller speaks TLS.
    pub(super) is_tls: bool,
    /// The name in its ClientHello.
    pub(super) name: Option<Box<str>>,
    pub(super) arrived: Timestamp,
    pub(super) now: Timestamp,
    pub(super) flight: Option<Flight>,
    pub(super) way: Way,
    pub(super) relay: Relay,
    /// What the endpoint has said before it was clear that this is for us.
    pub(super) greeting: BytesMut,
    pub(super) endpoint: Option<SocketAddr>,
    /// Why there is no connection, in words.
    pub(super) no_way: Option<Box<str>>,
    turn: Option<usize>,
    pub(super) rejected: Option<Rejection>,
    pub(super) end: Option<End>,
    /// Where it was tried to go before there was a flight.
    tried: Option<Tried>,
    /// It is opaque for certain, and reported.
    pub(super) committed: bool,
    /// The flight has nothing more to say.
    pub(super) landed: bool,
    /// Bytes that are counted already: from the caller, to the caller.
    pub(super) counted: (u64, u64),
    next_look: Timestamp,
}

/// The way to the endpoint.
pub(super) enum Way {
    None,
    /// Somebody else has to close a socket first.
    Waiting {
        endpoint: EndpointKey,
        destination: Destination,
        socket: Pin<Box<dyn Future<Output = Option<OpenSocket>>>>,
    },
    Dialing(Pin<Box<dyn Future<Output = Result<Dialed, DialError>>>>),
    Open(Upstream),
}

/// A connection that is made, or was tried to be, before it is certain that it is wanted. The flight hears of it when it is:
/// until then nothing is counted, and no limit but that on sockets is asked.
struct Tried {
    endpoint: EndpointKey,
    /// Why there is none.
    failure: Option<DialError>,
    /// The endpoint has reset it.
    was_reset: bool,
}

/// How it ended other than by its peers' will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Both have said all they had to say.
    Whole,
    CallerGone,
    Cut(Reason),
}

impl Connection {
    pub(super) fn new(worker: &Rc<Worker>, down: Box<Downstream>, snapshot: Arc<Snapshot>, routed: Routed) -> Self {
        let now = worker.now();
        Self {
            worker: Rc::clone(worker),
            down: down.into(),
            snapshot,
            routed,
            is_tls: false,
            name: None,
            arrived: now,
            now,
            flight: None,
            way: Way::None,
            relay: Relay::new(BytesMut::new(), BytesMut::new()),
            greeting: BytesMut::new(),
            endpoint: None,
            no_way: None,
            turn: None,
            rejected: None,
            end: None,
            tried: None,
            committed: false,
            landed: false,
            counted: (0, 0),
            next_look: now,
        }
    }

    /// From here on the connection is opaque traffic, counted and reported as such.
    pub(super) fn commit(&mut self) {
        let (from_caller, greeting) = (std::mem::take(&mut self.down.buf), std::mem::take(&mut self.greeting));
        self.relay = Relay::new(from_caller, greeting);
        self.committed = true;
        self.dependency().note_opaque();
        self.worker.report.started(self.route().stats.id());
    }

    /// Runs it to its end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.advance(cx);
        loop {
            self.act(cx);
            if self.landed {
                self.finish();
                return Poll::Ready(());
            }
            // In this order: only when nothing moves are clocks looked at.
            if !self.poll_way(cx) && !self.poll_relay(cx) && !self.ring(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Looks at the clock, and begins or goes on with what the flight waits for.
    fn advance(&mut self, cx: &Context<'_>) {
        self.now = self.worker.now();
        if self.flight.is_none() {
            self.start(cx);
        } else if self.flight.as_ref().is_some_and(|flight| flight.waiter().is_some()) {
            self.tell(cx, Flight::handle_woken);
        }
    }

    fn start(&mut self, cx: &Context<'_>) {
        let (service, route) = self.routed.find(&self.snapshot);
        let call = Call {
            arrived: self.arrived,
            caller_deadline: None,
            safety: Safety::Unsafe,
            idempotency_key: false,
            retried_inbound: false,
            grpc: false,
            opaque: true,
            streaming: true,
            route: route.id,
            seed: self.worker.random.borrow_mut().next_u64(),
        };
        let rules = Arc::clone(&route.tunnel_rules);
        let mut would = Vec::new();
        let flight = service.dependency.with_call(
            |shared| {
                let flight = Flight::start(rules, call, &mut shared.protection, self.now);
                if let Some(waiter) = flight.waiter() {
                    shared.wait(waiter, cx.waker());
                }
                flight
            },
            |event| would.push(*event),
        );
        self.flight = Some(flight);
        would.iter().for_each(|event| self.would(event));
    }

    pub(super) fn service(&self) -> &Service {
        self.routed.find(&self.snapshot).0
    }

    pub(super) fn route(&self) -> &Route {
        self.routed.find(&self.snapshot).1
    }

    pub(super) fn dependency(&self) -> &Arc<Dependency> {
        &self.service().dependency
    }

    /// Tells the flight what happened, under the dependency's lock, and sees to it that it is woken if it has to wait.
    pub(super) fn tell(&mut self, cx: &Context<'_>, input: impl FnOnce(&mut Flight, &mut Protection, Timestamp)) {
        let dependency = &self.routed.find(&self.snapshot).0.dependency;
        let Some(flight) = &mut self.flight else { return };
        let now = self.now;
        let mut would = Vec::new();
        dependency.with_call(
            |shared| {
                let before = flight.waiter();
                input(flight, &mut shared.protection, now);
                match (flight.waiter(), before) {
                    (Some(waiter), _) => shared.wait(waiter, cx.waker()),
                    (None, Some(before)) => shared.stop_waiting(before),
                    (None, None) => {}
                }
            },
            |event| would.push(*event),
        );
        would.iter().for_each(|event| self.would(event));
    }

    /// Does what the flight asks for until it asks for nothing more.
    pub(super) fn act(&mut self, cx: &mut Context<'_>) {
        while let Some(action) = self.next_action() {
            self.perform(action, cx);
        }
    }

    fn next_action(&mut self) -> Option<Action> {
        self.flight.as_mut()?.poll_action()
    }

    fn perform(&mut self, action: Action, cx: &mut Context<'_>) {
        match action {
            Action::Attempt(attempt) => self.begin(attempt, cx),
            Action::Abandon => self.drop_way(),
            Action::Reject(rejection) => self.rejected = Some(rejection),
            Action::Cut(reason) => self.end = Some(End::Cut(reason)),
            Action::Done => self.landed = true,
            // There is no answer that could be held back: it goes through as it comes.
            Action::Await | Action::Deliver | Action::Keep | Action::DeliverKept { .. } => {}
        }
    }

    /// Begins a connection that may not be wanted. False where that is not for trying: the circuit is not closed, there
    /// is no endpoint, or no socket.
    pub(super) fn try_ahead(&mut self) -> bool {
        let breakers = self.dependency().with(|shared| shared.protection.view(self.now)).breakers;
        let holds = |view: &BreakerView| {
            let passes = matches!(view.state, State::Closed | State::ForcedClosed);
            view.mode.enforces() && !passes && !matches!(view.scope, BreakerScope::Endpoint(_))
        };
        let first = Attempt { number: 1, kind: AttemptKind::First, fresh_connection: true, avoid: None };
        if breakers.iter().any(holds) {
            return false;
        }
        let Ok((endpoint, destination)) = self.destination(first) else { return false };
        let Some(socket) = self.dependency().sockets().try_open() else { return false };
        self.tried = Some(Tried { endpoint, failure: None, was_reset: false });
        self.dial(destination, socket);
        true
    }

    /// The connection that was tried is not to be had.
    pub(super) fn give_up_trying(&mut self) {
        self.way = Way::None;
        if let Some(tried) = &mut self.tried {
            tried.failure =
                Some(DialError::Failed(Failure::ConnectTimeout, "it took longer than timeouts.connect".into()));
        }
    }

    /// Whether a connection was tried that may yet come to something.
    pub(super) fn has_hope(&self) -> bool {
        self.tried.as_ref().is_some_and(|tried| tried.failure.is_none())
    }

    /// The endpoint has reset the connection that was tried.
    pub(super) fn note_reset(&mut self) {
        if let Some(tried) = &mut self.tried {
            tried.was_reset = true;
        }
    }

    /// Goes on with a connection that was tried.
    fn adopt(&mut self, tried: Tried, cx: &mut Context<'_>) {
        self.tell(cx, |flight, shared, now| flight.handle_picked(tried.endpoint, shared, now));
        if let Some(action) = self.next_action() {
            self.way = Way::None;
            return self.perform(action, cx);
        }
        if let Some(failure) = tried.failure {
            return self.on_dialed(Err(failure), cx);
        }
        if !matches!(self.way, Way::Open(_)) {
            return;
        }
        self.tell(cx, |flight, _, now| flight.handle_connected(now));
        if tried.was_reset {
            self.tell(cx, |flight, shared, now| flight.handle_failed(Failure::Reset, shared, now));
        } else if self.relay.received().bytes_in() > 0 {
            self.tell(cx, Flight::handle_turn_ends);
        }
    }

    fn destination(&mut self, attempt: Attempt) -> Result<(EndpointKey, Destination), NoEndpoint> {
        Ok(match self.routed.target() {
            Target::Address(address) => (Endpoint::new(*address).key, Destination::Address(*address)),
            Target::Name(name, port) => (key_of_name(name, *port), Destination::Name(Arc::clone(name), *port)),
            Target::Endpoints => {
                let endpoint = self.pick(attempt)?;
                (endpoint.key, Destination::Address(endpoint.address))
            }
        })
    }

    /// Rooms 7 and 8: an endpoint, and a connection to it.
    fn begin(&mut self, attempt: Attempt, cx: &mut Context<'_>) {
        if let Some(tried) = self.tried.take() {
            return self.adopt(tried, cx);
        }
        let (endpoint, destination) = match self.destination(attempt) {
            Ok(found) => found,
            Err(NoEndpoint { all_open }) => {
                return self.tell(cx, |flight, shared, now| flight.handle_no_endpoint(all_open, shared, now));
            }
        };
        if let Some(refused) = self.service().would_be_too_many_connections() {
            self.would_refuse(&refused);
        }
        let sockets = Arc::clone(self.dependency().sockets());
        if let Some(socket) = sockets.try_open() {
            return self.connect(endpoint, destination, socket, cx);
        }
        let wait = self.service().connections.map_or(Duration::ZERO, |limit| limit.config.max_wait);
        self.worker.process.close_idle(self.dependency().id, false);
        let socket = Box::pin(async move { tokio::time::timeout(wait, sockets.opened()).await.ok() });
        self.way = Way::Waiting { endpoint, destination, socket };
        self.tell(cx, |flight, shared, now| flight.handle_socket_wait(endpoint, shared, now));
    }

    fn pick(&mut self, attempt: Attempt) -> Result<Endpoint, NoEndpoint> {
        let first = *self.turn.get_or_insert_with(|| self.worker.next_turn());
        let turn = first.wrapping_add(attempt.number as usize - 1);
        let pick = |endpoints: &[Endpoint]| {
            let avoid = pick::Avoid::of(attempt.avoid, None);
            self.dependency()
                .with(|shared| pick::pick(endpoints, turn, avoid, attempt.kind, &mut shared.protection, self.now))
        };
        match &self.service().endpoints {
            Endpoints::Fixed(endpoints) => pick(endpoints),
            Endpoints::Resolved(resolved) => pick(&resolved.load()),
            Endpoints::AsAddressed => Err(NoEndpoint { all_open: false }),
        }
    }

    fn connect(&mut self, endpoint: EndpointKey, destination: Destination, socket: OpenSocket, cx: &mut Context<'_>) {
        self.tell(cx, |flight, shared, now| flight.handle_picked(endpoint, shared, now));
        // The breaker may have opened since the endpoint was picked.
        if let Some(action) = self.next_action() {
            drop(socket);
            return self.perform(action, cx);
        }
        self.dial(destination, socket);
    }

    fn dial(&mut self, destination: Destination, socket: OpenSocket) {
        let process = Arc::clone(&self.worker.process);
        let dependency = Arc::clone(self.dependency());
        let security = self.security(&destination);
        self.way = Way::Dialing(Box::pin(dial(process, dependency, destination, socket, security)));
    }

    /// TLS of ours, unless the caller brings its own.
    fn security(&self, destination: &Destination) -> Option<Security> {
        let service = self.service();
        let origination = service.security.clone().filter(|_| !self.is_tls)?;
        // Nobody has said a name here: the one that policy says the dependency is called by, else its address.
        let named = || service.hosts.iter().find(|host| !host.starts_with('*'));
        let host = match destination {
            Destination::Name(name, _) => (**name).into(),
            Destination::Address(address) => named().and_then(|host| split_authority(host)).map_or_else(
                || address.ip().to_string().into(),
                |(host, _)| host.trim_start_matches('[').trim_end_matches(']').into(),
            ),
        };
        Some(Security { origination, host, offer: Offer::Nothing })
    }

    /// Goes on with getting a connection. True when that came to something.
    pub(super) fn poll_way(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.way {
            Way::None | Way::Open(_) => false,
            Way::Waiting { socket, .. } => {
                let Poll::Ready(socket) = socket.as_mut().poll(cx) else {
                    // What calls have left idle is of no use here: it is closed, and its socket is free.
                    self.worker.process.close_idle(self.dependency().id, false);
                    return false;
                };
                let Way::Waiting { endpoint, destination, .. } = std::mem::replace(&mut self.way, Way::None) else {
                    return false;
                };
                match socket {
                    Some(socket) => self.connect(endpoint, destination, socket, cx),
                    None => {
                        let sockets = self.dependency().sockets();
                        let refused = self.service().too_many_connections(sockets.open(), sockets.limit().unwrap_or(0));
                        self.tell(cx, |flight, shared, now| {
                            flight.handle_refused(refused, Block::Bulkhead, shared, now);
                        });
                    }
                }
                true
            }
            Way::Dialing(dial) => {
                let Poll::Ready(dialed) = dial.as_mut().poll(cx) else { return false };
                self.way = Way::None;
                self.on_dialed(dialed, cx);
                true
            }
        }
    }

    fn on_dialed(&mut self, dialed: Result<Dialed, DialError>, cx: &Context<'_>) {
        if let (Err(error), Some(tried)) = (&dialed, &mut self.tried) {
            tried.failure = Some(error.clone());
            return;
        }
        match dialed {
            Ok(dialed) => {
                let dependency = self.dependency().id;
                self.endpoint = Some(dialed.address);
                self.way = Way::Open(Upstream::new(dialed.transport, dialed.address, dependency, 0, dialed.socket));
                self.tell(cx, |flight, _, now| flight.handle_connected(now));
            }
            Err(DialError::Failed(failure, why)) => {
                self.no_way = Some(why);
                self.tell(cx, |flight, shared, now| flight.handle_failed(failure, shared, now));
            }
            Err(DialError::Loop) => {
                let looped = Rejected::new(Reason::Loop, 0, 0);
                self.tell(cx, |flight, shared, now| flight.handle_refused(looped, Block::Target, shared, now));
            }
        }
    }

    /// Room 9: moves what can be moved, and tells the flight. True when that was the end.
    fn poll_relay(&mut self, cx: &mut Context<'_>) -> bool {
        let Way::Open(upstream) = &mut self.way else { return false };
        let worker = &self.worker;
        let lender = Lender { buffers: &worker.buffers, pipes: &worker.pipes };
        let before = (self.relay.sent().bytes_out(), self.relay.received().bytes_in());
        let polled = self.relay.poll(&mut self.down.stream, &mut upstream.stream, lender, cx);
        let after = (self.relay.sent().bytes_out(), self.relay.received().bytes_in());
        self.count();
        self.note_moved(before, after, cx);
        self.act(cx);
        if let Poll::Ready(ended) = polled {
            self.on_ended(ended, cx);
        }
        polled.is_ready()
    }

    /// Bytes of the application begin a turn, bytes of the server end it. What moved both ways at once is taken for asked
    /// and answered: nothing else would notice that the answer is here.
    fn note_moved(&mut self, before: (u64, u64), after: (u64, u64), cx: &Context<'_>) {
        let Some(flight) = &mut self.flight else { return };
        if after.0 > before.0 {
            flight.handle_turn_begins(self.now);
        }
        if after.1 > before.1 {
            if before.1 == 0 || flight.is_in_turn() {
                self.tell(cx, Flight::handle_turn_ends);
            } else {
                flight.handle_progress(self.now);
            }
        }
    }

    pub(super) fn on_ended(&mut self, ended: Ended, cx: &Context<'_>) {
        match ended {
            Ended::Whole => {
                self.end = Some(End::Whole);
                self.way = Way::None;
                self.tell(cx, Flight::handle_ended);
            }
            Ended::CallerReset => {
                self.end = Some(End::CallerGone);
                self.tell(cx, Flight::handle_caller_gone);
            }
            Ended::EndpointReset => {
                self.tell(cx, |flight, shared, now| flight.handle_failed(Failure::Reset, shared, now));
            }
        }
    }

    /// Lets the flight's clocks run out, or sets the alarm for the next one.
    fn ring(&mut self, cx: &mut Context<'_>) -> bool {
        let next = self.flight.as_ref().and_then(Flight::next_timeout);
        if next.is_some_and(|at| at <= self.now) {
            self.tell(cx, Flight::handle_timeout);
            self.act(cx);
            return true;
        }
        let mut look = None;
        if let Way::Open(upstream) = &self.way
            && self.relay.is_half_over()
        {
            if self.next_look <= self.now {
                self.next_look = self.now + LOOK;
                if let Some(ended) = self.relay.look(&self.down.stream, &upstream.stream) {
                    self.on_ended(ended, cx);
                    self.act(cx);
                    return true;
                }
            }
            look = Some(self.next_look);
        }
        self.down.alarm.set(next.into_iter().chain(look).min(), cx.waker());
        false
    }

    /// Ends the connection to the endpoint otherwise than it wanted.
    fn drop_way(&mut self) {
        if let Way::Open(upstream) = std::mem::replace(&mut self.way, Way::None) {
            reset_on_close(upstream.stream.socket());
        }
    }

    /// Ends whatever goes on, whoever wants it.
    pub(super) fn abandon(&mut self) {
        if !self.landed {
            self.now = self.worker.now();
            let now = self.now;
            let dependency = &self.routed.find(&self.snapshot).0.dependency;
            if let Some(flight) = &mut self.flight {
                let waiter = flight.waiter();
                dependency.with(|shared| {
                    flight.handle_caller_gone(&mut shared.protection, now);
                    if let Some(waiter) = waiter {
                        shared.stop_waiting(waiter);
                    }
                });
                while flight.poll_action().is_some() {}
            }
            self.landed = true;
            self.end.get_or_insert(End::CallerGone);
        }
        self.drop_way();
    }

    /// Reports the connection, if it was ours, and gives back what is used again.
    pub(super) fn finish(&mut self) {
        let lender = Lender { buffers: &self.worker.buffers, pipes: &self.worker.pipes };
        self.relay.give_back(lender);
        lender.buffers.give_back(std::mem::take(&mut self.greeting));
        if std::mem::take(&mut self.committed) {
            if self.end != Some(End::Whole) {
                reset_on_close(&self.down.stream);
            }
            self.report();
        }
    }
}

impl Drop for Connection {
    /// Ends a connection whose worker or process is going away. It is reset: an orderly end would make the part that
    /// went out look whole.
    fn drop(&mut self) {
        self.abandon();
        self.finish();
    }
}
