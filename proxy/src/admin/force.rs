//! The body of `POST /dependencies/NAME/circuit`.

use std::time::Duration;

use plimsoll_resilience::breaker::Forced;
use serde::Deserialize;

use super::control::ForceOrder;

/// A forced state always ends by itself, so that a kill switch is not forgotten; a week is long enough for any incident.
const LONGEST_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    state: State,
    ttl: Option<String>,
    route: Option<String>,
}

#[derive(Deserialize, PartialEq)]
enum State {
    ForcedOpen,
    ForcedClosed,
    Auto,
}

/// Reads the order; the error says what is wrong with it.
pub(super) fn parse_order(dependency: String, body: &[u8]) -> Result<ForceOrder, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| {
        format!("the body must be JSON like {{\"state\":\"ForcedOpen\",\"ttl\":\"10m\"}}, with state ForcedOpen, ForcedClosed or Auto: {error}")
    })?;
    let ttl = match (&body.state, &body.ttl) {
        (State::Auto, _) => None,
        (_, None) => return Err("a forced state needs a ttl, such as \"10m\"".to_owned()),
        (_, Some(text)) => Some(parse_ttl(text)?),
    };
    let state = match body.state {
        State::ForcedOpen => Forced::Open,
        State::ForcedClosed => Forced::Closed,
        State::Auto => Forced::Auto,
    };
    Ok(ForceOrder { dependency, route: body.route, state, ttl })
}

fn parse_ttl(text: &str) -> Result<Duration, String> {
    let bad = || format!("ttl: {text:?} is not a duration; write 30s, 10m, 1h30m, up to 168h");
    let ttl = parse_duration(text).ok_or_else(bad)?;
    if ttl.is_zero() || ttl > LONGEST_TTL { Err(bad()) } else { Ok(ttl) }
}

/// Durations as in policy: `250ms`, `10s`, `1m30s`, `1h`.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: u64 = number.parse().ok()?;
        let part = match unit {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60)?),
            "h" => Duration::from_secs(number.checked_mul(3600)?),
            _ => return None,
        };
        total = total.checked_add(part)?;
        rest = after;
    }
    Some(total).filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(body: &str) -> Result<ForceOrder, String> {
        parse_order("shop/fraud-api".to_owned(), body.as_bytes())
    }

    #[test]
    fn orders_that_are_understood() {
        let open = order(r#"{"state":"ForcedOpen","ttl":"1h30m","route":"charge"}"#).unwrap();
        assert_eq!(
            (open.state, open.ttl, open.route.as_deref()),
            (Forced::Open, Some(Duration::from_secs(5_400)), Some("charge"))
        );
        let auto = order(r#"{"state":"Auto","route":null}"#).unwrap();
        assert_eq!((auto.state, auto.ttl, auto.route), (Forced::Auto, None, None));
        assert_eq!(order(r#"{"state":"ForcedClosed","ttl":"250ms"}"#).unwrap().ttl, Some(Duration::from_millis(250)));
    }

    #[test]
    fn orders_that_are_not() {
        for (body, hint) in [
            ("", "must be JSON"),
            (r#"{"state":"Open"}"#, "ForcedOpen"),
            (r#"{"state":"ForcedOpen"}"#, "needs a ttl"),
            (r#"{"state":"ForcedOpen","ttl":"10"}"#, "not a duration"),
            (r#"{"state":"ForcedOpen","ttl":""}"#, "not a duration"),
            (r#"{"state":"ForcedOpen","ttl":"0s"}"#, "not a duration"),
            (r#"{"state":"ForcedOpen","ttl":"99999999999999999999h"}"#, "not a duration"),
            (r#"{"state":"ForcedOpen","ttl":"18446744073709551615h"}"#, "not a duration"),
            (r#"{"state":"ForcedOpen","ttl":"169h"}"#, "not a duration"),
            (r#"{"state":"ForcedOpen","tll":"10m"}"#, "tll"),
        ] {
            let error = order(body).unwrap_err();
            assert!(error.contains(hint), "{body}: {error}");
        }
    }
}
