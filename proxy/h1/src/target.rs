//! The request target and its four forms (RFC 9112 section 3.2), and hosts.

use crate::{error::RequestError, field::Span, method::Method};

/// The form a request target was sent in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    #[default]
    Origin,
    /// `http://host/path?query`, as sent to a forward proxy.
    Absolute,
    /// `host:port`, for CONNECT and nothing else.
    Authority,
    /// `*`, for OPTIONS and nothing else.
    Asterisk,
}

/// What a target is made of. The spans lie in the buffer of the head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Target {
    pub(crate) form: TargetForm,
    pub(crate) https: bool,
    /// Empty unless the form has one.
    pub(crate) authority: Span,
    /// Path and query; may be empty, or begin with `?`, in absolute form.
    pub(crate) path: Span,
}

/// `target` has been found by httparse: it is not empty and holds no white space.
pub(crate) fn parse_target(method: Method, target: &[u8], at: Span) -> Result<Target, RequestError> {
    if method == Method::Connect {
        return match parse_host(target) {
            Some(Host { has_port: true }) => {
                Ok(Target { form: TargetForm::Authority, authority: at, ..Target::default() })
            }
            _ => Err(RequestError::Authority),
        };
    }
    // A fragment is never sent. Bytes above ASCII are no part of a target either, and to a server in Python some of them
    // are white space that ends it.
    if !all(target, |byte| byte.is_ascii_graphic() & (byte != b'#')) {
        return Err(RequestError::Target);
    }
    match target {
        [b'/', ..] => Ok(Target { path: at, ..Target::default() }),
        b"*" if method == Method::Options => Ok(Target { form: TargetForm::Asterisk, path: at, ..Target::default() }),
        _ => parse_absolute(target, at),
    }
}

/// Whether `is` holds for every byte. Without an early way out, so that it is a loop without branches.
#[inline]
fn all(bytes: &[u8], is: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(0, |others, &byte| others | u8::from(!is(byte))) == 0
}

fn parse_absolute(target: &[u8], at: Span) -> Result<Target, RequestError> {
    let scheme = |name: &[u8]| target.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    let (https, from) = match () {
        () if scheme(b"http://") => (false, 7),
        () if scheme(b"https://") => (true, 8),
        () => return Err(RequestError::Target),
    };
    let len = target[from..].iter().take_while(|&&byte| byte != b'/' && byte != b'?').count();
    // Userinfo is refused here with every other byte that no host has (RFC 9110 4.2.4).
    if parse_host(&target[from..from + len]).is_none() {
        return Err(RequestError::Authority);
    }
    let start = at.start as usize + from;
    let path = start + len;
    Ok(Target {
        form: TargetForm::Absolute,
        https,
        authority: Span::new(start, path),
        path: Span::new(path, at.end as usize),
    })
}

/// A host that was found to be one.
pub(crate) struct Host {
    pub(crate) has_port: bool,
}

/// `uri-host [ ":" port ]`, narrower than RFC 3986: letters, digits, `-._~`, or an IPv6 literal; a port, if there is a
/// colon, of digits up to 65535. Percent-encoding and sub-delims are grammatical in a registered name but occur in none,
/// and every reader has its own idea of what they mean.
pub(crate) fn parse_host(value: &[u8]) -> Option<Host> {
    let (host_len, is_host) = match value {
        [b'[', literal @ ..] => {
            let len = literal.iter().position(|&byte| byte == b']')?;
            (len + 2, is_ipv6(&literal[..len]))
        }
        _ => {
            let len = memchr::memchr(b':', value).unwrap_or(value.len());
            let is_name = all(&value[..len], |byte| HOST_BYTE[usize::from(byte)]);
            (len, is_name && (1..=MAX_HOST).contains(&len))
        }
    };
    match (is_host, &value[host_len..]) {
        (true, []) => Some(Host { has_port: false }),
        (true, [b':', port @ ..]) if is_port(port) => Some(Host { has_port: true }),
        _ => None,
    }
}

/// The longest name that DNS has, with its final dot (RFC 1035 3.1).
const MAX_HOST: usize = 254;

/// Letters, digits and `-._~`.
static HOST_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

fn is_ipv6(literal: &[u8]) -> bool {
    std::str::from_utf8(literal).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

fn is_port(port: &[u8]) -> bool {
    (1..=5).contains(&port.len())
        && port.iter().all(u8::is_ascii_digit)
        && port.iter().fold(0u32, |sum, digit| sum * 10 + u32::from(digit - b'0')) <= 65_535
}
