//! Host names as callers address them.

use std::fmt;
use std::net::IpAddr;

use serde_json::{Value as Json, json};
use serde_yaml::Value as Yaml;

use super::address::parse_port;
use super::{Form, Scalar, scalar};
use crate::report::Problem;
use crate::tree::quote;

/// Which hosts, and which port of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// The name.
    pub name: HostName,
    /// `None`: every port.
    pub port: Option<u16>,
}

/// A host name, or all names below one. Always in lower case and without a final dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostName {
    /// This name or address literal (IPv6 without brackets).
    Exact(String),
    /// `*.fraud.internal` is held as `fraud.internal`; any number of labels may stand in for the star, but not none.
    Wildcard(String),
}

impl HostPattern {
    /// Whether a host and port are meant. `host` is compared without regard to case or a final dot.
    #[must_use]
    pub fn matches(&self, host: &str, port: u16) -> bool {
        self.port.is_none_or(|own| own == port) && self.name.matches(host)
    }
}

impl HostName {
    /// Whether a host is meant.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).as_bytes();
        match self {
            Self::Exact(name) => host.eq_ignore_ascii_case(name.as_bytes()),
            Self::Wildcard(parent) => {
                let Some(dot) = host.len().checked_sub(parent.len() + 1) else {
                    return false;
                };
                dot > 0 && host[dot] == b'.' && host[dot + 1..].eq_ignore_ascii_case(parent.as_bytes())
            }
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard(parent) => write!(f, "*.{parent}"),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.port) {
            (name, None) => write!(f, "{name}"),
            (HostName::Exact(name), Some(port)) if name.contains(':') => {
                write!(f, "[{name}]:{port}")
            }
            (name, Some(port)) => write!(f, "{name}:{port}"),
        }
    }
}

impl Scalar for HostPattern {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str = "a host with or without a port, such as fraud.example.com:443 or *.fraud.internal";

    fn parse(text: &str) -> Result<Self, Problem> {
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split('/').next().unwrap_or(rest);
            let better = Self::parse(host).is_ok().then_some(host);
            return Err(Problem::new(format!("{} is a URL", quote(text))).nearest(better));
        }
        let (name, port) = split_port(text)?;
        let port = port.map(parse_port).transpose()?;
        let lower = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let wrong = || Problem::new(format!("{} is not a host", quote(text)));
        let name = match lower.strip_prefix("*.") {
            Some(parent) if is_dns_name(parent) => HostName::Wildcard(parent.to_owned()),
            None if is_dns_name(&lower) || lower.parse::<IpAddr>().is_ok() => HostName::Exact(lower),
            _ if lower.contains('*') => {
                return Err(wrong().expected("a star only as the whole first label: *.fraud.internal"));
            }
            _ => return Err(wrong()),
        };
        Ok(Self { name, port })
    }

    fn write(&self) -> Yaml {
        Yaml::from(self.to_string())
    }

    fn schema() -> Json {
        let name = r"^(\*\.)?[A-Za-z0-9_.-]+(:[0-9]{1,5})?$";
        let address = r"^\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?$|^[0-9A-Fa-f:.]+$";
        json!({"type": "string", "pattern": format!("{name}|{address}")})
    }
}

scalar!(HostPattern);

/// A name to ask DNS for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsName(pub(crate) String);

impl DnsName {
    /// `_http._tcp.fraud.internal`: only SRV records have such names (RFC 2782).
    pub(crate) fn is_for_srv(&self) -> bool {
        self.0.starts_with('_')
    }
}

impl Scalar for DnsName {
    const FORM: Form = Form::Free;
    const EXPECTED: &'static str = "a host name without port, such as fraud.internal";

    fn parse(text: &str) -> Result<Self, Problem> {
        let lower = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if lower.parse::<IpAddr>().is_ok() {
            return Err(Problem::new(format!("{} is an address", quote(text))).expected("addresses in `static`"));
        }
        if !is_dns_name(&lower) {
            return Err(Problem::new(format!("{} is not a host name", quote(text))));
        }
        Ok(Self(lower))
    }

    fn write(&self) -> Yaml {
        Yaml::from(self.0.as_str())
    }

    fn schema() -> Json {
        json!({"type": "string", "maxLength": 254, "pattern": "^[A-Za-z0-9_.-]+$"})
    }
}

scalar!(DnsName);

/// The name that a server's certificate must be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerName(pub(crate) String);

impl Scalar for ServerName {
    const FORM: Form = Form::Free;
    const EXPECTED: &'static str = "the name in the server's certificate, such as fraud.example.com";

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::new(format!("{} is not the name of a server", quote(text)));
        match HostPattern::parse(text) {
            Ok(HostPattern { name: HostName::Exact(name), port: None }) => Ok(Self(name)),
            Ok(HostPattern { name: HostName::Exact(name), port: Some(_) }) => Err(wrong().nearest(Some(name))),
            Ok(HostPattern { name: HostName::Wildcard(_), .. }) => {
                Err(wrong().expected("one name, without a star: it is sent to the server, which answers for it"))
            }
            Err(problem) => Err(wrong().nearest(problem.nearest)),
        }
    }

    fn write(&self) -> Yaml {
        Yaml::from(self.0.as_str())
    }

    fn schema() -> Json {
        json!({"type": "string", "maxLength": 254, "pattern": "^[A-Za-z0-9_.:-]+$"})
    }
}

scalar!(ServerName);

fn split_port(text: &str) -> Result<(&str, Option<&str>), Problem> {
    let wrong = || Problem::new(format!("{} is not a host", quote(text)));
    if let Some(rest) = text.strip_prefix('[') {
        let (name, port) = rest.split_once(']').ok_or_else(wrong)?;
        return match port.strip_prefix(':') {
            Some(port) => Ok((name, Some(port))),
            None if port.is_empty() => Ok((name, None)),
            None => Err(wrong()),
        };
    }
    // A bare IPv6 address has several colons, and no port.
    match text.split_once(':') {
        Some((name, port)) if !port.contains(':') => Ok((name, Some(port))),
        _ => Ok((text, None)),
    }
}

/// RFC 1123 labels, with the underscore that service names use.
fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_hosts() {
        for text in
            ["fraud.example.com:443", "*.fraud.internal", "localhost:80", "10.1.2.3:80", "[fd00::1]:443", "fd00::1"]
        {
            assert_eq!(HostPattern::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(HostPattern::parse("API.Example.com.").unwrap().to_string(), "api.example.com");
        for text in [
            "",
            "*",
            "*.",
            "a.*.b",
            "*foo.com",
            "http://a.b",
            "a..b",
            "-a.b",
            "a:",
            "a:0",
            "a:99999",
            "[::1",
            "a b",
            "a/b",
            "é.fr",
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_star_stands_for_labels_and_not_for_none() {
        let star = HostPattern::parse("*.fraud.internal").unwrap();
        assert!(star.matches("a.fraud.internal", 80));
        assert!(star.matches("A.B.Fraud.Internal.", 80));
        for host in ["fraud.internal", ".fraud.internal", "xfraud.internal", "a.fraud.internal.evil", ""] {
            assert!(!star.matches(host, 80), "{host}");
        }
        let exact = HostPattern::parse("api:8080").unwrap();
        assert!(exact.matches("API", 8080));
        assert!(!exact.matches("api", 80));
    }
}
