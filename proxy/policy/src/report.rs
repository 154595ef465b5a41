//! Collects what is wrong, so that one run shows everything.

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::tree::{NodeId, Place, Tree};

/// More than a person reads; what is beyond is only counted, so that a hostile source stays cheap.
const MAX_DIAGNOSTICS: usize = 100;

/// A suggestion made of a value is as long as the value; beyond this, in bytes, it helps nobody.
const LONGEST_NEAREST: usize = 120;

/// What is wrong, before it is known where.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) message: String,
    pub(crate) expected: Option<String>,
    pub(crate) nearest: Option<String>,
    /// The field that is meant, where it is not there to be pointed at.
    pub(crate) below: Option<&'static str>,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), expected: None, nearest: None, below: None }
    }

    pub(crate) fn below(mut self, field: &'static str) -> Self {
        self.below = Some(field);
        self
    }

    pub(crate) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    pub(crate) fn nearest(mut self, nearest: Option<impl Into<String>>) -> Self {
        self.nearest = nearest.map(Into::into).filter(|nearest| nearest.len() <= LONGEST_NEAREST);
        self
    }
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    list: Vec<(Place, Diagnostic)>,
    omitted: usize,
    errors: usize,
}

impl Report {
    /// The diagnostic is only made if it will be kept.
    pub(crate) fn push(&mut self, severity: Severity, place: Place, make: impl FnOnce() -> Diagnostic) {
        self.errors += usize::from(severity == Severity::Error);
        if self.is_full() {
            self.omitted += 1;
        } else {
            self.list.push((place, make()));
        }
    }

    /// True once further complaints are only counted.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MAX_DIAGNOSTICS
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The warnings, if nothing was wrong.
    pub(crate) fn finish(mut self) -> Result<Vec<Diagnostic>, Diagnostics> {
        self.list.sort_by_key(|(place, _)| *place);
        let list = self.list.into_iter().map(|(_, diagnostic)| diagnostic).collect();
        if self.errors == 0 { Ok(list) } else { Err(Diagnostics { list, omitted: self.omitted }) }
    }
}

/// Reads a tree and complains into a report.
pub(crate) struct Reader<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) report: &'a mut Report,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(tree: &'a Tree, report: &'a mut Report) -> Self {
        Self { tree, report }
    }

    pub(crate) fn error(&mut self, node: NodeId, problem: Problem) {
        self.push(Severity::Error, node, problem);
    }

    pub(crate) fn warn(&mut self, node: NodeId, problem: Problem) {
        self.push(Severity::Warning, node, problem);
    }

    fn push(&mut self, severity: Severity, node: NodeId, problem: Problem) {
        let place = self.tree.place(node);
        self.report.push(severity, place, || self.tree.diagnose(severity, node, problem));
    }
}
