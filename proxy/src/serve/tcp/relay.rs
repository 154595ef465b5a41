//! Two sockets joined: what one says the other hears, its end and its reset included.
//!
//! An end (FIN) is passed on once all that came before it is written, and the other direction goes on; the relay is over
//! when both have ended. A reset (RST) ends both directions, and whoever owns the sockets passes it on. A peer that
//! takes nothing any more may have said something before it went: that is passed on first.

use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::net::TcpStream;

use super::flow::{Flow, Halt, Lender};
use super::wire::{Wire, was_reset};
use crate::transport::Transport;

/// The bytes between a caller and an endpoint.
#[derive(Debug)]
pub struct Relay {
    sent: Flow,
    received: Flow,
    /// The direction is over.
    sent_over: bool,
    received_over: bool,
    caller_lost: bool,
    endpoint_lost: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides have said all they had to say.
    Whole,
    /// The caller has reset its connection.
    CallerReset,
    /// The endpoint has.
    EndpointReset,
}

impl Relay {
    /// A relay of which this much was read already, from the caller and from the endpoint.
    #[must_use]
    pub fn new(from_caller: BytesMut, from_endpoint: BytesMut) -> Self {
        Self {
            sent: Flow::new(from_caller),
            received: Flow::new(from_endpoint),
            sent_over: false,
            received_over: false,
            caller_lost: false,
            endpoint_lost: false,
        }
    }

    /// What the caller says to the endpoint.
    #[must_use]
    pub fn sent(&self) -> &Flow {
        &self.sent
    }

    /// What the endpoint says to the caller.
    #[must_use]
    pub fn received(&self) -> &Flow {
        &self.received
    }

    /// Moves what can be moved, both ways.
    pub fn poll(
        &mut self,
        caller: &mut TcpStream,
        endpoint: &mut Transport,
        lender: Lender<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Ended> {
        if !self.sent_over {
            match self.sent.poll(caller, endpoint, lender, cx) {
                Halt::Waits => {}
                Halt::Ended if self.caller_lost => return Poll::Ready(Ended::CallerReset),
                Halt::Ended => {
                    endpoint.shut_down_write();
                    self.sent_over = true;
                }
                Halt::SourceReset => return Poll::Ready(Ended::CallerReset),
                Halt::SinkReset => (self.sent_over, self.endpoint_lost) = (true, true),
            }
        }
        if !self.received_over {
            match self.received.poll(endpoint, caller, lender, cx) {
                Halt::Waits => {}
                Halt::Ended if self.endpoint_lost => return Poll::Ready(Ended::EndpointReset),
                Halt::Ended => {
                    caller.shut_down_write();
                    self.received_over = true;
                }
                Halt::SourceReset => return Poll::Ready(Ended::EndpointReset),
                Halt::SinkReset => (self.received_over, self.caller_lost) = (true, true),
            }
        }
        match (self.sent_over, self.received_over) {
            (true, true) if self.endpoint_lost => Poll::Ready(Ended::EndpointReset),
            (true, true) if self.caller_lost => Poll::Ready(Ended::CallerReset),
            (true, true) => Poll::Ready(Ended::Whole),
            _ => Poll::Pending,
        }
    }

    /// Whether one direction is over: nobody reads there any more, so that a reset has to be looked for.
    #[must_use]
    pub fn is_half_over(&self) -> bool {
        self.sent_over || self.received_over
    }

    /// Looks for a reset where nobody reads.
    #[must_use]
    pub fn look(&self, caller: &TcpStream, endpoint: &Transport) -> Option<Ended> {
        if self.sent_over && was_reset(caller) {
            return Some(Ended::CallerReset);
        }
        (self.received_over && was_reset(endpoint.socket())).then_some(Ended::EndpointReset)
    }

    /// Gives up what is borrowed, with whatever is in it.
    pub fn give_back(&mut self, lender: Lender<'_>) {
        self.sent.give_back(lender);
        self.received.give_back(lender);
    }
}
