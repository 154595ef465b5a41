//! HTTP by its first line.

use super::{Peek, Verdict};

/// What every HTTP/2 connection begins with (RFC 9113 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A method that is longer is none.
const METHOD: usize = 64;
/// A first line that is longer is HTTP/1 if it begins with a method that is known, and then too long for us.
const LINE: usize = 16 * 1024 + METHOD;
/// The methods that are registered (IANA) and some that are met (UPnP), without which a first line is read to its end.
const METHODS: [&[u8]; 42] = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"CONNECT",
    b"OPTIONS",
    b"TRACE",
    b"PATCH",
    b"ACL",
    b"BASELINE-CONTROL",
    b"BIND",
    b"CHECKIN",
    b"CHECKOUT",
    b"COPY",
    b"LABEL",
    b"LINK",
    b"LOCK",
    b"MERGE",
    b"MKACTIVITY",
    b"MKCALENDAR",
    b"MKCOL",
    b"MKREDIRECTREF",
    b"MKWORKSPACE",
    b"MOVE",
    b"ORDERPATCH",
    b"PROPFIND",
    b"PROPPATCH",
    b"QUERY",
    b"REBIND",
    b"REPORT",
    b"SEARCH",
    b"UNBIND",
    b"UNCHECKOUT",
    b"UNLINK",
    b"UNLOCK",
    b"UPDATE",
    b"UPDATEREDIRECTREF",
    b"VERSION-CONTROL",
    b"M-SEARCH",
    b"NOTIFY",
    b"PURGE",
];

/// Says whether a connection that begins with `bytes` carries HTTP.
pub(super) fn peek(bytes: &[u8]) -> Peek {
    if bytes.starts_with(PREFACE) {
        return Peek::Is(Verdict::Http2);
    }
    // What begins like the preface and goes on otherwise is an HTTP/1 head that will be refused.
    if PREFACE.starts_with(bytes) && bytes.len() >= 3 {
        return Peek::maybe(Verdict::Http2, PREFACE.len());
    }
    // An empty line before the first is nothing (RFC 9112 2.2).
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    match first_line(&bytes[blank..]) {
        Line::Http => Peek::Is(Verdict::Http1),
        Line::Other => Peek::Is(Verdict::Opaque),
        // Somebody who has typed a method means to go on.
        Line::Unfinished { has_method: true } => Peek::maybe(Verdict::Http1, bytes.len() + 1),
        Line::Unfinished { has_method: false } => Peek::maybe(Verdict::Opaque, bytes.len() + 1),
    }
}

enum Line {
    Http,
    Other,
    Unfinished { has_method: bool },
}

fn first_line(bytes: &[u8]) -> Line {
    let word = bytes.iter().take_while(|byte| byte.is_ascii_graphic()).count();
    let is_method = METHODS.contains(&&bytes[..word]);
    let target = bytes.get(word + 1);
    if is_method && bytes.get(word) == Some(&b' ') && target == Some(&b'/') {
        // No need to wait for the rest: nothing else begins like this.
        return Line::Http;
    }
    if bytes.is_empty() {
        return Line::Unfinished { has_method: false };
    }
    if word == 0 || word > METHOD {
        return Line::Other;
    }
    let end = bytes.iter().take(LINE).position(|byte| *byte == b'\n');
    let line = &bytes[..end.unwrap_or(bytes.len().min(LINE))];
    if !line.strip_suffix(b"\r").unwrap_or(line).iter().all(|byte| is_text(*byte)) {
        return Line::Other;
    }
    let begins_method = word == bytes.len() && METHODS.iter().any(|method| method.starts_with(bytes));
    match end {
        Some(_) if names_version(line) => Line::Http,
        Some(_) => Line::Other,
        None if bytes.len() >= LINE => {
            if is_method {
                Line::Http
            } else {
                Line::Other
            }
        }
        None => Line::Unfinished { has_method: is_method || begins_method },
    }
}

/// Octets above ASCII are refused later, with an answer.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Whether the last of several words is `HTTP/` and something, in whatever case.
fn names_version(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let last = line.rsplit(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
    last.len() < line.len() && last.len() > 5 && last[..5].eq_ignore_ascii_case(b"HTTP/")
}
