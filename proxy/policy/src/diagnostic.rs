//! What is wrong, where, and what to write instead.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// The policy is taken, but probably does not say what was meant.
    Warning,
}

impl Severity {
    /// `error` or `warning`, as it is printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One message about one place in one source. `Display` prints it with its excerpt, over several lines;
/// `Serialize` gives the shape of the admin address, with the printed form as `text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The name of the source.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// How many characters of that line are meant, at least 1.
    pub width: usize,
    /// The path of the field, such as `spec.routes[1].timeouts.request`; empty where there is none.
    pub field: String,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The line itself; of a very long line the part around the column.
    pub excerpt: String,
    /// Where the column falls in `excerpt`, from 0.
    pub excerpt_offset: usize,
    /// What could stand there.
    pub expected: Option<String>,
    /// The valid name nearest to the one written.
    pub nearest: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, excerpt, .. } = self;
        let gutter = " ".repeat(line.to_string().len());
        writeln!(f, "{}: {message}", self.severity.as_str())?;
        writeln!(f, "{gutter}--> {file}:{line}:{column}")?;
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{line} | {excerpt}")?;
        write!(f, "{gutter} | {}{}", " ".repeat(self.excerpt_offset), "^".repeat(self.width))?;
        if !self.field.is_empty() {
            write!(f, "\n{gutter} = field: {}", self.field)?;
        }
        if let Some(expected) = &self.expected {
            write!(f, "\n{gutter} = expected: {expected}")?;
        }
        if let Some(nearest) = &self.nearest {
            write!(f, "\n{gutter} = did you mean: {nearest}")?;
        }
        Ok(())
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Diagnostic", 10)?;
        object.serialize_field("severity", self.severity.as_str())?;
        object.serialize_field("file", &self.file)?;
        object.serialize_field("line", &self.line)?;
        object.serialize_field("column", &self.column)?;
        object.serialize_field("field", &self.field)?;
        object.serialize_field("message", &self.message)?;
        object.serialize_field("excerpt", &self.excerpt)?;
        object.serialize_field("expected", &self.expected)?;
        object.serialize_field("nearest", &self.nearest)?;
        object.serialize_field("text", &self.to_string())?;
        object.end()
    }
}

/// All that is wrong with a set of sources, in the order of the text. There is at least one error among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// Errors and warnings, by source and position.
    pub list: Vec<Diagnostic>,
    /// How many more errors there were than are worth printing.
    pub omitted_errors: usize,
    /// How many more warnings.
    pub omitted_warnings: usize,
}

impl Diagnostics {
    /// Those that made the policy be refused.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter().filter(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.list.iter().enumerate() {
            if index > 0 {
                write!(f, "\n\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        match self.omitted_errors + self.omitted_warnings {
            0 => Ok(()),
            more => write!(f, "\n\n... and {more} more"),
        }
    }
}

impl std::error::Error for Diagnostics {}
