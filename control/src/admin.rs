//! The admin address of one proxy: how it is found, asked, and what to do when it does not answer as hoped.

pub mod shapes;
mod token;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode};
use serde_json::Value;

use crate::http;
use token::Surroundings;

/// Admin answers come from memory; a proxy that takes longer is stuck, and that is the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the proxy's admin listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyAddress {
    host: String,
    port: u16,
}

impl ProxyAddress {
    /// `host:port`.
    fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl std::fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.authority())
    }
}

impl From<SocketAddr> for ProxyAddress {
    fn from(address: SocketAddr) -> ProxyAddress {
        ProxyAddress {
            host: match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            },
            port: address.port(),
        }
    }
}

impl FromStr for ProxyAddress {
    type Err = String;

    /// `15000`, `:15000`, `localhost:15000` or an IP address with a port: the proxy answers to no other names.
    fn from_str(text: &str) -> Result<ProxyAddress, String> {
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let port = port.parse().map_err(|_| format!("`{text}` has no port; write ADDRESS:PORT or just PORT"))?;
        let host = match host {
            "" => "127.0.0.1",
            "localhost" => host,
            _ if SocketAddr::from_str(text).is_ok() => host,
            _ => {
                return Err(format!(
                    "`{host}` is not an IP address or localhost, and the admin address answers to nothing else"
                ));
            }
        };
        Ok(ProxyAddress { host: host.to_owned(), port })
    }
}

/// Why the proxy could not be asked; each says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Nobody listens there.
    #[error(
        "no proxy answers on {address} ({cause})\n  Start one with `plimsoll-proxy --policy FILE`, or say where its admin address is with --proxy ADDRESS:PORT\n  (it prints the address as \"admin\" in the line of JSON at its start)."
    )]
    NotRunning {
        /// Where it was sought.
        address: ProxyAddress,
        /// What the system said.
        cause: http::Failure,
    },
    /// Connected, then silence.
    #[error(
        "{address} accepted the connection and did not answer within {} s\n  Is this the admin address? If it is, the proxy is stuck: look at its log, and at `GET /live` on its health address.",
        PATIENCE.as_secs()
    )]
    Silent {
        /// Who was asked.
        address: ProxyAddress,
    },
    /// Somebody else's port, or another listener of the proxy.
    #[error(
        "{address} answers, but not like the admin address of a plimsoll proxy ({what})\n  Give the address that the proxy prints as \"admin\" at its start; the default is 127.0.0.1:15000."
    )]
    NotAdmin {
        /// Who was asked.
        address: ProxyAddress,
        /// What it did instead.
        what: String,
    },
    /// The token file cannot be read.
    #[error(
        "cannot read the admin token of {address}: {path}: {cause}\n  The proxy writes it at start, readable by its own user only. Run this as that user; if the proxy was started\n  with --state-dir, set PLIMSOLL_STATE_DIR to the same; with --admin-token-file, give the same file here."
    )]
    TokenUnreadable {
        /// Whose token.
        address: ProxyAddress,
        /// Where it should be.
        path: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The token was not taken.
    #[error(
        "the proxy on {address} did not take the token in {path}: {said}\n  The file may be left from another proxy. Give the right one with --admin-token-file, or restart the proxy to have\n  it written anew."
    )]
    TokenRefused {
        /// Who refused.
        address: ProxyAddress,
        /// What was used.
        path: String,
        /// The proxy's words.
        said: String,
    },
    /// Understood and refused.
    #[error("the proxy on {address} refused: {said} ({status})")]
    Refused {
        /// Who refused.
        address: ProxyAddress,
        /// With which status.
        status: StatusCode,
        /// The proxy's words, which say what to do.
        said: String,
    },
}

/// A client of one proxy's admin address.
#[derive(Clone, Debug)]
pub struct Admin {
    address: ProxyAddress,
    token_file: Option<PathBuf>,
}

/// An answer of the admin address.
#[derive(Debug)]
pub struct Answer {
    /// Its HTTP status.
    pub status: StatusCode,
    /// Its body.
    pub json: Value,
}

impl Admin {
    /// The proxy at `address`; its token in `token_file`, else where that proxy would have written it.
    pub fn new(address: ProxyAddress, token_file: Option<&Path>) -> Admin {
        let token_file =
            token_file.map(Path::to_path_buf).or_else(|| Surroundings::of_process().token_file(address.port));
        Admin { address, token_file }
    }

    /// The proxy at `address` that was started with `--state-dir dir`.
    pub fn of_state_dir(address: ProxyAddress, dir: &Path) -> Admin {
        let surroundings = Surroundings { state_dir: Some(dir.into()), ..Surroundings::default() };
        Admin { token_file: surroundings.token_file(address.port), address }
    }

    /// Whom this asks.
    pub fn address(&self) -> &ProxyAddress {
        &self.address
    }

    /// `GET /status`, which needs no token.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn status(&self) -> Result<Value, AdminError> {
        let request = self.request(Method::GET, "/status");
        self.expect_ok(request, Bytes::new()).await
    }

    /// `GET /decisions`: the newest `limit` refusals, or the one with this id.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn decisions(&self, limit: usize, id: Option<&str>) -> Result<Value, AdminError> {
        let path = match id {
            Some(id) => format!("/decisions?id={}", percent_encoded(id)),
            None => format!("/decisions?limit={limit}"),
        };
        let request = self.authorized(self.request(Method::GET, &path)).await?;
        self.expect_ok(request, Bytes::new()).await
    }

    /// `PUT /policy`. A refusal of the policy itself (422) is an answer, not an error.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn push(&self, file: &str, yaml: String) -> Result<Answer, AdminError> {
        let request = self
            .request(Method::PUT, "/policy")
            .header("content-type", "application/yaml")
            .header("x-plimsoll-file", header_text(file));
        let answer = self.ask(self.authorized(request).await?, yaml.into()).await?;
        match answer.status {
            StatusCode::OK | StatusCode::UNPROCESSABLE_ENTITY => Ok(answer),
            _ => Err(self.refusal(&answer)),
        }
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.authority())
            .header("user-agent", concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
    }

    /// The request with the token. Without one, what is wrong may well be the address: that is looked at first.
    async fn authorized(&self, request: Builder) -> Result<Builder, AdminError> {
        match self.with_token(request) {
            Ok(request) => Ok(request),
            Err(unreadable) => {
                self.status().await?;
                Err(unreadable)
            }
        }
    }

    fn with_token(&self, request: Builder) -> Result<Builder, AdminError> {
        let unreadable =
            |cause| AdminError::TokenUnreadable { address: self.address.clone(), path: self.token_path(), cause };
        let Some(path) = &self.token_file else {
            let cause = std::io::Error::other("neither PLIMSOLL_STATE_DIR nor HOME says where");
            return Err(unreadable(cause));
        };
        let token = std::fs::read_to_string(path).map_err(unreadable)?;
        Ok(request.header("authorization", format!("Bearer {}", token.trim())))
    }

    fn token_path(&self) -> String {
        let path = self.token_file.as_deref().unwrap_or(Path::new("admin.token"));
        path.display().to_string()
    }

    async fn expect_ok(&self, request: Builder, body: Bytes) -> Result<Value, AdminError> {
        let answer = self.ask(request, body).await?;
        if answer.status == StatusCode::OK { Ok(answer.json) } else { Err(self.refusal(&answer)) }
    }

    async fn ask(&self, request: Builder, body: Bytes) -> Result<Answer, AdminError> {
        let not_admin = |what: String| AdminError::NotAdmin { address: self.address.clone(), what };
        let request =
            request.body(Full::new(body)).map_err(|e| not_admin(format!("the request could not be written: {e}")))?;
        let authority = self.address.authority();
        let sent = tokio::time::timeout(PATIENCE, http::send(&authority, request)).await;
        let answer = match sent {
            Err(_) => {
                return Err(AdminError::Silent { address: self.address.clone() });
            }
            Ok(Err(cause @ http::Failure::Connect(_))) => {
                return Err(AdminError::NotRunning { address: self.address.clone(), cause });
            }
            Ok(Err(cause)) => return Err(not_admin(cause.to_string())),
            Ok(Ok(answer)) => answer,
        };
        let status = answer.status();
        let json = serde_json::from_slice(answer.body()).map_err(|_| not_admin(format!("{status} and no JSON")))?;
        Ok(Answer { status, json })
    }

    fn refusal(&self, answer: &Answer) -> AdminError {
        let address = self.address.clone();
        let Some(said) = answer.json["error"].as_str() else {
            let what = format!("{} and no word why", answer.status);
            return AdminError::NotAdmin { address, what };
        };
        let said = said.to_owned();
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                AdminError::TokenRefused { address, path: self.token_path(), said }
            }
            status => AdminError::Refused { address, status, said },
        }
    }

    /// Turns an answer into the shape it should have.
    ///
    /// # Errors
    /// [`AdminError::NotAdmin`] when it has another.
    pub fn read<T: serde::de::DeserializeOwned>(&self, json: &Value) -> Result<T, AdminError> {
        T::deserialize(json).map_err(|e| AdminError::NotAdmin {
            address: self.address.clone(),
            what: format!("JSON of another shape: {e}; are proxy and plimsoll of one version?"),
        })
    }
}

/// A file name that a header can carry; what it cannot becomes `?`, since the name is only to be shown.
fn header_text(name: &str) -> String {
    let visible = |c: char| {
        if c.is_ascii_graphic() || c == ' ' { c } else { '?' }
    };
    name.chars().map(visible).collect()
}

/// For a query: whatever is not plainly harmless becomes `%XX`.
fn percent_encoded(text: &str) -> String {
    let harmless = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if harmless(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests;
