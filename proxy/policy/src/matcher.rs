//! Which calls a route is for.

use std::borrow::Cow;

use crate::value::HostPattern;

/// All of what is given must hold; a part that is left out always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    /// One of these methods; empty = any. Case-sensitive.
    pub methods: Vec<String>,
    /// The path, without query.
    pub path: Option<PathMatch>,
    /// Every one of these.
    pub headers: Vec<HeaderMatch>,
    /// The host that the caller addressed.
    pub host: Option<HostPattern>,
    /// The gRPC service that is called. Never with `path`.
    pub grpc: Option<GrpcMatch>,
}

/// Calls of a gRPC service, recognised by their path (`/service/method`), as grpc-web has it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcMatch {
    /// Its full name.
    pub service: String,
    /// `None` = any.
    pub method: Option<String>,
}

/// A path in normal form ([`normal_path`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// This path and no other.
    Exact(String),
    /// This path and all below it: `/v1/charge` is a prefix of `/v1/charge/7`, not of `/v1/charges`.
    Prefix(String),
}

/// A header field that must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// In lower case.
    pub name: String,
    /// The value of one of its lines; `None` = any.
    pub exact: Option<String>,
}

/// What a matcher asks a request for.
pub trait Request {
    /// The method, as it came.
    fn method(&self) -> &str;
    /// The path in normal form, without query.
    fn path(&self) -> &str;
    /// The host that was addressed, without port.
    fn host(&self) -> &str;
    /// The port that was addressed.
    fn port(&self) -> u16;
    /// Whether there is a field line of this name (lower case), and with this value if one is given.
    fn has_header(&self, name: &str, value: Option<&str>) -> bool;
}

impl Matcher {
    /// Whether the route is for this request.
    pub fn matches(&self, request: &impl Request) -> bool {
        let method = self.methods.is_empty() || self.methods.iter().any(|method| method == request.method());
        method
            && self.path.as_ref().is_none_or(|path| path.matches(request.path()))
            && self.grpc.as_ref().is_none_or(|grpc| grpc.matches(request.path()))
            && self.host.as_ref().is_none_or(|host| host.matches(request.host(), request.port()))
            && self.headers.iter().all(|header| request.has_header(&header.name, header.exact.as_deref()))
    }
}

impl GrpcMatch {
    /// Whether a call of this path is meant.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
            return false;
        };
        service == self.service && self.method.as_ref().is_none_or(|own| own == method)
    }
}

impl PathMatch {
    /// Whether a path in normal form is meant.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == path,
            Self::Prefix(prefix) => {
                let Some(rest) = path.strip_prefix(prefix.as_str()) else {
                    return false;
                };
                rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/')
            }
        }
    }
}

/// A path as routes are matched: percent-encoded unreserved characters decoded, dot segments removed (RFC 3986
/// 5.2.4 and 6.2.2), doubled slashes made one. What is forwarded is the path as it came. Allocates only if
/// something changes.
#[must_use]
pub fn normal_path(path: &str) -> Cow<'_, str> {
    if is_normal(path) {
        return Cow::Borrowed(path);
    }
    let decoded = decode_unreserved(path);
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let mut normal = String::with_capacity(decoded.len());
    for segment in &segments {
        normal.push('/');
        normal.push_str(segment);
    }
    let last = decoded.rsplit('/').next().unwrap_or("");
    if matches!(last, "" | "." | "..") {
        normal.push('/');
    }
    Cow::Owned(normal)
}

fn is_normal(path: &str) -> bool {
    let bytes = path.as_bytes();
    bytes.first() == Some(&b'/')
        && !bytes.contains(&b'%')
        && !bytes.windows(2).any(|pair| pair == b"//" || pair == b"/.")
}

/// Percent-encodings of unreserved characters are decoded, the hex digits of all others made capitals.
fn decode_unreserved(path: &str) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let hex = after.get(..2).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (hex, byte.map(char::from)) {
            (Some(_), Some(c)) if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~') => {
                decoded.push(c);
            }
            (Some(hex), _) => {
                decoded.push('%');
                decoded.push_str(&hex.to_ascii_uppercase());
            }
            (None, _) => decoded.push('%'),
        }
        rest = &after[hex.map_or(0, str::len)..];
    }
    decoded.push_str(rest);
    decoded
}
