//! Which field is this? Answered once, while a head is decoded, so that nothing later looks a field up by name.

/// Declares [`FieldKind`] together with the names it stands for.
macro_rules! kinds {
    ($($variant:ident = $name:literal,)*) => {
        /// A field that the proxy does something with, or [`FieldKind::Other`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum FieldKind {
            /// A field without meaning to us, forwarded as it is.
            Other,
            /// Any `x-plimsoll-*` without an entry of its own.
            XPlimsoll,
            /// `content-length` or `transfer-encoding` in other punctuation, say `Content_Length`: no field of HTTP, but the
            /// real one to an application behind CGI or WSGI, where `-` and `_` become one.
            FramingLookalike,
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        /// In the order of the discriminants; the first three have no name of their own.
        const KNOWN: &[(FieldKind, &str)] = &[
            (FieldKind::Other, ""),
            (FieldKind::XPlimsoll, ""),
            (FieldKind::FramingLookalike, ""),
            $((FieldKind::$variant, $name),)*
        ];
    };
}

kinds! {
    Host = "host",
    Connection = "connection",
    ContentLength = "content-length",
    TransferEncoding = "transfer-encoding",
    Te = "te",
    Trailer = "trailer",
    Upgrade = "upgrade",
    KeepAlive = "keep-alive",
    ProxyConnection = "proxy-connection",
    Http2Settings = "http2-settings",
    ProxyAuthenticate = "proxy-authenticate",
    ProxyAuthorization = "proxy-authorization",
    Expect = "expect",
    ContentType = "content-type",
    ContentEncoding = "content-encoding",
    ContentRange = "content-range",
    Accept = "accept",
    Authorization = "authorization",
    Cookie = "cookie",
    SetCookie = "set-cookie",
    WwwAuthenticate = "www-authenticate",
    Origin = "origin",
    CacheControl = "cache-control",
    Range = "range",
    MaxForwards = "max-forwards",
    Via = "via",
    Forwarded = "forwarded",
    XForwardedFor = "x-forwarded-for",
    XForwardedHost = "x-forwarded-host",
    XForwardedProto = "x-forwarded-proto",
    Traceparent = "traceparent",
    Tracestate = "tracestate",
    B3 = "b3",
    XB3TraceId = "x-b3-traceid",
    XRequestId = "x-request-id",
    GrpcTimeout = "grpc-timeout",
    GrpcStatus = "grpc-status",
    GrpcMessage = "grpc-message",
    GrpcRetryPushbackMs = "grpc-retry-pushback-ms",
    GrpcPreviousRpcAttempts = "grpc-previous-rpc-attempts",
    XEnvoyExpectedRqTimeoutMs = "x-envoy-expected-rq-timeout-ms",
    XEnvoyAttemptCount = "x-envoy-attempt-count",
    XEnvoyOverloaded = "x-envoy-overloaded",
    XEnvoyRatelimited = "x-envoy-ratelimited",
    IdempotencyKey = "idempotency-key",
    XCriticality = "x-criticality",
    RetryAfter = "retry-after",
    RateLimit = "ratelimit",
    RateLimitPolicy = "ratelimit-policy",
    XRateLimitLimit = "x-ratelimit-limit",
    XRateLimitRemaining = "x-ratelimit-remaining",
    XRateLimitReset = "x-ratelimit-reset",
    ProxyStatus = "proxy-status",
    CacheStatus = "cache-status",
    XPlimsollRetry = "x-plimsoll-retry",
    Date = "date",
    Location = "location",
    UserAgent = "user-agent",
    Age = "age",
    Vary = "vary",
}

impl FieldKind {
    /// What `name` means, in any case. `name` must be a token (RFC 9110 5.6.2), as heads have been checked to hold.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        if name.is_empty() {
            return Self::Other;
        }
        let kind = BY_HASH[slot(name)];
        if equal_to_lower(name, kind.name().as_bytes()) {
            kind
        } else if name.len() > PREFIX.len() && equal_to_lower(&name[..PREFIX.len()], PREFIX) {
            Self::XPlimsoll
        } else if is_framing_lookalike(name) {
            Self::FramingLookalike
        } else {
            Self::Other
        }
    }

    /// The name in lower case; empty for the kinds that are not one field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        KNOWN[self as usize].1
    }
}

/// How many kinds at the start of `KNOWN` have no name.
const NAMELESS: usize = 3;

const PREFIX: &[u8] = b"x-plimsoll-";

/// One slot per known name and no collision, checked when this crate is compiled. Whoever adds a name that collides
/// changes a factor of [`slot`] until it compiles.
static BY_HASH: [FieldKind; 256] = by_hash();

const fn by_hash() -> [FieldKind; 256] {
    let mut table = [FieldKind::Other; 256];
    let mut at = NAMELESS;
    while at < KNOWN.len() {
        let (kind, name) = KNOWN[at];
        assert!(kind as usize == at, "KNOWN follows the discriminants");
        assert!(at < 64, "a KindSet holds 64 kinds");
        let slot = slot(name.as_bytes());
        assert!(matches!(table[slot], FieldKind::Other), "two names share a slot");
        table[slot] = kind;
        at += 1;
    }
    table
}

const fn slot(name: &[u8]) -> usize {
    let len = name.len();
    let first = (name[0] | 0x20) as usize;
    let late = (name[len * 3 / 4] | 0x20) as usize;
    let last = (name[len - 1] | 0x20) as usize;
    (len * 100 + first * 167 + last * 231 + late * 248) & 0xff
}

/// Setting bit 5 turns upper case into lower and maps no other token character onto a letter, digit or hyphen, so this
/// is exact for `name` a token and `lower` of those characters.
fn equal_to_lower(name: &[u8], lower: &[u8]) -> bool {
    if name.len() != lower.len() {
        return false;
    }
    let eight = |a: &[u8; 8], b: &[u8; 8]| u64::from_ne_bytes(*a) | 0x2020_2020_2020_2020 == u64::from_ne_bytes(*b);
    let four = |a: &[u8; 4], b: &[u8; 4]| u32::from_ne_bytes(*a) | 0x2020_2020 == u32::from_ne_bytes(*b);
    // The last word may overlap the one before it.
    if let (Some(a), Some(b)) = (name.last_chunk(), lower.last_chunk()) {
        let (words, lower_words) = (name.as_chunks().0, lower.as_chunks().0);
        eight(a, b) && words.iter().zip(lower_words).all(|(a, b)| eight(a, b))
    } else if let (Some(a), Some(b)) = (name.last_chunk(), lower.last_chunk()) {
        four(a, b) && name.first_chunk().zip(lower.first_chunk()).is_some_and(|(a, b)| four(a, b))
    } else {
        name.iter().zip(lower).all(|(a, b)| a | 0x20 == *b)
    }
}

/// Whether the letters are those of a field that frames a message, for a name that is none.
fn is_framing_lookalike(name: &[u8]) -> bool {
    let letters = || name.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase);
    name.len() >= 13 && (letters().eq(*b"contentlength") || letters().eq(*b"transferencoding"))
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindSet(u64);

impl KindSet {
    /// No kind.
    pub const EMPTY: Self = Self(0);

    /// Exactly `kinds`.
    #[must_use]
    pub const fn of(kinds: &[FieldKind]) -> Self {
        let mut set = Self::EMPTY;
        let mut at = 0;
        while at < kinds.len() {
            set = set.with(kinds[at]);
            at += 1;
        }
        set
    }

    /// This set and `kind`.
    #[must_use]
    pub const fn with(self, kind: FieldKind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    /// This set and `other`.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `kind` is in it.
    #[must_use]
    pub const fn contains(self, kind: FieldKind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = FieldKind> {
        KNOWN.iter().map(|(kind, _)| *kind).filter(move |kind| self.contains(*kind))
    }

    /// Whether they have a kind in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_recognised_in_any_case() {
        for (kind, name) in &KNOWN[NAMELESS..] {
            assert_eq!(FieldKind::of(name.as_bytes()), *kind);
            assert_eq!(FieldKind::of(name.to_ascii_uppercase().as_bytes()), *kind);
        }
    }

    #[test]
    fn a_name_one_byte_off_is_another() {
        const TOKEN: &[u8] = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        for (kind, name) in &KNOWN[NAMELESS..] {
            for at in 0..name.len() {
                for &byte in TOKEN {
                    let mut other = name.as_bytes().to_vec();
                    other[at] = byte;
                    let is_same = other.eq_ignore_ascii_case(name.as_bytes());
                    assert_eq!(FieldKind::of(&other) == *kind, is_same, "{other:?}");
                }
            }
        }
    }

    #[test]
    fn lookalikes_are_recognised() {
        for name in [
            "Content_Length",
            "content--length",
            "contentlength",
            "Transfer_Encoding",
            "TRANSFER.ENCODING",
            "_Content-Length~",
        ] {
            assert_eq!(FieldKind::of(name.as_bytes()), FieldKind::FramingLookalike, "{name}");
        }
        for name in ["content-lengths", "content-lengt", "x-content-length", "transfer-encodin", "t", "th", "cg"] {
            assert_eq!(FieldKind::of(name.as_bytes()), FieldKind::Other, "{name}");
        }
    }

    #[test]
    fn our_prefix_is_recognised() {
        assert_eq!(FieldKind::of(b"X-Plimsoll-Anything"), FieldKind::XPlimsoll);
        assert_eq!(FieldKind::of(b"x-plimsoll-"), FieldKind::Other);
        assert_eq!(FieldKind::of(b"x-plimsoll"), FieldKind::Other);
        assert_eq!(FieldKind::of(b""), FieldKind::Other);
    }
}
