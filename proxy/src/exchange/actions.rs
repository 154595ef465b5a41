//! What the flight asks for, done.

use std::task::Context;
use std::time::Duration;

use plimsoll_h1::Version;
use plimsoll_resilience::flight::{Action, Failure, Flight, Head};
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::rejection::{Block, Rejected, Rejection};
use socket2::SockRef;

use super::link::Link;
use super::{End, Exchange, KEPT_ANSWER, Kept};
use crate::forward::answer::Answer;
use crate::outcome;
use crate::streams::Code;

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

    pub(super) fn perform(&mut self, action: Action, cx: &mut Context<'_>) {
        match action {
            Action::Await => {}
            Action::Attempt(attempt) => self.begin(attempt, cx),
            Action::Abandon => self.abandon_attempt(),
            Action::Keep => self.keep_answer(),
            Action::Deliver => self.deliver(),
            Action::DeliverKept { if_cut } => self.deliver_kept(if_cut),
            Action::Reject(rejection) => self.reject(rejection, None),
            Action::Cut(reason) => {
                self.set_cut_code(reason);
                self.end = Some(End::Cut(reason));
            }
            Action::Done => self.landed = true,
        }
    }

    /// The attempt is over without an answer that anyone wants.
    pub(super) fn abandon_attempt(&mut self) {
        self.tear_tunnel();
        self.drop_link();
        if !self.reply.has_begun() {
            self.restart_answer();
        }
    }

    pub(super) fn drop_link(&mut self) {
        match std::mem::replace(&mut self.link, Link::None) {
            Link::Connection(open) => self.worker.buffers.give_back(open.head),
            Link::Stream(mut open) => {
                if open.awaited.is_some() {
                    open.opened.give_up(self.now);
                }
                open.outflow.reset(Code::CANCEL);
            }
            Link::None | Link::Waiting(_) | Link::Dialing(_) => {}
        }
    }

    pub(super) fn restart_answer(&mut self) {
        if self.answer.held() > 0 || self.answer.has_head() {
            let fresh = self.fresh_answer();
            let (head, buf) = std::mem::replace(&mut self.answer, fresh).take_parts();
            self.worker.response_heads.give_back(head);
            self.worker.buffers.give_back(buf);
        }
        self.kept_link_is_done();
    }

    fn fresh_answer(&self) -> Answer {
        let dechunk = self.request.head.version == Version::Http10 || self.caller.is_stream();
        Answer::new(self.worker.response_heads.lend(), dechunk)
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

    /// Gives a connection back to the pool if another request may follow on it.
    pub(super) fn give_back(&mut self, link: Link, reusable: bool, patience: Option<u32>) {
        match link {
            Link::Connection(open) => {
                let sent_whole = self.request.is_whole() && self.request.is_sent() && open.is_sent();
                self.worker.buffers.give_back(open.head);
                if reusable && sent_whole && !self.tunnel {
                    let idle = self.route().rules.timeouts.idle;
                    let patience = patience.map(|seconds| Duration::from_secs(u64::from(seconds)));
                    self.worker.give_back(self.dependency(), open.upstream, patience, idle, self.now);
                }
            }
            // The answer is whole: what is left of the request, if anything, nobody wants.
            Link::Stream(mut open) if !open.ended => open.outflow.reset(Code::NO_ERROR),
            _ => {}
        }
    }

    /// Tells the flight of an answer's head.
    pub(super) fn report_head(&mut self, cx: &Context<'_>) {
        let head = self.judge_head();
        self.tell(cx, |flight, shared, now| flight.handle_head(head, shared, now));
    }

    pub(super) fn judge_head(&self) -> Head {
        let (head, buf) = (&self.answer.head, self.answer.bytes());
        let wall = self.worker.clock.wall(self.now);
        match self.grpc {
            true => {
                let (trailers, is_whole) = (self.answer.trailers(), self.answer.is_whole());
                outcome::judge_grpc(head, buf, trailers, is_whole, &self.route().rules, wall)
            }
            false => outcome::judge(head, buf, &self.route().rules, wall),
        }
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

    /// A tunnel that ends other than in order is reset: an orderly end would make what went through it look whole.
    pub(super) fn tear_tunnel(&self) {
        if let Link::Connection(open) = &self.link
            && self.tunnel
        {
            let _ = SockRef::from(open.upstream.stream.socket()).set_linger(Some(Duration::ZERO));
        }
    }

    /// Tells the flight that nobody waits for the call any more.
    pub(super) fn caller_gone(&mut self, cx: &Context<'_>) {
        self.tear_tunnel();
        self.end = Some(End::CallerGone);
        self.tell(cx, Flight::handle_caller_gone);
    }
}
