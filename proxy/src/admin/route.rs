//! Which page a path names, what may be done with it, and by whom.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::answer::Answer;
use super::connection::Request;
use super::token::Token;

/// The pages of the admin address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Index,
    Ready,
    Live,
    Metrics,
    Status,
    Policy,
    ConfigDump,
    Decisions,
    Events,
    /// `/dependencies/NAME/circuit`
    Circuit(String),
    Drain,
}

impl Page {
    pub fn of(path: &str) -> Option<Page> {
        Some(match path {
            "/" => Page::Index,
            "/ready" => Page::Ready,
            "/live" => Page::Live,
            "/metrics" => Page::Metrics,
            "/status" => Page::Status,
            "/policy" => Page::Policy,
            "/config-dump" => Page::ConfigDump,
            "/decisions" => Page::Decisions,
            "/events" => Page::Events,
            "/drain" => Page::Drain,
            _ => Page::Circuit(dependency(path)?),
        })
    }

    /// The methods it takes, as `Allow` lists them.
    fn methods(&self) -> &'static str {
        match self {
            Page::Policy => "GET, HEAD, PUT",
            Page::Circuit(_) | Page::Drain => "POST",
            Page::Events => "GET",
            _ => "GET, HEAD",
        }
    }

    /// Whether anybody on this machine may see it: what is free shows state, never configuration or callers.
    fn is_free(&self) -> bool {
        matches!(self, Page::Index | Page::Ready | Page::Live | Page::Metrics | Page::Status)
    }
}

/// The name in `/dependencies/NAME/circuit`, with its namespace as `shop/fraud-api` or `shop%2Ffraud-api`.
fn dependency(path: &str) -> Option<String> {
    let name = path.strip_prefix("/dependencies/")?.strip_suffix("/circuit")?;
    Some(name.replace("%2F", "/").replace("%2f", "/")).filter(|name| !name.is_empty() && !name.contains('%'))
}

/// Everything that is checked before a body is read.
pub(super) fn admit(request: &Request, token: &Token) -> Result<Page, Answer> {
    // A page of the open web can make a browser send requests to loopback: by a name that it lets resolve there, which
    // shows in `Host`, or across origins, which shows in `Origin`.
    if !is_address_or_localhost(&request.host) {
        return Err(Answer::error(403, "Host must be an IP address or localhost: call http://127.0.0.1:PORT"));
    }
    if request.has_origin {
        return Err(Answer::error(403, "requests from web pages (with an Origin field) are refused"));
    }
    let Some(page) = Page::of(&request.path) else {
        return Err(Answer::error(404, "no such page; GET / lists them"));
    };
    if !page.is_free() && !request.authorization.as_deref().is_some_and(|value| token.is_in(value)) {
        let error = match request.authorization {
            None => {
                "this needs Authorization: Bearer TOKEN; the token is in STATE_DIR/admin.token or the file given with --admin-token-file"
            }
            Some(_) => "wrong token; it is made anew at each start unless --admin-token-file is given",
        };
        return Err(Answer::error(401, error));
    }
    let allow = page.methods();
    if allow.split(", ").any(|method| method == request.method) {
        Ok(page)
    } else {
        Err(Answer::method_not_allowed(allow))
    }
}

fn is_address_or_localhost(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, _port)| address.parse::<Ipv6Addr>().is_ok());
    }
    let name = host.split_once(':').map_or(host, |(name, _port)| name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_localhost() {
        for good in
            ["127.0.0.1", "127.0.0.1:15000", "10.1.2.3:1", "[::1]:15000", "[::1]", "localhost", "LocalHost:15000"]
        {
            assert!(is_address_or_localhost(good.as_bytes()), "{good}");
        }
        for bad in
            ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[::1", "::1", "[x]", "0x7f.1"]
        {
            assert!(!is_address_or_localhost(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn a_dependency_is_named_with_or_without_its_namespace() {
        let named = |path| Page::of(path).map(|page| if let Page::Circuit(name) = page { name } else { String::new() });
        assert_eq!(named("/dependencies/fraud-api/circuit").as_deref(), Some("fraud-api"));
        assert_eq!(named("/dependencies/shop/fraud-api/circuit").as_deref(), Some("shop/fraud-api"));
        assert_eq!(named("/dependencies/shop%2ffraud-api/circuit").as_deref(), Some("shop/fraud-api"));
        assert_eq!(named("/dependencies//circuit"), None);
        assert_eq!(named("/dependencies/a%00b/circuit"), None);
        assert_eq!(named("/dependencies/fraud-api"), None);
    }
}
