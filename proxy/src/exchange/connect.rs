//! Rooms 7 and 8: an endpoint for an attempt, and a connection to it.

use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::Context;
use std::time::Duration;

use bytes::BytesMut;
use plimsoll_h1::{Limits, Upgrade};
use plimsoll_resilience::flight::{Action, Attempt};
use plimsoll_resilience::random::Random;
use plimsoll_resilience::rejection::{Block, EndpointKey};

use super::link::{Chunks, Link, OnConnection, Waiting, Way, wait_for_socket};
use super::way::{self, Plan};
use super::{Exchange, Speaks};
use crate::dial::{Destination, Security};
use crate::forward::heads::{self, RequestFacts};
use crate::pick::{self, Endpoint, NoEndpoint, key_of_name};
use crate::pool::Upstream;
use crate::pool::streams::{Found, StreamKey};
use crate::route::Target;
use crate::route::hosts::split_authority;
use crate::snapshot::Endpoints;
use crate::sockets::OpenSocket;
use crate::tls::Offer;

/// Callers choose names: with a key that they do not know, none can be made to look like another.
static NAMES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// What there is without making anything.
pub enum Pooled {
    /// A connection.
    Way(Way),
    /// One that somebody is making.
    Coming,
    /// Nothing.
    None,
}

impl Exchange {
    /// Rooms 7 and 8: an endpoint, and a connection to it.
    pub(super) fn begin(&mut self, attempt: Attempt, cx: &mut Context<'_>) {
        self.attempt = attempt.number;
        self.trouble = None;
        self.restart_answer();
        let (endpoint, destination) = match self.routed.target() {
            Target::Address(address) => (Endpoint::new(*address).key, Destination::Address(*address)),
            Target::Name(name, port) => (key_of_name(name, *port), Destination::Name(Arc::clone(name), *port)),
            Target::Endpoints => match self.pick(attempt) {
                Ok(endpoint) => (endpoint.key, Destination::Address(endpoint.address)),
                Err(NoEndpoint { all_open }) => {
                    return self.tell(cx, |flight, shared, now| flight.handle_no_endpoint(all_open, shared, now));
                }
            },
        };
        let pooled = if attempt.fresh_connection { Pooled::None } else { self.take_pooled(&destination) };
        match pooled {
            Pooled::Way(way) => self.use_way(endpoint, way, cx),
            Pooled::Coming => self.connect(endpoint, destination, None, cx),
            Pooled::None => self.find_socket(endpoint, destination, cx),
        }
    }

    fn use_way(&mut self, endpoint: EndpointKey, way: Way, cx: &mut Context<'_>) {
        match self.picked(endpoint, cx) {
            None => self.open(way, cx),
            Some(action) => self.perform(action, cx),
        }
    }

    /// A connection has become free while the attempt was waiting for a socket of its own.
    pub(super) fn use_pooled(&mut self, way: Way, cx: &mut Context<'_>) {
        if let Link::Waiting(waiting) = std::mem::replace(&mut self.link, Link::None) {
            self.use_way(waiting.endpoint, way, cx);
        }
    }

    /// Tells the flight where the attempt goes. Something else is to be done when it does not want it any more: the
    /// breaker may have opened since the endpoint was picked.
    fn picked(&mut self, endpoint: EndpointKey, cx: &Context<'_>) -> Option<Action> {
        self.tell(cx, |flight, shared, now| flight.handle_picked(endpoint, shared, now));
        self.flight.poll_action()
    }

    /// One more socket under `maxConnections`, or a place among those who wait for one.
    fn find_socket(&mut self, endpoint: EndpointKey, destination: Destination, cx: &mut Context<'_>) {
        if let Some(refused) = self.service().would_be_too_many_connections() {
            self.would_refuse(&refused);
        }
        let sockets = Arc::clone(self.dependency().sockets());
        if let Some(socket) = sockets.try_open() {
            return self.connect(endpoint, destination, Some(socket), cx);
        }
        let wait = self.service().connections.map_or(Duration::ZERO, |limit| limit.config.max_wait);
        self.ask_for_socket();
        let socket = Box::pin(wait_for_socket(sockets, wait));
        self.link = Link::Waiting(Waiting { endpoint, destination, socket });
        // From here on the flight is told when the breaker opens, as one that waits for a permit is.
        self.tell(cx, |flight, shared, now| flight.handle_socket_wait(endpoint, shared, now));
    }

    /// Makes a connection; without a socket, waits for the one that is being made.
    pub(super) fn connect(
        &mut self,
        endpoint: EndpointKey,
        destination: Destination,
        socket: Option<OpenSocket>,
        cx: &mut Context<'_>,
    ) {
        if let Some(action) = self.picked(endpoint, cx) {
            // Given up first: what is to be done may need it.
            drop(socket);
            return self.perform(action, cx);
        }
        let plan = self.plan(destination);
        let worker = Rc::clone(&self.worker);
        self.link = Link::Dialing(match (self.speaks, socket) {
            (Speaks::Http1 | Speaks::Raw, Some(socket)) => Box::pin(way::connection(worker, plan, socket)),
            (_, socket) => Box::pin(way::stream(worker, plan, socket)),
        });
    }

    fn plan(&self, destination: Destination) -> Plan {
        let timeouts = &self.route().rules.timeouts;
        let service = self.service();
        // Within a tunnel the caller speaks TLS itself, if anyone does.
        let origination = service.security.clone().filter(|_| self.speaks != Speaks::Raw);
        let offer = match self.speaks {
            Speaks::Http1 => Offer::Http1,
            Speaks::Http2 => Offer::Http2,
            Speaks::Either => Offer::Http2OrHttp1,
            Speaks::Raw => Offer::Nothing,
        };
        let security = origination.map(|origination| Security { origination, offer, host: self.asked_host().into() });
        Plan {
            key: self.stream_key(destination),
            dependency: Arc::clone(&service.dependency),
            security,
            wait: service.connections.map_or(Duration::ZERO, |limit| limit.config.max_wait),
            needs_settings: self.is_websocket_on_stream(),
            connect: if timeouts.mode.enforces() { timeouts.connect } else { Duration::MAX },
            idle: timeouts.idle,
        }
    }

    fn stream_key(&self, destination: Destination) -> StreamKey {
        StreamKey { dependency: self.dependency().id, destination, security: self.security_id() }
    }

    fn is_websocket_on_stream(&self) -> bool {
        self.request.head.upgrade == Upgrade::WebSocket && self.caller.is_stream()
    }

    /// The host that the caller addressed, without its port.
    fn asked_host(&self) -> &str {
        let host = str::from_utf8(self.request.head.host.of(self.request.bytes())).unwrap_or("");
        let host = split_authority(host).map_or(host, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// What tells connections apart that were made under other settings of TLS, or to prove another name; 0 without it.
    fn security_id(&self) -> u64 {
        match &self.service().security {
            None => 0,
            Some(origination) if origination.names_server() => origination.id(),
            Some(origination) => NAMES.hash_one((origination.id(), self.asked_host())),
        }
    }

    /// Has other workers close what they do not need.
    pub(super) fn ask_for_socket(&self) {
        let dependency = self.dependency().id;
        let shares = matches!(self.speaks, Speaks::Http2 | Speaks::Either);
        let urgent = shares && !self.worker.streams.borrow().has_any(dependency);
        self.worker.process.close_idle(dependency, urgent);
    }

    fn pick(&mut self, attempt: Attempt) -> Result<Endpoint, NoEndpoint> {
        // One turn for each call: if its retries took turns too, every other call would begin where the last one failed.
        let first = *self.turn.get_or_insert_with(|| self.worker.next_turn());
        let turn = first.wrapping_add(attempt.number as usize - 1);
        match &self.service().endpoints {
            Endpoints::Fixed(endpoints) => self.pick_from(endpoints, turn, attempt),
            Endpoints::Resolved(resolved) => self.pick_from(&resolved.load(), turn, attempt),
            Endpoints::AsAddressed => Err(NoEndpoint { all_open: false }),
        }
    }

    fn pick_from(&self, endpoints: &[Endpoint], turn: usize, attempt: Attempt) -> Result<Endpoint, NoEndpoint> {
        let rule = self.route().rules.retry.as_ref().map(|retry| retry.config.different_endpoint);
        let avoid = pick::Avoid::of(attempt.avoid, rule);
        self.dependency()
            .with(|shared| pick::pick(endpoints, turn, avoid, attempt.kind, &mut shared.protection, self.now))
    }

    /// A connection that is there. Unless the call may be sent again, one that was idle has to be beyond doubt.
    pub(super) fn take_pooled(&self, destination: &Destination) -> Pooled {
        let service = self.service();
        let dependency = &service.dependency;
        let take_idle = || {
            let repeatable = self.flight.may_be_retried();
            let idle = self.worker.take_idle(dependency.id, destination, self.security_id(), repeatable);
            idle.map_or(Pooled::None, |upstream| Pooled::Way(Way::Connection(upstream)))
        };
        match self.speaks {
            Speaks::Raw => Pooled::None,
            Speaks::Http1 => take_idle(),
            Speaks::Http2 | Speaks::Either => {
                let key = self.stream_key(destination.clone());
                match self.worker.streams.borrow_mut().find(&key, dependency.sockets(), self.now) {
                    Found::Room(opened) if self.is_websocket_on_stream() && !opened.handle.is_settled() => {
                        Pooled::Coming
                    }
                    Found::Room(opened) => Pooled::Way(Way::Stream(opened)),
                    Found::Dialing(_) => Pooled::Coming,
                    Found::Http1 => take_idle(),
                    Found::Nothing => Pooled::None,
                }
            }
        }
    }

    /// Room 9 begins: the way is ours.
    pub(super) fn open(&mut self, way: Way, cx: &Context<'_>) {
        match way {
            Way::Connection(upstream) if self.speaks == Speaks::Raw => self.open_tunnel(upstream, cx),
            Way::Connection(upstream) => self.open_connection(upstream),
            Way::Stream(opened) => self.open_stream(opened, cx),
            Way::Taken => {
                let sockets = self.dependency().sockets();
                let refused = self.service().too_many_connections(sockets.open(), sockets.limit().unwrap_or(0));
                self.refuse(refused, Block::Bulkhead, cx);
            }
        }
    }

    /// The head goes out with the next write.
    fn open_connection(&mut self, upstream: Upstream) {
        self.flight.handle_connected(self.now);
        self.endpoint = Some(upstream.address);
        self.request.rewind();
        let mut head = self.worker.buffers.lend();
        let bare = !self.request.is_framed();
        heads::put_request(&self.request.head, self.request.bytes(), &self.request_facts(), bare, &mut head);
        let chunks = Chunks::of(&self.request);
        self.link = Link::Connection(OnConnection::new(upstream, head, chunks));
    }

    /// A connection that carries whatever the two ends have to say to each other.
    fn open_tunnel(&mut self, upstream: Upstream, cx: &Context<'_>) {
        self.flight.handle_connected(self.now);
        self.endpoint = Some(upstream.address);
        self.answer.become_tunnel(&Limits::default());
        self.link = Link::Connection(OnConnection::new(upstream, BytesMut::new(), None));
        self.report_head(cx);
    }

    pub(super) fn request_facts(&self) -> RequestFacts<'_> {
        let origin = self.caller.origin();
        RequestFacts {
            direction: origin.direction(),
            peer: origin.peer.ip(),
            remaining: self.flight.remaining(self.now),
            attempt: self.attempt,
            grpc: self.grpc,
            websocket_key: self.is_websocket_on_stream().then(|| websocket_key(&mut self.worker.random.borrow_mut())),
            trace: &self.trace,
        }
    }
}

/// Sixteen bytes in base64 (RFC 6455 4.1). Digits of base 16 are digits of base 64 too; the last of the 22 has two bits.
fn websocket_key(random: &mut Random) -> [u8; 24] {
    let mut key = *b"AAAAAAAAAAAAAAAAAAAAAA==";
    let mut bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    for digit in &mut key[..21] {
        *digit = b"0123456789abcdef"[(bits & 0xf) as usize];
        bits >>= 4;
    }
    key
}
