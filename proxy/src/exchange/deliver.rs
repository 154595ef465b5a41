//! What goes back to the caller: the dependency's answer, or one of our own.

use bytes::Bytes;
use plimsoll_h1::FieldKind;
use plimsoll_resilience::rejection::Rejection;

use super::{Exchange, is_tunnel_asked};
use crate::forward::heads;
use crate::reject::{self, AnswerForm, Refusal, write_answer};

/// An answer of our own, in the words of the caller's protocol.
enum OwnAnswer {
    Text { text: Vec<u8>, status: u16 },
    Stream { response: http::Response<()>, body: Bytes, status: u16 },
}

impl Exchange {
    pub(super) fn deliver(&mut self) {
        let is_tunnel = is_tunnel_asked(&self.request.head) && (200..300).contains(&self.answer.head.status);
        let is_switch = self.answer.head.status == 101 || is_tunnel;
        if self.caller.is_stream() {
            self.deliver_to_stream();
        } else {
            self.deliver_to_connection(is_switch);
        }
        if is_switch {
            self.tunnel = true;
            self.request.become_raw();
            self.take_body();
        }
        self.answer.on_sent(0);
    }

    fn deliver_to_connection(&mut self, is_switch: bool) {
        self.decide_keep_alive();
        let head = &self.answer.head;
        let caller = self.request.head.version;
        self.keep_alive &= heads::delimits(head.framing, caller);
        let keeps = self.keep_alive || is_switch;
        let retries_over = self.flight.summary().retries_over;
        let bare = self.answer.is_bare();
        let (buf, out) = (self.answer.bytes(), self.reply.out());
        let delivery = heads::put_response(head, buf, bare, caller, keeps, retries_over, out);
        self.reply.begin(head.status, delivery);
    }

    fn deliver_to_stream(&mut self) {
        let fields = self.answer.take_stream_fields();
        let answer = &self.answer;
        let ends = answer.is_whole() && answer.unsent().is_empty() && answer.trailers().is_none();
        let retries_over = self.flight.summary().retries_over;
        let response = heads::stream_response(&answer.head, answer.bytes(), fields, retries_over);
        self.reply.begin_on_stream(answer.head.status, false, ends);
        self.send_head(response, ends, Bytes::new());
    }

    /// A stream that takes no head any more is found out about by whoever looks after the caller.
    fn send_head(&mut self, response: http::Response<()>, ends: bool, own: Bytes) {
        if let Some(stream) = self.caller.stream()
            && let Err(error) = stream.send_head(response, ends, own)
        {
            tracing::debug!(?error, "the caller's stream has ended");
        }
    }

    /// Answers in the dependency's stead; with `status` in place of the reason's own.
    pub(super) fn reject(&mut self, rejection: Rejection, status: Option<u16>) {
        self.rejected = Some(rejection);
        self.decide_keep_alive();
        let own = self.own_answer(&Refusal { status, ..self.refusal_of(&rejection) });
        self.put_own(own);
    }

    /// Answers a request whose body breaks its framing.
    pub(super) fn answer_malformed(&mut self) {
        self.decide_keep_alive();
        let own = self.own_answer(&self.named(Refusal::malformed("the body of the request breaks its framing")));
        self.put_own(own);
    }

    fn own_answer(&self, refusal: &Refusal<'_>) -> OwnAnswer {
        let request = Some((&*self.request.head, self.request.bytes()));
        let date = self.worker.clock.wall(self.now);
        let form = AnswerForm::of(request, self.keep_alive || self.caller.is_stream(), self.caller.is_local(), date);
        let status = refusal.status();
        if !self.caller.is_stream() {
            let mut text = Vec::new();
            write_answer(&mut text, refusal, &form);
            return OwnAnswer::Text { text, status };
        }
        let may_be_repeated = self.may_be_repeated();
        let (response, body) = match self.grpc {
            true => (reject::grpc_answer(refusal, form.local, may_be_repeated), Bytes::new()),
            false => reject::stream_answer(refusal, &form),
        };
        OwnAnswer::Stream { status: response.status().as_u16(), response, body }
    }

    /// Whether the caller may safely send the call again (RFC 9110 9.2.2).
    fn may_be_repeated(&self) -> bool {
        let head = &self.request.head;
        head.method.is_idempotent() || head.fields.contains(FieldKind::IdempotencyKey)
    }

    fn put_own(&mut self, own: OwnAnswer) {
        match own {
            OwnAnswer::Text { text, status } => self.reply.put_own(&text, status),
            OwnAnswer::Stream { response, body, status } => {
                let ends = body.is_empty();
                self.reply.begin_on_stream(status, true, ends);
                self.send_head(response, ends, body);
            }
        }
    }
}
