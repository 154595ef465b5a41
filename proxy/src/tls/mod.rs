//! TLS that we originate, so that policy can act on calls to a dependency that speaks nothing else.

/// What ALPN offers (RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Offer {
    /// `http/1.1`
    Http1,
    /// `h2`
    Http2,
    /// `h2` before `http/1.1`
    Http2OrHttp1,
    /// No protocol: opaque traffic.
    Nothing,
}

/// What ALPN has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Negotiated {
    /// `http/1.1`
    Http1,
    /// `h2`
    Http2,
    /// Nothing was agreed on.
    Nothing,
}
