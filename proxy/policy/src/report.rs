//! Collects what is wrong, so that one run shows everything.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::tree::{NodeId, Place, Tree};

/// More errors, or warnings, than a person reads; what is beyond is only counted, so that a hostile source stays cheap.
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
    errors: usize,
    warnings: usize,
}

impl Report {
    /// The diagnostic is only made if it will be kept.
    pub(crate) fn push(&mut self, severity: Severity, place: Place, make: impl FnOnce() -> Diagnostic) {
        // Each kind has its own room: no number of warnings may hide the errors.
        let count = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= MAX_DIAGNOSTICS {
            self.list.push((place, make()));
        }
    }

    /// True once further errors are only counted.
    pub(crate) fn is_full(&self) -> bool {
        self.errors >= MAX_DIAGNOSTICS
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The warnings, if nothing was wrong, and how many more there were.
    pub(crate) fn finish(mut self) -> Result<(Vec<Diagnostic>, usize), Diagnostics> {
        self.list.sort_by_key(|(place, _)| *place);
        let list = self.list.into_iter().map(|(_, diagnostic)| diagnostic).collect();
        let omitted_errors = self.errors.saturating_sub(MAX_DIAGNOSTICS);
        let omitted_warnings = self.warnings.saturating_sub(MAX_DIAGNOSTICS);
        match self.errors {
            0 => Ok((list, omitted_warnings)),
            _ => Err(Diagnostics { list, omitted_errors, omitted_warnings }),
        }
    }
}

/// Reads a tree and complains into a report.
pub(crate) struct Reader<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) report: &'a mut Report,
    /// Nodes at or below which something could not be read.
    wrong: HashSet<NodeId>,
    /// Documents are still being read; what is found later is wrong with values that were.
    reading: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(tree: &'a Tree, report: &'a mut Report) -> Self {
        Self { tree, report, wrong: HashSet::new(), reading: true }
    }

    pub(crate) fn error(&mut self, node: NodeId, problem: Problem) {
        if self.reading {
            self.spoil(node);
        }
        self.push(Severity::Error, node, problem);
    }

    /// Everything has been read.
    pub(crate) fn end_reading(&mut self) {
        self.reading = false;
    }

    /// An error that may only follow from something in `block` that could not be read, since that counts as not
    /// written: said only where all of it was.
    pub(crate) fn consequence(&mut self, block: NodeId, node: NodeId, problem: Problem) {
        if !self.is_wrong(block) {
            self.error(node, problem);
        }
    }

    /// Whether something at or below this node could not be read.
    pub(crate) fn is_wrong(&self, node: NodeId) -> bool {
        self.wrong.contains(&node)
    }

    /// This could not be read, which has been said.
    pub(crate) fn spoil(&mut self, node: NodeId) {
        let mut next = Some(node);
        while let Some(node) = next.filter(|node| self.wrong.insert(*node)) {
            next = self.tree.parent(node);
        }
    }

    pub(crate) fn warn(&mut self, node: NodeId, problem: Problem) {
        self.push(Severity::Warning, node, problem);
    }

    fn push(&mut self, severity: Severity, node: NodeId, problem: Problem) {
        let place = self.tree.place(node);
        self.report.push(severity, place, || self.tree.diagnose(severity, node, problem));
    }
}
