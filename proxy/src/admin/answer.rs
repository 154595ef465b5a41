//! Answers of the admin and health addresses.

use serde::Serialize;

/// A whole answer with its body in memory.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Vec<u8>,
    /// `Allow`, with a 405.
    pub allow: Option<&'static str>,
}

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

impl Answer {
    pub fn json(status: u16, value: &impl Serialize) -> Self {
        let mut body = serde_json::to_vec(value).expect("shapes of ours have text keys and plain values");
        body.push(b'\n');
        Answer { status, content_type: JSON, body, allow: None }
    }

    pub fn text(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Answer { status, content_type, body: body.into(), allow: None }
    }

    /// `{"error": ...}`: says what is wrong and what to do.
    pub fn error(status: u16, error: impl Into<String>) -> Self {
        #[derive(Serialize)]
        struct Error {
            error: String,
        }
        Answer::json(status, &Error { error: error.into() })
    }

    pub fn method_not_allowed(allow: &'static str) -> Self {
        Answer { allow: Some(allow), ..Answer::error(405, format!("this path takes {allow}")) }
    }

    /// The answer as it goes out. `head_only` for HEAD: the same head, no body.
    pub fn encode(&self, head_only: bool, close: bool) -> Vec<u8> {
        let mut out = head(self.status, self.content_type);
        out.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        if let Some(allow) = self.allow {
            out.extend_from_slice(format!("Allow: {allow}\r\n").as_bytes());
        }
        if self.status == 401 {
            out.extend_from_slice(b"WWW-Authenticate: Bearer realm=\"plimsoll admin\"\r\n");
        }
        if close {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        if !head_only {
            out.extend_from_slice(&self.body);
        }
        out
    }
}

/// Status line and the fields that every answer has. Nothing here may be kept by a cache or guessed at by a browser.
pub(super) fn head(status: u16, content_type: &str) -> Vec<u8> {
    let phrase = phrase(status);
    format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: {content_type}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    )
    .into_bytes()
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        414 => "URI Too Long",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
