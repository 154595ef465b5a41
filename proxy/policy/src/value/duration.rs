//! `250ms`, `2s`, `1m30s`: the form of the Kubernetes Gateway API (GEP-2257).

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value as Json, json};
use serde_yaml::Value as Yaml;

use super::{Count, Form, Scalar, scalar};
use crate::report::Problem;
use crate::tree::quote;

const PATTERN: &str = "^([0-9]{1,11}(h|m|s|ms)){1,4}$";
const EXPECTED: &str = "a duration such as 250ms, 2s or 1m30s";

/// A year: nothing here is meant to last longer, and sums of such values cannot overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Scalar for Duration {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str = EXPECTED;

    fn parse(text: &str) -> Result<Self, Problem> {
        parse(text)
    }

    fn write(&self) -> Yaml {
        Yaml::from(duration_text(*self))
    }

    fn schema() -> Json {
        json!({"type": "string", "pattern": PATTERN})
    }
}

scalar!(Duration);

/// A duration above zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Positive(pub(crate) Duration);

impl Scalar for Positive {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str = "a duration above zero, such as 250ms, 2s or 1m30s";

    fn parse(text: &str) -> Result<Self, Problem> {
        match parse(text)? {
            Duration::ZERO => Err(Problem::new(format!("{} is no time at all", quote(text)))
                .expected("a duration above zero; `mode: Disabled` switches a block off")),
            duration => Ok(Self(duration)),
        }
    }

    fn write(&self) -> Yaml {
        Scalar::write(&self.0)
    }

    fn schema() -> Json {
        <Duration as Scalar>::schema()
    }
}

scalar!(Positive);

/// The size of a breaker's window: a duration for `Time`, a number of calls for `Count`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WindowSize {
    Time(Duration),
    Calls(u32),
}

impl Scalar for WindowSize {
    const FORM: Form = Form::Either;
    const EXPECTED: &'static str = "a duration such as 30s, or a number of calls";

    fn parse(text: &str) -> Result<Self, Problem> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Count::parse(text).map(|Count(calls)| Self::Calls(calls));
        }
        Positive::parse(text).map(|Positive(duration)| Self::Time(duration))
    }

    fn write(&self) -> Yaml {
        match self {
            Self::Time(duration) => Scalar::write(duration),
            Self::Calls(calls) => Yaml::from(*calls),
        }
    }

    fn schema() -> Json {
        json!({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": PATTERN}]})
    }
}

scalar!(WindowSize);

fn parse(text: &str) -> Result<Duration, Problem> {
    let wrong = || Problem::new(format!("{} is not a duration", quote(text)));
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let zero = text.bytes().all(|byte| byte == b'0');
        let nearest = if zero { "0s".to_owned() } else { format!("{text}ms") };
        let short = text.len() <= 9;
        return Err(Problem::new(format!("{} has no unit", quote(text)))
            .expected(EXPECTED)
            .nearest(short.then_some(nearest)));
    }
    let mut rest = text;
    let mut total = 0u64;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        // Units come once each, the largest first.
        let (_, scale) = units.find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        total = number.checked_mul(*scale).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = tail;
    }
    let duration = Duration::from_millis(total);
    if text.is_empty() {
        Err(wrong())
    } else if duration > LONGEST {
        Err(Problem::new(format!("{} is longer than a year", quote(text))).expected(EXPECTED))
    } else {
        Ok(duration)
    }
}

/// A duration as policy writes it, to the millisecond: `1m30s`, `1200ms`.
pub(crate) fn duration_text(duration: Duration) -> String {
    let millis = duration.as_millis();
    if !millis.is_multiple_of(1000) {
        return format!("{millis}ms");
    }
    let mut rest = duration.as_secs();
    let mut text = String::new();
    for (unit, scale) in [("h", 3600), ("m", 60), ("s", 1)] {
        if rest >= scale || (unit == "s" && text.is_empty()) {
            write!(text, "{}{unit}", rest / scale).expect("a String takes everything");
            rest %= scale;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_policy_writes() {
        for (text, millis) in [
            ("250ms", 250),
            ("2s", 2000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("0s", 0),
            ("1005ms", 1005),
            ("1h1s", 3_601_000),
        ] {
            let read = parse(text).unwrap();
            assert_eq!(read, Duration::from_millis(millis), "{text}");
            assert_eq!(duration_text(read), text);
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in ["", "5", "s", "1.5s", "-1s", "1s1m", "1s1s", "2 s", "1d", "99999999999999999999s", "8761h", "1µs"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
