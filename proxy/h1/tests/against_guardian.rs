//! Amazon's classifier of desync attempts as the third opinion. It shares no code with us, where hyper shares httparse.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod generate;
mod invariants;

use std::cell::Cell;

use http_desync_guardian::{
    ClassificationReason as Reason, RequestSafetyTier as Tier,
    http_token_utils::{CL, TE, TokenSimilarity, determine_similarity},
    request_analyzer::{HttpRequestData, RequestAnalysisResult},
};
use plimsoll_h1::{Decoded, Limits, RequestHead, decode_request};
use proptest::{prelude::*, test_runner::TestRunner};

/// What we would send on for the request that `bytes` begins with, if we accept it.
fn sent(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut head = RequestHead::default();
    match decode_request(bytes, &Limits::default(), &mut head) {
        Ok(Decoded::Complete { .. }) => Some(invariants::sent_request(&head, bytes)),
        Ok(Decoded::Incomplete) | Err(_) => None,
    }
}

fn judge(bytes: &[u8]) -> RequestAnalysisResult {
    HttpRequestData::analyze_raw_request(bytes)
}

/// Two readers could agree about what it means, but for this: the guardian distrusts a GET or HEAD with a body, because
/// some servers do not read one. It has a length like any other, and search engines take their queries that way.
fn is_fine(verdict: &RequestAnalysisResult) -> bool {
    verdict.tier <= Tier::Acceptable
        || matches!(
            verdict.reason,
            Reason::UndefinedContentLengthSemantics | Reason::UndefinedTransferEncodingSemantics
        )
}

/// Where we are stricter than it has to be: other codings, and targets that are none (RFC 9112 3.2).
fn is_refused_on_purpose(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let target = text.split("\r\n").next().unwrap_or_default();
    let codings = text.lines().filter_map(|line| line.strip_prefix("transfer-encoding:"));
    let other_coding = codings.into_iter().any(|coding| coding.trim() != "chunked");
    other_coding || target.contains('#') || target.contains("  ") || !target.is_ascii()
}

#[test]
fn the_cases_of_its_own_suite() {
    let mut accepted = 0;
    for line in include_str!("desync_cases.txt").lines().filter(|line| !line.starts_with('#')) {
        let [tier, reason, text] = line.splitn(3, '|').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let bytes = unescape(text);
        if let Some(sent) = sent(&bytes) {
            accepted += 1;
            for bytes in [&bytes, &sent] {
                let verdict = judge(bytes);
                assert!(is_fine(&verdict), "{:?} {:?} ({tier} {reason}): {text}", verdict.tier, verdict.reason);
            }
        } else if tier == "Compliant" {
            assert!(is_refused_on_purpose(&bytes), "{text}");
        }
    }
    assert_eq!(accepted, 26);
}

#[test]
fn whatever_we_send() {
    let config = ProptestConfig::default();
    let config = ProptestConfig { cases: config.cases * 16, failure_persistence: None, ..config };
    let (cases, count) = (config.cases as usize, Cell::new(0));
    let outcome = TestRunner::new(config).run(&generate::spoiled(generate::request()), |bytes| {
        if let Some(sent) = sent(&bytes) {
            let verdict = judge(&sent);
            count.set(count.get() + 1);
            prop_assert!(
                is_fine(&verdict) || has_typo(&sent),
                "{:?} {:?}: {}",
                verdict.tier,
                verdict.reason,
                sent.escape_ascii()
            );
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(count.get() > cases / 10, "{} of {cases} requests were accepted", count.get());
}

/// It takes a typing error away from a name for that name, `Content0Length`; no one else does. Same letters in other
/// punctuation are refused by us as well.
fn has_typo(sent: &[u8]) -> bool {
    let names = sent.split(|&byte| byte == b'\n').filter_map(|line| line.split(|&byte| byte == b':').next());
    names.into_iter().any(|name| {
        let is_close = |real: &&[u8]| determine_similarity(real, name) != TokenSimilarity::Distant;
        [TE, CL].iter().filter(|real| !name.eq_ignore_ascii_case(real)).any(is_close)
    })
}

/// As Rust escapes byte strings.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next().unwrap() {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            },
            byte => byte,
        });
    }
    bytes
}
