//! `100/s`: so many in so long.

use std::fmt;
use std::time::Duration;

use serde_json::{Value as Json, json};
use serde_yaml::Value as Yaml;

use super::number::{LARGEST, parse_whole};
use super::{Form, Scalar, scalar};
use crate::report::Problem;
use crate::tree::quote;

const UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

/// So many in each interval. Both are above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// At most a million.
    pub(crate) count: u32,
    /// A second, a minute, an hour or a day.
    pub(crate) interval: Duration,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, seconds)| *seconds == self.interval.as_secs()).map_or("", |(unit, _)| unit);
        write!(f, "{}/{unit}", self.count)
    }
}

impl Scalar for Rate {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str = "a rate such as 100/s, 500/m, 2000/h or 100/d";

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::new(format!("{} is not a rate", quote(text)));
        let (count, unit) = text.split_once('/').unwrap_or((text, ""));
        let Some((_, seconds)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            // `100`, `100/sec`, `100/Min`
            let meant = unit.bytes().next().map_or('s', |first| char::from(first.to_ascii_lowercase()));
            let better = format!("{count}/{meant}");
            let better = UNITS.iter().any(|(name, _)| name.starts_with(meant)).then_some(better);
            return Err(wrong().nearest(better.filter(|better| Self::parse(better).is_ok())));
        };
        let count = parse_whole(count, 1, LARGEST).map_err(|_| wrong().expected("1 to 1000000 per s, m, h or d"))?;
        Ok(Self { count, interval: Duration::from_secs(*seconds) })
    }

    fn write(&self) -> Yaml {
        Yaml::from(self.to_string())
    }

    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[1-9][0-9]{0,6}/[smhd]$"})
    }
}

scalar!(Rate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_policy_writes() {
        for (text, count, seconds) in
            [("100/s", 100, 1), ("500/m", 500, 60), ("2000/h", 2000, 3600), ("1/d", 1, 86_400)]
        {
            let rate = Rate::parse(text).unwrap();
            assert_eq!(
                (rate, rate.to_string().as_str()),
                (Rate { count, interval: Duration::from_secs(seconds) }, text)
            );
        }
    }

    #[test]
    fn says_what_was_probably_meant() {
        let nearest = |text: &str| Rate::parse(text).unwrap_err().nearest;
        for (text, better) in [("100", "100/s"), ("100/sec", "100/s"), ("5/Minute", "5/m"), ("7/day", "7/d")] {
            assert_eq!(nearest(text).as_deref(), Some(better), "{text}");
        }
        for text in ["", "/s", "s", "0/s", "-1/s", "1.5/s", "010/s", "1000001/s", "1/w", "1 /s", "1/ s", "1/é"] {
            assert_eq!(nearest(text), None, "{text}");
        }
    }
}
