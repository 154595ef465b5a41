//! `Proxy-Status` (RFC 9209): what a refusal of ours says to machines, and how one that reaches us is read.

use std::fmt::Write as _;

use plimsoll_resilience::{Cause, Reason};

use super::{Refusal, row_of};

/// Appends the field value of a refusal. `local` callers get every detail, others the reason alone.
pub(super) fn push_value(out: &mut String, refusal: &Refusal<'_>, local: bool) {
    out.push_str("plimsoll; error=");
    out.push_str(refusal.error());
    out.push_str("; details=\"reason=");
    out.push_str(refusal.reason.as_str());
    if local {
        push_word(out, "policy", refusal.policy);
        push_word(out, "route", refusal.route);
        push_word(out, "block", refusal.block);
        push_word(out, "cause", refusal.cause.map(Cause::as_str));
        if let Some(numbers) = refusal.measured() {
            // Writing to a String cannot fail.
            let _ = write!(out, " observed={} limit={}", numbers.observed, numbers.limit);
        }
        push_word(out, "generation", refusal.generation);
    }
    out.push('"');
}

fn push_word(out: &mut String, key: &str, value: Option<&str>) {
    let Some(value) = value else { return };
    out.push(' ');
    out.push_str(key);
    out.push('=');
    // An sf-string holds printable ASCII (RFC 8941 section 3.3.3); names of policy are that already, so whatever
    // is not must not be able to break out of the quotes or of the line.
    out.extend(value.chars().map(|c| if c.is_ascii_graphic() && c != '"' && c != '\\' { c } else { '_' }));
}

/// Whether a `Proxy-Status` value holds a refusal of a Plimsoll that was about load: such an answer is pushback, not
/// a failure of the service behind it.
#[must_use]
pub fn says_pushback(value: &[u8]) -> bool {
    members(value).filter_map(refusal_reason).any(|reason| row_of(reason).is_pushback)
}

/// The list members of a field value: split at commas outside quoted strings.
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    value.split(move |&byte| {
        let was_escaped = std::mem::take(&mut escaped);
        match byte {
            b'"' if !was_escaped => quoted = !quoted,
            b'\\' if quoted && !was_escaped => escaped = true,
            b',' => return !quoted,
            _ => {}
        }
        false
    })
}

/// The reason in a member that a Plimsoll wrote.
fn refusal_reason(member: &[u8]) -> Option<Reason> {
    const KEY: &[u8] = b"details=\"reason=";
    let rest = member.trim_ascii().strip_prefix(b"plimsoll")?;
    if !rest.trim_ascii_start().starts_with(b";") {
        return None;
    }
    let at = rest.windows(KEY.len()).position(|window| window == KEY)?;
    let word = rest.get(at + KEY.len()..)?;
    let word = word.split(|&byte| byte == b' ' || byte == b'"').next()?;
    Reason::ALL.iter().copied().find(|reason| reason.as_str().as_bytes() == word)
}

#[cfg(test)]
mod tests {
    use super::super::Numbers;
    use super::*;

    fn value(refusal: &Refusal<'_>, local: bool) -> String {
        let mut out = String::new();
        push_value(&mut out, refusal, local);
        out
    }

    fn bulkhead() -> Refusal<'static> {
        Refusal {
            policy: Some("shop/fraud-api"),
            block: Some("bulkhead"),
            numbers: Some(Numbers { observed: 30, limit: 30 }),
            generation: Some("local-7"),
            ..Refusal::new(Reason::BulkheadFull)
        }
    }

    #[test]
    fn local_callers_are_told_the_numbers() {
        assert_eq!(
            value(&bulkhead(), true),
            "plimsoll; error=connection_limit_reached; details=\"reason=BulkheadFull policy=shop/fraud-api \
             block=bulkhead observed=30 limit=30 generation=local-7\""
        );
    }

    #[test]
    fn what_was_not_measured_is_not_shown() {
        let refusal = Refusal { numbers: Some(Numbers { observed: 3, limit: 0 }), ..Refusal::new(Reason::NoRoute) };
        assert!(!value(&refusal, true).contains("observed"));
    }

    #[test]
    fn strangers_are_told_the_reason() {
        assert_eq!(
            value(&bulkhead(), false),
            "plimsoll; error=connection_limit_reached; details=\"reason=BulkheadFull\""
        );
    }

    #[test]
    fn a_hostile_name_stays_inside_its_quotes() {
        let refusal = Refusal { policy: Some("a\"\r\nSet-Cookie: x\\"), ..Refusal::new(Reason::NoRoute) };
        assert!(value(&refusal, true).ends_with("policy=a___Set-Cookie:_x_\""));
    }

    #[test]
    fn our_own_load_refusals_are_pushback_when_they_come_back() {
        for &reason in Reason::ALL.iter() {
            let sent = value(&Refusal::new(reason), true);
            assert_eq!(says_pushback(sent.as_bytes()), row_of(reason).is_pushback, "{reason:?}");
        }
    }

    #[test]
    fn only_a_members_own_name_counts() {
        assert!(says_pushback(b"edge; error=dns_error , plimsoll; error=x; details=\"reason=Draining\""));
        assert!(!says_pushback(b"edge; details=\"plimsoll; details=\\\"reason=Shed\\\"\""));
        assert!(!says_pushback(b"edge; details=\"x, plimsoll; details=reason=Shed\""));
        assert!(!says_pushback(b"plimsollx; details=\"reason=Shed\""));
        assert!(!says_pushback(b"plimsoll"));
        assert!(!says_pushback(b""));
    }
}
