//! Status codes: `503`, `5xx`, and gRPC's by name.

use plimsoll_resilience::codes::{self, CodeSet};
use serde_json::{Value as Json, json};
use serde_yaml::Value as Yaml;

use super::{Form, Scalar, scalar};
use crate::nearest::nearest;
use crate::report::Problem;
use crate::tree::quote;

/// One entry of a list of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodePattern {
    /// `5xx`: all codes that begin with this digit.
    Class(u16),
    Code(u16),
}

impl CodePattern {
    pub(crate) fn codes(self) -> CodeSet {
        match self {
            Self::Code(code) => CodeSet::of(&[code]),
            Self::Class(class) => CodeSet::range(class * 100, class * 100 + 99),
        }
    }
}

impl Scalar for CodePattern {
    const FORM: Form = Form::Either;
    const EXPECTED: &'static str = "a status code such as 503, or a class such as 5xx";

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::new(format!("{} is not a status code", quote(text)));
        if let Some(class) = text.strip_suffix("xx") {
            return match class {
                "1" | "2" | "3" | "4" | "5" => class.parse().map(Self::Class).map_err(|_| wrong()),
                _ => Err(wrong()),
            };
        }
        parse_code(text).map(Self::Code).ok_or_else(wrong)
    }

    fn write(&self) -> Yaml {
        match self {
            Self::Class(class) => Yaml::from(format!("{class}xx")),
            Self::Code(code) => Yaml::from(*code),
        }
    }

    fn schema() -> Json {
        let code = json!({"type": "integer", "minimum": 100, "maximum": 599});
        json!({"anyOf": [code, {"type": "string", "pattern": "^[1-5]xx$"}]})
    }
}

scalar!(CodePattern);

fn parse_code(text: &str) -> Option<u16> {
    let code: u16 = text.parse().ok()?;
    ((100..=599).contains(&code) && text.len() == 3).then_some(code)
}

/// A gRPC status that may mean failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrpcCode(pub(crate) codes::GrpcCode);

impl GrpcCode {
    /// `Ok` is no failure, and nothing to retry.
    fn names() -> impl Iterator<Item = &'static str> {
        codes::GrpcCode::ALL.into_iter().skip(1).map(codes::GrpcCode::as_str)
    }
}

impl Scalar for GrpcCode {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str = "the name of a gRPC status in CamelCase, such as Unavailable";

    fn parse(text: &str) -> Result<Self, Problem> {
        let code = codes::GrpcCode::ALL.into_iter().skip(1).find(|code| code.as_str() == text);
        code.map(Self).ok_or_else(|| {
            let flat = text.replace('_', "");
            Problem::new(format!("{} is not a gRPC status that means failure", quote(text)))
                .nearest(nearest(&flat, Self::names()))
        })
    }

    fn write(&self) -> Yaml {
        Yaml::from(self.0.as_str())
    }

    fn schema() -> Json {
        json!({"type": "string", "enum": Self::names().collect::<Vec<_>>()})
    }
}

scalar!(GrpcCode);
