//! The YAML of all sources as one arena of nodes that know where they stand, so that every later complaint, also
//! one that spans two files, can point at its own line.

mod build;

use crate::diagnostic::{Diagnostic, Severity};
use crate::report::Problem;
use crate::source::{Provenance, Source};

/// Longest excerpt, in characters; longer lines are cut around the column.
const EXCERPT_WIDTH: usize = 120;

/// The longest piece of somebody's text that is quoted in a message.
const QUOTE_WIDTH: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(usize);

/// Where a node stands in its parent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Segment {
    /// The root of a document.
    Root,
    /// The name of an entry.
    Name,
    /// The value of the entry that this name node begins.
    Under(NodeId),
    /// An item of a list.
    Item(usize),
}

#[derive(Debug)]
pub(crate) enum Kind {
    Scalar {
        text: String,
        plain: bool,
    },
    Map(Vec<(NodeId, NodeId)>),
    List(Vec<NodeId>),
    /// Already complained about (an alias, say); nobody reads it.
    Invalid,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    parent: Option<NodeId>,
    segment: Segment,
    place: Place,
}

/// A stretch of one line of one source. Line and column count from 1, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) source: usize,
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) width: usize,
}

#[derive(Debug)]
struct Text {
    name: String,
    text: String,
    provenance: Provenance,
    /// Byte offset of each line's first character.
    lines: Vec<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    texts: Vec<Text>,
    nodes: Vec<Node>,
}

impl Tree {
    fn add_text(&mut self, source: &Source) -> usize {
        let text = source.text.strip_prefix('\u{feff}').unwrap_or(&source.text).to_owned();
        let lines = line_starts(&text);
        self.texts.push(Text { name: source.name.clone(), text, provenance: source.provenance, lines });
        self.texts.len() - 1
    }

    pub(crate) fn kind(&self, node: NodeId) -> &Kind {
        &self.nodes[node.0].kind
    }

    /// The text of a scalar, if it is one.
    pub(crate) fn text(&self, node: NodeId) -> Option<&str> {
        match self.kind(node) {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Nothing is written there, or `~` or `null`.
    pub(crate) fn is_null(&self, node: NodeId) -> bool {
        let Kind::Scalar { text, plain: true } = self.kind(node) else { return false };
        matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// The map or list that holds a node.
    pub(crate) fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.nodes[node.0].parent
    }

    /// The value of one entry of a map.
    pub(crate) fn entry(&self, map: NodeId, name: &str) -> Option<NodeId> {
        let Kind::Map(entries) = self.kind(map) else {
            return None;
        };
        entries.iter().find(|(key, _)| self.text(*key) == Some(name)).map(|(_, value)| *value)
    }

    /// Where to point when complaining about a node: maps, lists and empty values stand at their name.
    pub(crate) fn place(&self, node: NodeId) -> Place {
        let entry = &self.nodes[node.0];
        match (&entry.kind, entry.segment) {
            (Kind::Map(_) | Kind::List(_), Segment::Under(name)) => self.place(name),
            (_, Segment::Under(name)) if self.is_null(node) => self.place(name),
            _ => entry.place,
        }
    }

    pub(crate) fn file(&self, source: usize) -> &str {
        &self.texts[source].name
    }

    /// Who answers for what stands at a node.
    pub(crate) fn provenance(&self, node: NodeId) -> Provenance {
        self.texts[self.nodes[node.0].place.source].provenance
    }

    /// `spec.routes[1].timeouts`; a name node has the path of its value.
    pub(crate) fn path(&self, node: NodeId) -> String {
        let mut pieces = Vec::new();
        let mut at = Some(node);
        while let Some(id) = at {
            let entry = &self.nodes[id.0];
            match entry.segment {
                Segment::Root => {}
                Segment::Name => pieces.push(format!(".{}", short(self.text(id).unwrap_or("?")))),
                Segment::Under(name) => {
                    pieces.push(format!(".{}", short(self.text(name).unwrap_or("?"))));
                }
                Segment::Item(index) => pieces.push(format!("[{index}]")),
            }
            at = entry.parent;
        }
        pieces.reverse();
        pieces.concat().trim_start_matches('.').to_owned()
    }

    /// Turns a complaint about a node into something to print.
    pub(crate) fn diagnose(&self, severity: Severity, node: NodeId, problem: Problem) -> Diagnostic {
        let mut path = self.path(node);
        if let Some(below) = problem.below {
            path = if path.is_empty() { below.to_owned() } else { format!("{path}.{below}") };
        }
        self.diagnose_place(severity, self.place(node), path, problem)
    }

    fn diagnose_place(&self, severity: Severity, place: Place, field: String, problem: Problem) -> Diagnostic {
        let (excerpt, excerpt_offset) = self.excerpt(place);
        let room = excerpt.chars().count().saturating_sub(excerpt_offset);
        Diagnostic {
            severity,
            file: self.file(place.source).to_owned(),
            line: place.line,
            column: place.column,
            width: place.width.min(room).max(1),
            field,
            message: problem.message,
            excerpt,
            excerpt_offset,
            expected: problem.expected,
            nearest: problem.nearest,
        }
    }

    /// The line of a place and where in it the place begins. Control characters become spaces: an excerpt must not
    /// move a terminal's cursor, and a tab would shift the caret.
    fn excerpt(&self, place: Place) -> (String, usize) {
        let text = &self.texts[place.source];
        let start = text.lines.get(place.line.saturating_sub(1)).copied().unwrap_or(text.text.len());
        let line = text.text[start..].split(['\n', '\r']).next().unwrap_or("");
        let column = place.column.saturating_sub(1);
        let skip = if column < EXCERPT_WIDTH { 0 } else { column - EXCERPT_WIDTH / 2 };
        let shown = line.chars().skip(skip).take(EXCERPT_WIDTH);
        let excerpt: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let offset = (column - skip).min(excerpt.chars().count());
        (excerpt, offset)
    }
}

/// Where lines begin; as in YAML, a lone carriage return ends one too.
fn line_starts(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let ends = |at: usize| bytes[at] == b'\n' || (bytes[at] == b'\r' && bytes.get(at + 1) != Some(&b'\n'));
    std::iter::once(0).chain((0..bytes.len()).filter(|at| ends(*at)).map(|at| at + 1)).collect()
}

/// Somebody's text between backticks, cut where it would drown the message.
pub(crate) fn quote(text: &str) -> String {
    if text.is_empty() {
        return "an empty text".to_owned();
    }
    format!("`{}`", short(text))
}

fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(QUOTE_WIDTH).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(QUOTE_WIDTH).is_some() {
        shown.push_str("...");
    }
    shown
}
