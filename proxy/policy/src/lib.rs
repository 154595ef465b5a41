//! Policy: YAML in, a checked model out, and for everything that is wrong a message that says where it is and what to
//! write instead.
//!
//! ```text
//! Source -> tree (YAML with positions) -> spec (as written) -> compile -> PolicySet -> a proxy's snapshot
//! ```
//!
//! `spec` declares every block and field once; what is read and refused, the table of [`defaults`] and the JSON
//! [`schema`] all come from there. Whatever policy.md documents and this version does not do is refused by name: a
//! field must not be ignored in silence.

mod compile;
mod conflict;
mod diagnostic;
mod document;
mod emit;
mod field;
mod lint;
mod matcher;
mod model;
mod nearest;
mod report;
mod selection;
mod source;
mod spec;
mod tables;
mod tree;
mod value;

pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use document::parse;
pub use field::Row;
pub use matcher::{GrpcMatch, HeaderMatch, Matcher, PathMatch, Request, normal_path};
pub use model::{
    ConnectionLimit, DependencyPolicy, Drain, Endpoints, Origin, PolicyId, PolicySet, PortPolicy, Route, Target, Tls,
    WorkloadPolicy,
};
pub use selection::Ambiguous;
pub use source::{LoadError, MAX_SOURCE_BYTES, Provenance, Source, load};
pub use tables::{Kind, defaults, defaults_text, schema};
pub use value::{AddressPattern, Algorithm, Cidr, HostName, HostPattern, Protocol, UpstreamProtocol};
