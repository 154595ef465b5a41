//! Text with a form of its own: names, methods, header fields, paths.

use serde_json::{Value as Json, json};
use serde_yaml::{Mapping, Value as Yaml};

use super::{Form, Scalar, scalar};
use crate::field::{Value, wrong_kind};
use crate::matcher::normal_path;
use crate::nearest::nearest;
use crate::report::{Problem, Reader};
use crate::tree::{Kind, NodeId, quote};

/// The version of the format that this crate reads.
pub(crate) const API_VERSION: &str = "plimsoll.dev/v1alpha1";

#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiVersion;

impl Scalar for ApiVersion {
    const FORM: Form = Form::Word;
    const EXPECTED: &'static str = API_VERSION;

    fn parse(text: &str) -> Result<Self, Problem> {
        if text == API_VERSION {
            return Ok(Self);
        }
        Err(Problem::new(format!("{} is not a version this program reads", quote(text))))
    }

    fn write(&self) -> Yaml {
        Yaml::from(API_VERSION)
    }

    fn schema() -> Json {
        json!({"type": "string", "enum": [API_VERSION]})
    }
}

scalar!(ApiVersion);

macro_rules! text {
    ($(#[doc = $doc:literal])* $Name:ident, $expected:literal, $schema:tt, $parse:expr) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $Name(pub(crate) String);

        impl Scalar for $Name {
            const FORM: Form = Form::Free;
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Result<Self, Problem> {
                let parse: fn(&str) -> Result<(), Problem> = $parse;
                parse(text).map(|()| Self(text.to_owned()))
            }

            fn write(&self) -> Yaml {
                Yaml::from(self.0.as_str())
            }

            fn schema() -> Json {
                json!($schema)
            }
        }

        scalar!($Name);
    };
}

text!(
    /// Any text of one line.
    Text, "text of one line", {"type": "string"}, |text| {
        match text.chars().any(char::is_control) {
            true => Err(Problem::new(format!("{} has a control character in it", quote(text)))),
            false => Ok(()),
        }
    }
);

text!(
    /// The name of a policy, workload, namespace or route: what Kubernetes allows as a DNS label or subdomain.
    Name, "lower-case letters, digits, `-` and `.`, at most 63, letters or digits at both ends",
    {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}, |text| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        if bytes.len() <= 63 && text.bytes().all(inner) && edge(bytes.first()) && edge(bytes.last()) {
            return Ok(());
        }
        let lower = text.to_ascii_lowercase().replace(['_', ' '], "-");
        let better = (lower != text && Name::parse(&lower).is_ok()).then_some(lower);
        Err(Problem::new(format!("{} is not a name", quote(text))).nearest(better))
    }
);

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

text!(
    /// A request method.
    Method, "a method in capitals, such as GET", {"type": "string", "pattern": "^[A-Z][A-Z0-9_-]*$"}, |text| {
        let inner = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        if text.bytes().all(inner) && text.as_bytes().first().is_some_and(u8::is_ascii_uppercase) {
            return Ok(());
        }
        let problem = Problem::new(format!("{} is not a method (they are case-sensitive)", quote(text)));
        Err(problem.nearest(nearest(text, METHODS)))
    }
);

text!(
    /// The full name of a gRPC service.
    GrpcService, "the full name of a service, such as shop.fraud.v1.Scores",
    {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$"}, |text| {
        if text.split('.').all(is_identifier) {
            return Ok(());
        }
        let flat = text.trim_matches('/');
        let better = flat.split_once('/').map_or(flat, |(service, _)| service);
        let better = better.split('.').all(is_identifier).then(|| better.to_owned());
        Err(Problem::new(format!("{} is not the name of a gRPC service", quote(text))).nearest(better))
    }
);

text!(
    /// A method of a gRPC service.
    GrpcMethod, "the name of a method, such as Score", {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    |text| match is_identifier(text) {
        true => Ok(()),
        false => {
            let last = text.rsplit(['/', '.']).next().filter(|last| is_identifier(last));
            Err(Problem::new(format!("{} is not the name of a gRPC method", quote(text))).nearest(last))
        }
    }
);

/// As the language of protocol buffers has them.
fn is_identifier(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(inner) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

text!(
    /// The name of a header field, in lower case.
    HeaderName, "a field name in lower case, such as x-user",
    {"type": "string", "pattern": "^[-a-z0-9!#$%&'*+.^_`|~]+$"}, |text| {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if text.is_empty() || !text.bytes().all(token) {
            return Err(Problem::new(format!("{} is not a header field's name", quote(text))));
        }
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            let lower = text.to_ascii_lowercase();
            return Err(Problem::new(format!("{} has capitals in it", quote(text))).nearest(Some(lower)));
        }
        Ok(())
    }
);

text!(
    /// A path in its normal form, which is what requests are matched in.
    PathText, "a path such as /v1/charge", {"type": "string", "pattern": "^/[^?#]*$"}, |text| {
        if !text.starts_with('/') || text.contains(['?', '#']) || text.chars().any(|c| c.is_control() || c == ' ') {
            return Err(Problem::new(format!("{} is not a path", quote(text))));
        }
        let normal = normal_path(text);
        if normal != text {
            return Err(Problem::new(format!("{} can never match", quote(text)))
                .expected("a path in normal form: no dot segments, no doubled slashes, no needless percent-encoding")
                .nearest(Some(normal.into_owned())));
        }
        Ok(())
    }
);

text!(
    /// A file with a certificate or key: a name below the folder for secrets, or a path that a person wrote. Whether a
    /// path may stand there depends on where the policy comes from.
    SecretFile, "the name of a file below --secrets-dir, such as client.pem or partner/ca.pem",
    {"type": "string", "minLength": 1}, |text| {
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(Problem::new(format!("{} is not the name of a file", quote(text))));
        }
        let steps = text.strip_prefix('/').unwrap_or(text).split('/');
        let odd = |step: &str| matches!(step, "" | "." | "..");
        if steps.clone().any(odd) {
            let plain: Vec<_> = steps.filter(|step| !odd(step)).collect();
            let plain = (!plain.is_empty() && !text.contains("..")).then(|| plain.join("/"));
            let problem = Problem::new(format!("{} leads elsewhere or nowhere", quote(text)));
            return Err(problem.expected("a name without empty steps, `.` and `..`").nearest(plain));
        }
        Ok(())
    }
);

/// Labels or annotations: text by text, carried along and not read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels(Vec<(String, String)>);

impl Value for Labels {
    fn read(reader: &mut Reader<'_>, node: NodeId) -> Option<Self> {
        let Kind::Map(entries) = reader.tree.kind(node) else {
            wrong_kind(reader, node, "a map of text");
            return None;
        };
        let mut labels = Vec::new();
        for (name, value) in entries {
            let Some(text) = reader.tree.text(*value) else {
                wrong_kind(reader, *value, "text");
                return None;
            };
            labels.push((reader.tree.text(*name)?.to_owned(), text.to_owned()));
        }
        Some(Self(labels))
    }

    fn schema() -> Json {
        json!({"type": "object", "additionalProperties": {"type": "string"}})
    }

    fn write(&self) -> Yaml {
        let entries = self.0.iter().map(|(name, value)| (Yaml::from(name.as_str()), Yaml::from(value.as_str())));
        Yaml::Mapping(entries.collect::<Mapping>())
    }
}
