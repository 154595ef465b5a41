//! What can stand as a single value: numbers, durations, names, addresses. Each type knows how it is read, how it
//! is written back, and what it looks like in a JSON schema.

mod address;
mod codes;
mod duration;
mod host;
mod number;
mod rate;
mod text;
mod word;

pub(crate) use address::{Endpoint, Listen, Port};
pub(crate) use codes::{CodePattern, GrpcCode};
pub(crate) use duration::{Positive, WindowSize, duration_text};
pub(crate) use number::{Attempts, Count, Number, Percent, Share, Size};
pub(crate) use rate::Rate;
pub(crate) use text::{
    ApiVersion, GrpcMethod, GrpcService, HeaderName, Labels, Method, Name, PathText, SecretFile, Text,
};
pub(crate) use word::{ConnectionError, DependencyKind, TlsMode, WindowType, WorkloadKind};

pub use address::{AddressPattern, Cidr};
pub(crate) use host::{DnsName, ServerName};
pub use host::{HostName, HostPattern};
pub use word::{Algorithm, Protocol, UpstreamProtocol};

use serde_json::Value as Json;
use serde_yaml::Value as Yaml;

use crate::field::wrong_kind;
use crate::report::{Problem, Reader};
use crate::tree::{Kind, NodeId, quote};

/// How YAML itself sees a value, which decides what must be quoted and what must not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A number or a boolean: never quoted.
    Bare,
    /// A string of a form that YAML cannot take for anything else once it is valid.
    Word,
    /// Any string; one that YAML would take for a number, a boolean or null needs quotes.
    Free,
    /// A number, never quoted, or a string that is none.
    Either,
}

/// A value written as one scalar.
pub(crate) trait Scalar: Sized + Clone {
    const FORM: Form;
    const EXPECTED: &'static str;
    fn parse(text: &str) -> Result<Self, Problem>;
    fn write(&self) -> Yaml;
    fn schema() -> Json;
}

pub(crate) fn read_scalar<T: Scalar>(reader: &mut Reader<'_>, node: NodeId) -> Option<T> {
    let null = reader.tree.is_null(node);
    let (Kind::Scalar { text, plain }, false) = (reader.tree.kind(node), null) else {
        wrong_kind(reader, node, T::EXPECTED);
        return None;
    };
    let problem = match T::FORM {
        Form::Bare if !plain => unquote(text),
        Form::Either if !plain && is_retyped(text) => unquote(text),
        Form::Free if *plain && is_retyped(text) => {
            Problem::new(format!("{} is not text to YAML", quote(text))).expected("the same in quotes")
        }
        _ => match T::parse(text) {
            Ok(value) => return Some(value),
            Err(problem) => problem,
        },
    };
    let problem = match problem.expected {
        Some(_) => problem,
        None => problem.expected(T::EXPECTED),
    };
    reader.error(node, problem);
    None
}

fn unquote(text: &str) -> Problem {
    Problem::new(format!("{} is text here", quote(text))).expected("the same without quotes")
}

/// Whether some YAML parser on the way (kubectl reads YAML 1.1) makes a number or a boolean of it.
pub(crate) fn is_retyped(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    is_boolean(&lower) || matches!(lower.as_str(), "null" | "~") || is_number(&lower)
}

/// Lower case expected.
fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']).replace('_', "");
    let radix = |prefix: &str, radix| {
        let rest = digits.strip_prefix(prefix);
        rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_digit(radix)))
    };
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    (numeric && digits.parse::<f64>().is_ok())
        || radix("0x", 16)
        || radix("0o", 8)
        || radix("0b", 2)
        || matches!(digits.as_str(), ".inf" | ".nan")
}

/// Lower case expected.
fn is_boolean(text: &str) -> bool {
    matches!(text, "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n")
}

macro_rules! scalar {
    ($Type:ty) => {
        impl $crate::field::Value for $Type {
            fn read(reader: &mut $crate::report::Reader<'_>, node: $crate::tree::NodeId) -> Option<Self> {
                $crate::value::read_scalar(reader, node)
            }

            fn schema() -> serde_json::Value {
                <Self as $crate::value::Scalar>::schema()
            }

            fn write(&self) -> serde_yaml::Value {
                $crate::value::Scalar::write(self)
            }
        }
    };
}

pub(crate) use scalar;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_yaml_takes_for_something_else_than_text() {
        for text in [
            "1", "-1.5", "1e3", "0x1F", "0o7", "0b1", "1_000", ".5", ".inf", "-.Inf", ".NaN", "yes", "OFF", "Null",
            "~", "y",
        ] {
            assert!(is_retyped(text), "{text}");
        }
        for text in ["inf", "nan", "a1", "1a", "0x", "1.2.3", "10.0.0.1", "yes-man", "-", ".", "_"] {
            assert!(!is_retyped(text), "{text}");
        }
    }
}
