//! The one table of what each reason looks like from outside: contract.md section 1.

use plimsoll_resilience::Reason;
use plimsoll_resilience::codes::GrpcCode;

/// What `grpc-retry-pushback-ms` says about a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushback {
    /// Nothing: the caller's own rules decide.
    Silent,
    /// `-1`: asking the same sidecar again would end the same way.
    Never,
    /// `-1`, unless the call may safely be repeated.
    NeverUnlessRepeatable,
    /// The time in `Retry-After`.
    After,
}

/// How upstream peers are told that the refusal was about load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadHint {
    /// Not about load.
    None,
    /// `x-envoy-overloaded: true`
    Overloaded,
    /// `x-envoy-ratelimited: true`
    RateLimited,
}

/// One row: how a reason is said in each of the languages that callers and dashboards speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// HTTP status. A refusal may carry another one where the contract allows it ([`super::Refusal::status`]).
    pub status: u16,
    /// gRPC status; `None` where no gRPC answer can be given.
    pub grpc: Option<GrpcCode>,
    /// Envoy's response flag, for dashboards that exist; empty where Envoy has none.
    pub flag: &'static str,
    /// The `error` parameter of `Proxy-Status` (RFC 9209 section 2.3); empty where no answer can be given.
    pub error: &'static str,
    /// Whether the answer carries `Retry-After`.
    pub retry_after: bool,
    /// What a gRPC caller is told about retries.
    pub pushback: Pushback,
    /// The hint for peers that read Envoy's headers.
    pub hint: LoadHint,
    /// The receiver's side counts such an answer as pushback, not as a failure (design.md section 3, Outcomes).
    pub is_pushback: bool,
}

const fn row(status: u16, grpc: GrpcCode, flag: &'static str, error: &'static str) -> Row {
    Row {
        status,
        grpc: Some(grpc),
        flag,
        error,
        retry_after: false,
        pushback: Pushback::Silent,
        hint: LoadHint::None,
        is_pushback: false,
    }
}

impl Row {
    const fn retry_after(mut self) -> Row {
        self.retry_after = true;
        self
    }

    const fn pushback(mut self, pushback: Pushback) -> Row {
        self.pushback = pushback;
        self
    }

    const fn load(mut self, hint: LoadHint) -> Row {
        self.hint = hint;
        self.is_pushback = true;
        self
    }
}

/// The row of a reason.
#[must_use]
pub const fn row_of(reason: Reason) -> Row {
    use GrpcCode::{
        Cancelled, DeadlineExceeded, Internal, PermissionDenied, ResourceExhausted, Unavailable, Unimplemented,
    };
    use LoadHint::Overloaded;
    use Pushback::{After, Never, NeverUnlessRepeatable};
    match reason {
        Reason::RateLimited => {
            row(429, ResourceExhausted, "RL", "http_request_denied").retry_after().load(LoadHint::RateLimited)
        }
        Reason::BulkheadFull | Reason::BulkheadWaitTimeout => {
            row(503, Unavailable, "UO", "connection_limit_reached").pushback(Never).load(Overloaded)
        }
        Reason::ConcurrencyLimited => {
            row(503, Unavailable, "UO", "connection_limit_reached").retry_after().pushback(After).load(Overloaded)
        }
        Reason::Shed => {
            row(503, Unavailable, "OM", "connection_limit_reached").retry_after().pushback(After).load(Overloaded)
        }
        Reason::Overloaded => row(503, Unavailable, "OM", "proxy_internal_error").retry_after().load(Overloaded),
        Reason::CircuitOpen => row(503, Unavailable, "UO", "destination_unavailable").retry_after().pushback(Never),
        Reason::NoHealthyEndpoint => row(503, Unavailable, "UH", "destination_unavailable"),
        Reason::ConnectFailure => row(503, Unavailable, "UF", "connection_refused"),
        Reason::DnsFailure => row(503, Unavailable, "DF", "dns_error"),
        Reason::TlsFailure => row(503, Unavailable, "UF", "tls_protocol_error"),
        Reason::UpstreamReset => row(503, Unavailable, "UC", "connection_terminated").pushback(NeverUnlessRepeatable),
        Reason::UpstreamProtocolError => row(502, Internal, "UPE", "http_protocol_error"),
        Reason::RequestTimeout | Reason::AttemptTimeout => row(504, DeadlineExceeded, "UT", "http_response_timeout"),
        Reason::DeadlineExpired => row(504, DeadlineExceeded, "UMSDR", "http_response_timeout"),
        Reason::IdleTimeout => row(504, DeadlineExceeded, "SI", "http_response_timeout"),
        Reason::RetriesExhausted | Reason::RetryBudgetExhausted => {
            row(503, Unavailable, "URX", "proxy_internal_response").pushback(Never)
        }
        // The fault says which status it imitates; this one stands only where it says none.
        Reason::FaultInjected => row(503, Unavailable, "FI", "proxy_internal_response"),
        Reason::Draining => Row { is_pushback: true, ..row(503, Unavailable, "", "destination_unavailable") },
        Reason::NoRoute => row(404, Unimplemented, "NR", "destination_not_found"),
        Reason::MalformedRequest => row(400, Internal, "DPE", "http_request_error"),
        Reason::HeadersTooLarge => row(431, ResourceExhausted, "DPE", "http_request_error"),
        Reason::BodyTooLarge => row(413, ResourceExhausted, "DPE", "http_request_error"),
        Reason::RequestHeadTimeout => Row { grpc: None, ..row(408, Cancelled, "", "http_request_error") },
        Reason::Forbidden => row(403, PermissionDenied, "", "http_request_denied"),
        Reason::Loop => row(502, Unavailable, "", "proxy_loop_detected"),
        Reason::LimitStoreUnavailable => row(503, Unavailable, "RLSE", "proxy_internal_error").retry_after(),
        Reason::NotReady => row(503, Unavailable, "", "destination_unavailable").retry_after(),
        Reason::ClientGone => row(499, Cancelled, "DC", ""),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// The table as contract.md prints it, so that a changed row is seen in review.
    #[test]
    fn every_reason_has_its_row() {
        let mut table = String::new();
        for &reason in Reason::ALL {
            let row = row_of(reason);
            let grpc = row.grpc.map_or("-".to_owned(), |code| format!("{code:?}"));
            let retry = if row.retry_after { "Retry-After" } else { "-" };
            let name = reason.as_str();
            writeln!(
                table,
                "{name:<22} {} {grpc:<17} {:<5} {:<24} {retry:<11} {:?} {:?}{}",
                row.status,
                row.flag,
                row.error,
                row.pushback,
                row.hint,
                if row.is_pushback { " pushback" } else { "" }
            )
            .unwrap();
        }
        insta::assert_snapshot!(table);
    }
}
