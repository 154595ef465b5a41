//! What is generated from the declarations in `spec`: the table of defaults and the JSON schema.

use serde_json::{Value as Json, json};

use crate::field::{Row, Value as _};
use crate::spec::{DependencyDocument, WorkloadDocument};

/// A kind of policy document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A service that is called.
    DependencyPolicy,
    /// A service that is served.
    WorkloadPolicy,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::DependencyPolicy, Self::WorkloadPolicy];

    /// As `kind` has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DependencyPolicy => "DependencyPolicy",
            Self::WorkloadPolicy => "WorkloadPolicy",
        }
    }
}

/// Every field of a kind with its default, in the order of the documentation.
#[must_use]
pub fn defaults(kind: Kind) -> Vec<Row> {
    let mut rows = Vec::new();
    match kind {
        Kind::DependencyPolicy => DependencyDocument::rows("", &mut rows),
        Kind::WorkloadPolicy => WorkloadDocument::rows("", &mut rows),
    }
    for row in &mut rows {
        row.field.remove(0);
    }
    rows
}

/// The table of defaults of every kind, as `plimsoll lint --defaults` prints it.
#[must_use]
pub fn defaults_text() -> String {
    let mut text = String::new();
    for kind in Kind::ALL {
        let rows = defaults(kind);
        let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
        let (field, default) = (width(|row| &row.field), width(|row| &row.default).min(40));
        text.push_str(kind.as_str());
        text.push('\n');
        for row in &rows {
            let line = format!("  {:field$}  {:default$}  {}", row.field, row.default, row.description);
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

/// The JSON schema of a kind (draft-07, which editors understand; no `$ref`, so that a structural schema can be made
/// of it). It knows every form and range of a single field, and nothing of what needs two.
#[must_use]
pub fn schema(kind: Kind) -> Json {
    let mut schema = match kind {
        Kind::DependencyPolicy => DependencyDocument::schema(),
        Kind::WorkloadPolicy => WorkloadDocument::schema(),
    };
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!(kind.as_str());
    schema
}
