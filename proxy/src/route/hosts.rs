//! Which of several policies a host name belongs to.

use std::borrow::Cow;
use std::collections::HashMap;

/// A table from host patterns to `T`: exact host and port before exact host, before the longest wildcard.
#[derive(Clone, Debug)]
pub struct Hosts<T> {
    exact: HashMap<Box<str>, Vec<(Option<u16>, T)>>,
    /// Keyed by what follows the star and its dot.
    wildcard: HashMap<Box<str>, Vec<(Option<u16>, T)>>,
}

impl<T: Copy> Default for Hosts<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new() }
    }
}

impl<T: Copy> Hosts<T> {
    /// Adds `host` on `port`, or on every port.
    pub fn insert_exact(&mut self, host: &str, port: Option<u16>, value: T) {
        self.exact.entry(normal(host).into()).or_default().push((port, value));
    }

    /// Adds every name below `parent`.
    pub fn insert_below(&mut self, parent: &str, port: Option<u16>, value: T) {
        self.wildcard.entry(normal(parent).into()).or_default().push((port, value));
    }

    /// What `host` on `port` belongs to.
    #[must_use]
    pub fn find(&self, host: &str, port: u16) -> Option<T> {
        let host = normal(host);
        if let Some(found) = self.exact.get(&*host).and_then(|entries| on_port(entries, port)) {
            return Some(found);
        }
        if self.wildcard.is_empty() {
            return None;
        }
        let suffixes = host.match_indices('.').map(|(dot, _)| &host[dot + 1..]);
        suffixes.filter_map(|suffix| self.wildcard.get(suffix)).find_map(|entries| on_port(entries, port))
    }
}

fn on_port<T: Copy>(entries: &[(Option<u16>, T)], port: u16) -> Option<T> {
    let with = |wanted: Option<u16>| entries.iter().find(|(port, _)| *port == wanted).map(|(_, value)| *value);
    with(Some(port)).or_else(|| with(None))
}

/// Host names are compared without regard to case, and a final dot only says that the name is absolute.
fn normal(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// Splits an authority (`Host`, `:authority`, an absolute-form target's) into host and port.
/// An IPv6 literal keeps its brackets. `None` for a port that is no number.
#[must_use]
pub fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let bytes = authority.as_bytes();
    // A port has at most five digits: no need to look further for its colon.
    let digits = bytes.iter().rev().take(6).take_while(|byte| byte.is_ascii_digit()).count();
    let Some(colon) = (bytes.len() - digits).checked_sub(1).filter(|at| bytes[*at] == b':') else {
        // No port, or something that is none behind the last colon outside brackets.
        let is_host = authority.ends_with(']') || !authority.contains(':');
        return is_host.then_some((authority, None));
    };
    let host = &authority[..colon];
    match &authority[colon + 1..] {
        "" => Some((host, None)),
        digits => Some((host, Some(digits.parse().ok()?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_exact_pattern_wins() {
        let mut hosts = Hosts::default();
        hosts.insert_exact("fraud.example.com", Some(443), 1);
        hosts.insert_exact("Fraud.Example.com", None, 2);
        hosts.insert_below("example.com", None, 3);
        hosts.insert_below("eu.example.com", None, 4);
        hosts.insert_below("eu.example.com", Some(8080), 5);
        for (host, port, expected) in [
            ("fraud.example.com", 443, Some(1)),
            ("FRAUD.example.com.", 80, Some(2)),
            ("other.example.com", 80, Some(3)),
            ("a.eu.example.com", 80, Some(4)),
            ("a.b.eu.example.com", 8080, Some(5)),
            ("example.com", 80, None),
            ("fraudexample.com", 80, None),
        ] {
            assert_eq!(hosts.find(host, port), expected, "{host}:{port}");
        }
    }

    #[test]
    fn authorities_split_where_the_port_begins() {
        assert_eq!(split_authority("a.b:80"), Some(("a.b", Some(80))));
        assert_eq!(split_authority("a.b"), Some(("a.b", None)));
        assert_eq!(split_authority("a.b:"), Some(("a.b", None)));
        assert_eq!(split_authority("[::1]:8080"), Some(("[::1]", Some(8080))));
        assert_eq!(split_authority("[::1]"), Some(("[::1]", None)));
        assert_eq!(split_authority("a:b"), None);
        assert_eq!(split_authority("a:70000"), None);
    }
}
