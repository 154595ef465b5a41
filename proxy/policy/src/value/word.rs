//! Fixed words, in CamelCase.

use plimsoll_resilience::Mode;
use plimsoll_resilience::backoff::Jitter;
use plimsoll_resilience::breaker::{Scope, SlowTurn};
use plimsoll_resilience::rules::{DifferentEndpoint, Methods, OnRetriedInbound, Streaming, WhenExpired};
use serde_json::{Value as Json, json};
use serde_yaml::Value as Yaml;

use super::{Form, Scalar, is_boolean, scalar};
use crate::nearest::nearest;
use crate::report::Problem;
use crate::tree::quote;

/// Which protocol callers speak to a dependency, or to a port of this workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Found out from the first bytes.
    #[default]
    Auto,
    /// HTTP/1.0 and HTTP/1.1.
    Http1,
    /// HTTP/2, of which gRPC is recognised by its content type.
    Http2,
    /// gRPC over HTTP/2: without a `request` timeout of its own a call may take as long as it likes.
    Grpc,
    /// Bytes that are passed on unread.
    Tcp,
}

/// Which protocol is spoken to the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum UpstreamProtocol {
    /// The one that the caller speaks.
    #[default]
    Same,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; over TLS, HTTP/1.1 where the server does not speak it (ALPN).
    Http2,
}

/// How an endpoint is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// In turn.
    #[default]
    RoundRobin,
    /// Of two drawn at random the one with fewer calls in flight.
    LeastRequest,
}

/// Whether the proxy speaks TLS to the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsMode {
    Disabled,
    Originate,
}

/// What a breaker's window is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowType {
    Time,
    Count,
}

/// How a connection can fail in a way that a retry may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionError {
    ConnectFailure,
    RefusedStream,
    ResetBeforeRequest,
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DependencyKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadKind;

/// Says how an enum is written. `later` are words that policy.md documents and this version does not do.
/// With `pub` the type itself also says how it is written.
macro_rules! words {
    (pub $Type:ident { $( $word:literal = $($value:ident)::+ ),* $(,)? } $($later:tt)*) => {
        impl $Type {
            /// As policy writes it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $( $($value)::+ => $word, )* }
            }
        }

        words!($Type { $( $word = $($value)::+ ),* } $($later)*);
    };
    ($Type:ty { $( $word:literal = $($value:ident)::+ ),* $(,)? } $(later { $($later:literal),* })?) => {
        impl Scalar for $Type {
            const FORM: Form = Form::Word;
            const EXPECTED: &'static str = words!(@list $($word),*);

            fn parse(text: &str) -> Result<Self, Problem> {
                match text {
                    $( $word => Ok($($value)::+), )*
                    $( $( $later => Err(Problem::new(concat!("`", $later, "` is not supported by this version"))), )* )?
                    _ => Err(unknown_word(text, &[$($word),*])),
                }
            }

            fn write(&self) -> Yaml {
                match self { $( $($value)::+ => Yaml::from($word), )* }
            }

            fn schema() -> Json {
                json!({"type": "string", "enum": [$($word),*]})
            }
        }

        scalar!($Type);
    };
    (@list $word:literal) => { $word };
    (@list $first:literal, $($word:literal),*) => { concat!($first $(, ", ", $word)*) };
}

fn unknown_word(text: &str, words: &[&'static str]) -> Problem {
    let lower = text.to_ascii_lowercase();
    let meant = match lower.as_str() {
        "on" | "yes" | "true" | "enabled" | "enforced" => {
            words.iter().find(|word| matches!(**word, "Enforce" | "Originate")).copied()
        }
        "off" | "no" | "false" | "none" => words.iter().find(|word| **word == "Disabled").copied(),
        _ => nearest(text, words.iter().copied()),
    };
    let message = if is_boolean(&lower) {
        format!("{} is a boolean to YAML, not one of these words", quote(text))
    } else if words.iter().any(|word| word.eq_ignore_ascii_case(text)) {
        format!("{} is not written so: these words are CamelCase", quote(text))
    } else {
        format!("{} is not one of the words that can stand here", quote(text))
    };
    Problem::new(message).nearest(meant)
}

words!(DependencyKind { "DependencyPolicy" = DependencyKind });
words!(WorkloadKind { "WorkloadPolicy" = WorkloadKind });
words!(pub Protocol {
    "Auto" = Protocol::Auto,
    "HTTP1" = Protocol::Http1,
    "HTTP2" = Protocol::Http2,
    "GRPC" = Protocol::Grpc,
    "TCP" = Protocol::Tcp,
});
words!(pub UpstreamProtocol {
    "Same" = UpstreamProtocol::Same,
    "HTTP1" = UpstreamProtocol::Http1,
    "HTTP2" = UpstreamProtocol::Http2,
});
words!(pub Algorithm {
    "RoundRobin" = Algorithm::RoundRobin,
    "LeastRequest" = Algorithm::LeastRequest,
} later { "PeakEwma", "Random", "RingHash", "Maglev" });
words!(TlsMode {
    "Disabled" = TlsMode::Disabled,
    "Originate" = TlsMode::Originate,
});
words!(WindowType {
    "Time" = WindowType::Time,
    "Count" = WindowType::Count,
});
words!(ConnectionError {
    "ConnectFailure" = ConnectionError::ConnectFailure,
    "RefusedStream" = ConnectionError::RefusedStream,
    "ResetBeforeRequest" = ConnectionError::ResetBeforeRequest,
    "Reset" = ConnectionError::Reset,
});
words!(Mode {
    "Enforce" = Mode::Enforce,
    "Observe" = Mode::Observe,
    "Disabled" = Mode::Disabled,
});
words!(SlowTurn {
    "Observe" = SlowTurn::Observe,
    "Enforce" = SlowTurn::Enforce,
});
words!(Scope {
    "Dependency" = Scope::Dependency,
    "Route" = Scope::Route,
    "Endpoint" = Scope::Endpoint,
});
words!(Jitter {
    "Full" = Jitter::Full,
    "Equal" = Jitter::Equal,
    "Decorrelated" = Jitter::Decorrelated,
    "None" = Jitter::None,
});
words!(WhenExpired {
    "Reject" = WhenExpired::Reject,
    "Forward" = WhenExpired::Forward,
});
words!(Methods {
    "Safe" = Methods::Safe,
    "Idempotent" = Methods::Idempotent,
    "Any" = Methods::Any,
});
words!(DifferentEndpoint {
    "Prefer" = DifferentEndpoint::Prefer,
    "Require" = DifferentEndpoint::Require,
    "Any" = DifferentEndpoint::Any,
});
words!(OnRetriedInbound {
    "NoRetry" = OnRetriedInbound::NoRetry,
    "Retry" = OnRetriedInbound::Retry,
});
words!(Streaming {
    "Auto" = Streaming::Auto,
    "Always" = Streaming::Always,
    "Never" = Streaming::Never,
});
