//! Addresses, networks and ports.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value as Json, json};
use serde_yaml::Value as Yaml;

use super::{Form, Scalar, scalar};
use crate::report::Problem;
use crate::tree::quote;

/// A network: an address whose bits beyond `prefix` are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// The network of this address and prefix length; `None` when the prefix is longer than the address.
    /// Bits beyond the prefix are cleared.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        (prefix <= width(address)).then(|| Self { address: masked(address, prefix), prefix })
    }

    /// Its first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Its length in bits.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether the address is in it. A v4-mapped IPv6 address counts as the IPv4 address that it maps.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.address.is_ipv4() == address.is_ipv4() && masked(address, self.prefix) == self.address
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

fn parse_cidr(text: &str) -> Result<Cidr, Problem> {
    let wrong = || Problem::new(format!("{} is not an address or a network", quote(text)));
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let prefix: u8 = match prefix {
        Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_digit()) => prefix.parse().map_err(|_| wrong())?,
        Some(_) => return Err(wrong()),
        None => width(address),
    };
    let cidr = Cidr::new(address, prefix).ok_or_else(wrong)?;
    if cidr.address != address {
        return Err(
            Problem::new(format!("{} has bits set beyond its prefix", quote(text))).nearest(Some(cidr.to_string()))
        );
    }
    Ok(cidr)
}

impl Scalar for Cidr {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str = "a network such as 10.0.0.0/8, or one address";

    fn parse(text: &str) -> Result<Self, Problem> {
        parse_cidr(text)
    }

    fn write(&self) -> Yaml {
        Yaml::from(self.to_string())
    }

    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9a-fA-F.:]+(/[0-9]{1,3})?$"})
    }
}

scalar!(Cidr);

/// Destinations without a name: a network, and a port if only that one is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressPattern {
    /// The network.
    pub cidr: Cidr,
    /// `None`: every port.
    pub port: Option<u16>,
}

impl AddressPattern {
    /// Whether a connection to this address is meant.
    #[must_use]
    pub fn matches(&self, address: SocketAddr) -> bool {
        self.port.is_none_or(|port| port == address.port()) && self.cidr.contains(address.ip())
    }
}

impl fmt::Display for AddressPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.port, self.cidr.address) {
            (None, _) => write!(f, "{}", self.cidr),
            (Some(port), IpAddr::V4(_)) => write!(f, "{}:{port}", self.cidr),
            (Some(port), IpAddr::V6(_)) => write!(f, "[{}]:{port}", self.cidr),
        }
    }
}

impl Scalar for AddressPattern {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str =
        "a network with or without a port, such as 10.20.0.0/16:5432, 10.1.2.3 or [fd00::/8]:443";

    fn parse(text: &str) -> Result<Self, Problem> {
        let (network, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((network, "")) => (network, None),
            Some((network, port)) => (network, Some(port.strip_prefix(':').unwrap_or(""))),
            // Several colons and no brackets: an IPv6 network without a port.
            None if text.matches(':').count() > 1 => (text, None),
            None => match text.split_once(':') {
                Some((network, port)) => (network, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map(parse_port).transpose()?;
        Ok(Self { cidr: parse_cidr(network)?, port })
    }

    fn write(&self) -> Yaml {
        Yaml::from(self.to_string())
    }

    fn schema() -> Json {
        json!({"type": "string", "minLength": 1})
    }
}

scalar!(AddressPattern);

/// 1 to 65535, digits only.
pub(super) fn parse_port(text: &str) -> Result<u16, Problem> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let port = text.parse().ok().filter(|_| digits);
    port.ok_or_else(|| Problem::new(format!("{} is not a port", quote(text))).expected("a port from 1 to 65535"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port(pub(crate) u16);

impl Scalar for Port {
    const FORM: Form = Form::Bare;
    const EXPECTED: &'static str = "a port from 1 to 65535";

    fn parse(text: &str) -> Result<Self, Problem> {
        parse_port(text).map(Self)
    }

    fn write(&self) -> Yaml {
        Yaml::from(self.0)
    }

    fn schema() -> Json {
        json!({"type": "integer", "minimum": 1, "maximum": 65535})
    }
}

scalar!(Port);

/// One endpoint of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint(pub(crate) SocketAddr);

impl Scalar for Endpoint {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str =
        "an address with a port, such as 10.1.2.3:8080 or [fd00::1]:8080; names belong in `dns`";

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::new(format!("{} is not an address with a port", quote(text)));
        let address: SocketAddr = text.parse().map_err(|_| wrong())?;
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(Problem::new(format!("{} cannot be connected to", quote(text))));
        }
        Ok(Self(address))
    }

    fn write(&self) -> Yaml {
        Yaml::from(self.0.to_string())
    }

    fn schema() -> Json {
        json!({"type": "string", "pattern": "^.+:[0-9]{1,5}$"})
    }
}

scalar!(Endpoint);

/// A port of this machine that leads to a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl Scalar for Listen {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str = "a loopback address with a port, such as 127.0.0.1:9101";

    fn parse(text: &str) -> Result<Self, Problem> {
        let address: SocketAddr =
            text.parse().map_err(|_| Problem::new(format!("{} is not an address with a port", quote(text))))?;
        if !address.ip().is_loopback() {
            // Anybody on the network could use it to reach the dependency as this workload.
            let nearest = SocketAddr::new([127, 0, 0, 1].into(), address.port());
            let problem = Problem::new(format!("{} is not a loopback address", quote(text)));
            return Err(problem.nearest(Some(nearest.to_string())));
        }
        Ok(Self(address))
    }

    fn write(&self) -> Yaml {
        Yaml::from(self.0.to_string())
    }

    fn schema() -> Json {
        json!({"type": "string", "pattern": "^(127\\.[0-9.]+|\\[::1\\]):[0-9]{1,5}$"})
    }
}

scalar!(Listen);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_what_they_say() {
        let cidr = parse_cidr("10.20.0.0/16").unwrap();
        assert!(cidr.contains("10.20.255.1".parse().unwrap()));
        assert!(cidr.contains("::ffff:10.20.0.1".parse().unwrap()));
        assert!(!cidr.contains("10.21.0.1".parse().unwrap()));
        assert!(parse_cidr("0.0.0.0/0").unwrap().contains("255.255.255.255".parse().unwrap()));
        assert!(!parse_cidr("0.0.0.0/0").unwrap().contains("::1".parse().unwrap()));
        assert!(parse_cidr("::/0").unwrap().contains("fe80::1".parse().unwrap()));
        assert!(parse_cidr("::1").unwrap().contains("::1".parse().unwrap()));
    }

    #[test]
    fn address_patterns_read_as_they_are_written() {
        for text in ["10.20.0.0/16:5432", "10.0.0.0/8", "[fd00::/8]:443", "fd00::/8"] {
            assert_eq!(AddressPattern::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(AddressPattern::parse("10.1.2.3").unwrap().to_string(), "10.1.2.3/32");
        for text in
            ["", ":", "10.1.2.3:0", "10.1.2.3:x", "10.0.0.1/8", "10.0.0.0/33", "[fd00::/8", "[::1]x", "[::1]:", "a:1"]
        {
            assert!(AddressPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn listens_on_loopback_only() {
        assert!(Listen::parse("127.0.0.1:9101").is_ok());
        assert!(Listen::parse("[::1]:0").is_ok());
        for text in ["0.0.0.0:9101", "10.0.0.1:9101", "localhost:9101", ":9101", "9101"] {
            assert!(Listen::parse(text).is_err(), "{text}");
        }
    }
}
