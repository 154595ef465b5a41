//! What the flight asks for, done.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use plimsoll_h1::Version;
use plimsoll_resilience::Mode;
use plimsoll_resilience::flight::{Action, Attempt, Failure, Flight, Head};
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::rejection::{Block, EndpointKey, Rejected, Rejection};

use super::link::{Link, Open, Waiting, wait_for_socket};
use super::{End, Exchange, KEPT_ANSWER, Kept};
use crate::dial::{Destination, dial};
use crate::forward::answer::Answer;
use crate::forward::heads::{self, RequestFacts};
use crate::pick::{self, Endpoint, NoEndpoint, key_of_name};
use crate::pool::Upstream;
use crate::reject::{AnswerForm, Refusal, write_answer};
use crate::route::Target;
use crate::snapshot::Endpoints;
use crate::sockets::OpenSocket;

impl Exchange {
    /// Does what the flight asks for until it asks for nothing more. False when it asked for nothing.
    pub(super) fn act(&mut self, cx: &mut Context<'_>) -> bool {
        let mut acted = false;
        while let Some(action) = self.flight.poll_action() {
            acted = true;
            self.perform(action, cx);
        }
        acted
    }

    fn perform(&mut self, action: Action, cx: &mut Context<'_>) {
        match action {
            Action::Await => {}
            Action::Attempt(attempt) => self.begin(attempt, cx),
            Action::Abandon => self.abandon_attempt(),
            Action::Keep => self.keep_answer(),
            Action::Deliver => self.deliver(),
            Action::DeliverKept { if_cut } => self.deliver_kept(if_cut),
            Action::Reject(rejection) => self.reject(rejection, None),
            Action::Cut(reason) => self.end = Some(End::Cut(reason)),
            Action::Done => self.landed = true,
        }
    }

    /// Rooms 7 and 8: an endpoint, and a connection to it.
    fn begin(&mut self, attempt: Attempt, cx: &mut Context<'_>) {
        self.attempt = attempt.number;
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
        let pooled = if attempt.fresh_connection { None } else { self.take_pooled(&destination) };
        let Some(upstream) = pooled else { return self.find_socket(endpoint, destination, cx) };
        self.use_connection(endpoint, upstream, cx);
    }

    fn use_connection(&mut self, endpoint: EndpointKey, upstream: Upstream, cx: &mut Context<'_>) {
        match self.picked(endpoint, cx) {
            None => self.open(upstream),
            Some(action) => self.perform(action, cx),
        }
    }

    /// A connection has become idle while the attempt was waiting for a socket of its own.
    pub(super) fn use_pooled(&mut self, upstream: Upstream, cx: &mut Context<'_>) {
        if let Link::Waiting(waiting) = std::mem::replace(&mut self.link, Link::None) {
            self.use_connection(waiting.endpoint, upstream, cx);
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
        self.observe_connections();
        let sockets = Arc::clone(self.dependency().sockets());
        if let Some(socket) = sockets.try_open() {
            return self.connect(endpoint, destination, socket, cx);
        }
        let wait = self.service().connections.map_or(Duration::ZERO, |limit| limit.config.max_wait);
        self.worker.process.close_idle(self.dependency().id);
        let socket = Box::pin(wait_for_socket(sockets, wait));
        self.link = Link::Waiting(Waiting { endpoint, destination, socket });
        // From here on the flight is told when the breaker opens, as one that waits for a permit is.
        self.tell(cx, |flight, shared, now| flight.handle_socket_wait(endpoint, shared, now));
    }

    pub(super) fn connect(
        &mut self,
        endpoint: EndpointKey,
        destination: Destination,
        socket: OpenSocket,
        cx: &mut Context<'_>,
    ) {
        if let Some(action) = self.picked(endpoint, cx) {
            // Given up first: what is to be done may need it.
            drop(socket);
            self.perform(action, cx);
        } else {
            let process = Arc::clone(&self.worker.process);
            let dependency = Arc::clone(self.dependency());
            self.link = Link::Dialing(Box::pin(dial(process, dependency, destination, socket)));
        }
    }

    /// What `maxConnections` in Observe would have refused is counted.
    fn observe_connections(&self) {
        let service = self.service();
        let Some(limit) = service.connections.filter(|limit| limit.mode == Mode::Observe) else { return };
        let (open, max) = (service.dependency.sockets().open(), limit.config.max as usize);
        if open >= max {
            self.would_refuse(&self.too_many_connections(open, max));
        }
    }

    pub(super) fn too_many_connections(&self, open: usize, max: usize) -> Rejected {
        let waits = self.service().connections.is_some_and(|limit| !limit.config.max_wait.is_zero());
        let reason = if waits { Reason::BulkheadWaitTimeout } else { Reason::BulkheadFull };
        Rejected::new(reason, open as u64, max as u64)
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

    /// An idle connection of this worker. Unless the call may be sent again, it has to be beyond doubt.
    pub(super) fn take_pooled(&self, destination: &Destination) -> Option<Upstream> {
        let dependency = self.dependency().id;
        let repeatable = self.flight.may_be_retried();
        let take = |address| self.worker.pool.borrow_mut().take(dependency, address, repeatable, self.now);
        match destination {
            Destination::Address(address) => take(*address),
            Destination::Name(name, port) => {
                self.worker.process.resolver.known(name, *port).into_iter().flatten().find_map(take)
            }
        }
    }

    /// Room 9 begins: the connection is ours, and the head goes out with the next write.
    pub(super) fn open(&mut self, upstream: Upstream) {
        self.flight.handle_connected(self.now);
        self.endpoint = Some(upstream.address);
        self.request.rewind();
        let mut head = self.worker.buffers.lend();
        let facts = RequestFacts {
            direction: self.down.origin.direction(),
            peer: self.down.origin.peer.ip(),
            remaining: self.flight.remaining(self.now),
            attempt: self.attempt,
            trace: &self.trace,
        };
        heads::put_request(&self.request.head, self.request.bytes(), &facts, &mut head);
        self.link = Link::Open(Open { upstream, head, head_sent: 0, wrote: false, write_failed: false, shut: false });
    }

    /// The attempt is over without an answer that anyone wants.
    pub(super) fn abandon_attempt(&mut self) {
        self.drop_link();
        if !self.reply.has_begun() {
            self.restart_answer();
        }
    }

    pub(super) fn drop_link(&mut self) {
        if let Link::Open(open) = std::mem::replace(&mut self.link, Link::None) {
            self.worker.buffers.give_back(open.head);
        }
    }

    fn restart_answer(&mut self) {
        if self.answer.held() > 0 || self.answer.has_head() {
            let fresh = self.fresh_answer();
            let (head, buf) = std::mem::replace(&mut self.answer, fresh).take_parts();
            self.worker.response_heads.give_back(head);
            self.worker.buffers.give_back(buf);
        }
        self.kept_link_is_done();
    }

    fn fresh_answer(&self) -> Answer {
        Answer::new(self.worker.response_heads.lend(), self.request.head.version == Version::Http10)
    }

    /// The rest of a kept answer has had its time.
    fn kept_link_is_done(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.link = Link::None;
        }
    }

    fn keep_answer(&mut self) {
        let fresh = self.fresh_answer();
        let answer = std::mem::replace(&mut self.answer, fresh);
        let link = std::mem::replace(&mut self.link, Link::None);
        self.kept = Some(Box::new(Kept { answer, link }));
        self.settle_kept();
    }

    /// Gives the connection of a kept answer back once it is whole, and up once it is too much.
    pub(super) fn settle_kept(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        if kept.answer.is_whole() {
            let link = std::mem::replace(&mut kept.link, Link::None);
            let answer = &kept.answer;
            let reusable = answer.head.keep_alive && !answer.has_excess();
            let patience = answer.head.keep_alive_timeout;
            self.give_back(link, reusable, patience);
        } else if kept.answer.held() > KEPT_ANSWER {
            kept.link = Link::None;
        }
    }

    fn deliver_kept(&mut self, if_cut: Reason) {
        match self.kept.take() {
            Some(kept) if kept.answer.is_whole() => {
                self.answer = kept.answer;
                self.deliver();
            }
            kept => {
                // Too much of the answer to keep: it cannot go out as it came, but its status can.
                let attempts = u64::from(self.flight.summary().attempts);
                let rejection = Rejection {
                    reason: if_cut,
                    cause: None,
                    block: Block::Retry,
                    route: self.route().id,
                    route_block: false,
                    observed: attempts,
                    limit: attempts,
                    retry_at: None,
                };
                let status = kept.map(|kept| kept.answer.head.status).filter(|status| *status >= 400);
                self.reject(rejection, status);
            }
        }
    }

    fn deliver(&mut self) {
        self.decide_keep_alive();
        let head = &self.answer.head;
        let caller = self.request.head.version;
        self.keep_alive &= heads::delimits(head.framing, caller);
        let is_switch = head.status == 101;
        let keeps = self.keep_alive || is_switch;
        let retries_over = self.flight.summary().retries_over;
        let delivery = heads::put_response(head, self.answer.bytes(), caller, keeps, retries_over, self.reply.out());
        self.reply.begin(head.status, delivery);
        if is_switch {
            self.tunnel = true;
            self.request.become_raw();
            self.take_body();
        }
        self.answer.on_sent(0);
    }

    /// Answers in the dependency's stead; with `status` in place of the reason's own.
    fn reject(&mut self, rejection: Rejection, status: Option<u16>) {
        self.rejected = Some(rejection);
        self.decide_keep_alive();
        let (answer, status) = self.written(&Refusal { status, ..self.refusal_of(&rejection) });
        self.reply.put_own(&answer, status);
    }

    /// Answers a request whose body breaks its framing.
    pub(super) fn answer_malformed(&mut self) {
        self.decide_keep_alive();
        let (answer, status) =
            self.written(&self.named(Refusal::malformed("the body of the request breaks its framing")));
        self.reply.put_own(&answer, status);
    }

    fn written(&self, refusal: &Refusal<'_>) -> (Vec<u8>, u16) {
        let mut answer = Vec::new();
        let request = Some((&*self.request.head, self.request.bytes()));
        let date = self.worker.clock.wall(self.now);
        write_answer(&mut answer, refusal, &AnswerForm::of(request, self.keep_alive, self.down.is_local(), date));
        (answer, refusal.status())
    }

    /// Gives a connection back to the pool if another request may follow on it.
    pub(super) fn give_back(&mut self, link: Link, reusable: bool, patience: Option<u32>) {
        let Link::Open(open) = link else { return };
        let sent_whole = self.request.is_whole()
            && self.request.is_sent()
            && open.head_sent == open.head.len()
            && !open.write_failed;
        self.worker.buffers.give_back(open.head);
        if reusable && sent_whole && !self.tunnel {
            let idle = self.route().rules.timeouts.idle;
            let patience = patience.map(|seconds| std::time::Duration::from_secs(u64::from(seconds)));
            self.worker.give_back(self.dependency(), open.upstream, patience, idle, self.now);
        }
    }

    /// Tells the flight of an answer's head.
    pub(super) fn report_head(&mut self, cx: &Context<'_>) {
        let head = self.judge_head();
        self.tell(cx, |flight, shared, now| flight.handle_head(head, shared, now));
    }

    fn judge_head(&self) -> Head {
        let (head, buf) = (&self.answer.head, self.answer.bytes());
        crate::outcome::judge(head, buf, &self.route().rules, self.worker.clock.wall(self.now))
    }

    /// Tells the flight that the attempt failed.
    pub(super) fn fail(&mut self, failure: Failure, cx: &Context<'_>) {
        self.drop_link();
        self.tell(cx, |flight, shared, now| flight.handle_failed(failure, shared, now));
    }

    /// Tells the flight that the attempt is refused on our side, before anything was sent.
    pub(super) fn refuse(&mut self, rejected: Rejected, block: Block, cx: &Context<'_>) {
        self.tell(cx, |flight, shared, now| flight.handle_refused(rejected, block, shared, now));
    }

    /// Tells the flight that nobody waits for the call any more.
    pub(super) fn caller_gone(&mut self, cx: &Context<'_>) {
        self.end = Some(End::CallerGone);
        self.tell(cx, Flight::handle_caller_gone);
    }
}
