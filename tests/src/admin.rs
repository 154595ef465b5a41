//! The admin address of a proxy under test.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;

use crate::client::{Client, Response};

/// Asks a proxy's admin address, with its token.
#[derive(Clone)]
pub struct Admin {
    /// Where it listens.
    pub address: SocketAddr,
    state: PathBuf,
}

impl Admin {
    /// The admin address of a proxy with this state folder.
    pub fn new(address: SocketAddr, state: PathBuf) -> Admin {
        Admin { address, state }
    }

    /// The token that the proxy made at its start.
    ///
    /// # Panics
    /// When there is none.
    pub fn token(&self) -> String {
        let default = self.state.join("admin.token");
        let keyed = self.state.join(format!("admin-{}.token", self.address.port()));
        let token = std::fs::read_to_string(&keyed).or_else(|_| std::fs::read_to_string(&default));
        token.unwrap_or_else(|error| panic!("no token in {}: {error}", self.state.display())).trim().to_owned()
    }

    /// One request with the token.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Response {
        let token = format!("Bearer {}", self.token());
        let host = self.address.to_string();
        let mut fields = vec![("Host", host.as_str()), ("Authorization", token.as_str())];
        let length = body.len().to_string();
        if method != "GET" {
            fields.push(("Content-Length", &length));
        }
        Client::connect(self.address).call(method, path, &fields, body.as_bytes())
    }

    /// The JSON at `path`.
    ///
    /// # Panics
    /// When the answer is not 200 with JSON.
    #[track_caller]
    pub fn json(&self, path: &str) -> Value {
        let answer = self.request("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {answer}");
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
    }

    /// `/status`.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.json("/status")
    }

    /// The part of `/status` that speaks of the dependency `shop/NAME`.
    #[track_caller]
    pub fn dependency(&self, name: &str) -> Value {
        let status = self.status();
        let full = format!("shop/{name}");
        let found = status["dependencies"].as_array().and_then(|all| all.iter().find(|one| one["policy"] == full));
        found.unwrap_or_else(|| panic!("status knows no {full}: {status:#}")).clone()
    }

    /// The state of the first breaker of the dependency `shop/NAME`.
    #[track_caller]
    pub fn circuit(&self, name: &str) -> String {
        let dependency = self.dependency(name);
        let state = dependency["circuits"][0]["state"].as_str();
        state.unwrap_or_else(|| panic!("{name} has no breaker: {dependency:#}")).to_owned()
    }

    /// Puts policy; the status and what the proxy said of it.
    pub fn put_policy(&self, text: &str) -> (u16, Value) {
        let answer = self.request("PUT", "/policy", text);
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    /// The value of one sample of `/metrics`: the sum of all series of `name` that carry every one of `labels`.
    #[track_caller]
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let answer = self.request("GET", "/metrics", "");
        assert_eq!(answer.status, 200, "{answer}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let wanted: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        text.lines()
            .filter(|line| line.split(['{', ' ']).next() == Some(name))
            .filter(|line| wanted.iter().all(|label| line.contains(label.as_str())))
            .filter_map(|line| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok()))
            .sum()
    }

    /// Fails the test when the proxy counted a bug of its own; says nothing when it does not answer any more.
    #[track_caller]
    pub fn assert_no_bugs(&self) {
        let Ok(mut client) = Client::try_connect(self.address) else { return };
        let Ok(answer) = client.try_call("GET", "/metrics", &[("Host", "localhost")], b"") else { return };
        let bugs = answer.text();
        let bugs = bugs.lines().find(|line| line.starts_with("plimsoll_bugs_total"));
        assert!(bugs.is_none_or(|line| line.ends_with(" 0")), "{bugs:?}");
    }
}
