//! What an attempt's connection is to speak: as policy, the caller and the call itself have it.

use plimsoll_h1::{Method, RequestHead, Upgrade};

use super::Caller;
use crate::route::Target;
use crate::snapshot::{Service, Upstreams};

/// What the connection of an attempt is to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// Whichever of the two the server chooses.
    Either,
    /// Nothing of ours: the caller has asked for a tunnel.
    Raw,
}

impl Speaks {
    /// For the call with this head.
    pub fn of(service: &Service, target: &Target, head: &RequestHead, caller: &Caller) -> Self {
        // A redirected CONNECT was on its way to a proxy, which is to see it.
        let was_for_us = caller.origin().destination.is_none() || matches!(target, Target::Endpoints);
        if is_tunnel_asked(head) && was_for_us {
            return Self::Raw;
        }
        match service.upstreams {
            // In HTTP/1.1 a WebSocket takes its connection over.
            _ if head.upgrade == Upgrade::WebSocket && !caller.is_stream() => Self::Http1,
            Upstreams::Http1 => Self::Http1,
            Upstreams::Http2 if service.security.is_some() => Self::Either,
            Upstreams::Http2 => Self::Http2,
            Upstreams::AsCaller if caller.is_stream() => Self::Http2,
            Upstreams::AsCaller => Self::Http1,
        }
    }
}

/// Whether the request asks for a tunnel to where it is addressed (RFC 9110 9.3.6).
pub(crate) fn is_tunnel_asked(head: &RequestHead) -> bool {
    head.method == Method::Connect
}
