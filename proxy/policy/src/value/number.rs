//! Whole numbers, percents and sizes.

use serde_json::{Value as Json, json};
use serde_yaml::Value as Yaml;

use super::{Form, Scalar, scalar};
use crate::report::Problem;
use crate::tree::quote;

/// Above any limit that makes sense, and far below where sums would overflow.
pub(super) const LARGEST: u32 = 1_000_000;

macro_rules! whole {
    ($(#[doc = $doc:literal])* $Name:ident, $least:expr, $most:expr, $expected:literal) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $Name(pub(crate) u32);

        impl Scalar for $Name {
            const FORM: Form = Form::Bare;
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Result<Self, Problem> {
                parse_whole(text, $least, $most).map(Self)
            }

            fn write(&self) -> Yaml {
                Yaml::from(self.0)
            }

            fn schema() -> Json {
                json!({"type": "integer", "minimum": $least, "maximum": $most})
            }
        }

        scalar!($Name);
    };
}

whole!(
    /// A limit or a number of things: at least one.
    Count, 1, LARGEST, "a whole number from 1 to 1000000"
);
whole!(
    /// A number that may be zero.
    Number, 0, LARGEST, "a whole number from 0 to 1000000"
);
whole!(
    /// Attempts of one call.
    Attempts, 1, 100, "a whole number from 1 to 100"
);
whole!(
    /// A threshold in percent; zero would always be passed.
    Percent, 1, 100, "a whole percentage from 1 to 100"
);
whole!(
    /// A share in percent, which may be nothing.
    Share, 0, 100, "a whole percentage from 0 to 100"
);

pub(super) fn parse_whole(text: &str, least: u32, most: u32) -> Result<u32, Problem> {
    // To YAML 1.1, which kubectl reads, 010 is eight.
    let plain = text == "0" || !text.starts_with(['+', '0']);
    let number: Option<u32> = text.parse().ok().filter(|_| plain);
    match number {
        Some(0) if least > 0 => Err(Problem::new("0 is not a limit")
            .expected(format!("a whole number from {least} to {most}; `mode: Disabled` switches a block off"))),
        Some(number) if number < least => Err(Problem::new(format!("{number} is too small"))),
        Some(number) if number > most => Err(Problem::new(format!("{number} is too large"))),
        Some(number) => Ok(number),
        None => Err(Problem::new(format!("{} is not a whole number", quote(text)))),
    }
}

impl Scalar for bool {
    const FORM: Form = Form::Bare;
    const EXPECTED: &'static str = "true or false";

    fn parse(text: &str) -> Result<Self, Problem> {
        text.parse().map_err(|_| Problem::new(format!("{} is neither true nor false", quote(text))))
    }

    fn write(&self) -> Yaml {
        Yaml::from(*self)
    }

    fn schema() -> Json {
        json!({"type": "boolean"})
    }
}

scalar!(bool);

/// A size in bytes, written as a Kubernetes quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

const SIZE_UNITS: [(&str, u64); 7] =
    [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10), ("G", 1_000_000_000), ("M", 1_000_000), ("k", 1000), ("", 1)];

impl Scalar for Size {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str = "a size such as 64Ki or 1Mi";

    fn parse(text: &str) -> Result<Self, Problem> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.len() > 1 && number.starts_with('0') {
            return Err(Problem::new(format!("{} begins with a needless zero", quote(text))));
        }
        let scale = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        let bytes = number.parse::<u64>().ok().zip(scale).and_then(|(number, scale)| number.checked_mul(scale));
        bytes.map(Self).ok_or_else(|| Problem::new(format!("{} is not a size", quote(text))))
    }

    fn write(&self) -> Yaml {
        let binary = SIZE_UNITS[..3].iter().find(|(_, scale)| self.0 > 0 && self.0.is_multiple_of(*scale));
        match binary {
            Some((unit, scale)) => Yaml::from(format!("{}{unit}", self.0 / scale)),
            None => Yaml::from(self.0),
        }
    }

    fn schema() -> Json {
        let quantity = json!({"type": "string", "pattern": "^[0-9]+(Ki|Mi|Gi|k|M|G)?$"});
        json!({"anyOf": [{"type": "integer", "minimum": 0}, quantity]})
    }
}

scalar!(Size);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_kubernetes_quantities() {
        for (text, bytes) in [("64Ki", 65_536), ("1Mi", 1 << 20), ("10k", 10_000), ("0", 0), ("1000", 1000)] {
            assert_eq!(Size::parse(text).unwrap(), Size(bytes));
        }
        for text in ["", "Ki", "64 Ki", "64kb", "-1", "1.5Mi", "99999999999999999999Gi", "18446744073709551615Gi"] {
            assert!(Size::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn whole_numbers_are_nothing_but_digits() {
        assert_eq!(Count::parse("20").unwrap(), Count(20));
        for text in ["0", "-1", "+1", "1e3", "1_000", "0x10", "", "1000001", "4294967296"] {
            assert!(Count::parse(text).is_err(), "{text}");
        }
    }
}
