//! From sources to documents, and from documents to policies.

use crate::compile;
use crate::conflict;
use crate::diagnostic::Diagnostics;
use crate::field::Value as _;
use crate::lint;
use crate::model::PolicySet;
use crate::nearest::nearest;
use crate::report::{Problem, Reader, Report};
use crate::source::Source;
use crate::spec::{DependencyDocument, WorkloadDocument};
use crate::tree::{NodeId, Tree, quote};

const KINDS: [&str; 2] = ["DependencyPolicy", "WorkloadPolicy"];

/// Kinds that policy.md documents and this version does not do.
const LATER_KINDS: [&str; 1] = ["FaultInjection"];

/// Reads and checks every document of every source.
///
/// # Errors
/// Everything that is wrong anywhere, not only the first; nothing of the sources is taken then.
pub fn parse(sources: &[Source]) -> Result<PolicySet, Diagnostics> {
    let mut report = Report::default();
    let mut tree = Tree::default();
    let roots: Vec<_> = sources.iter().flat_map(|source| tree.build(source, &mut report)).collect();
    let mut reader = Reader::new(&tree, &mut report);
    let mut documents = Documents::default();
    for root in roots {
        documents.read(&mut reader, root);
    }
    reader.end_reading();
    let dependencies = documents.dependencies.iter();
    let dependencies = dependencies.filter_map(|one| compile::dependency(&mut reader, one)).collect();
    let workloads = documents.workloads.iter();
    let workloads = workloads.filter_map(|one| compile::workload(&mut reader, one)).collect();
    conflict::check(&mut reader, &documents);
    if !reader.report.has_errors() {
        lint::check(&mut reader, &documents);
    }
    let (warnings, omitted_warnings) = report.finish()?;
    Ok(PolicySet { dependencies, workloads, warnings, omitted_warnings })
}

#[derive(Default)]
pub(crate) struct Documents {
    pub(crate) dependencies: Vec<DependencyDocument>,
    pub(crate) workloads: Vec<WorkloadDocument>,
}

impl Documents {
    fn read(&mut self, reader: &mut Reader<'_>, root: NodeId) {
        let kind = reader.tree.entry(root, "kind");
        match kind.and_then(|kind| reader.tree.text(kind)) {
            Some("DependencyPolicy") => {
                self.dependencies.extend(DependencyDocument::read(reader, root));
            }
            Some("WorkloadPolicy") => {
                self.workloads.extend(WorkloadDocument::read(reader, root));
            }
            other => refuse_kind(reader, root, kind.zip(other)),
        }
    }
}

fn refuse_kind(reader: &mut Reader<'_>, root: NodeId, kind: Option<(NodeId, &str)>) {
    let Some((node, kind)) = kind else {
        let problem = Problem::new("this document does not say what it is: `kind` is missing");
        reader.error(root, problem.expected(KINDS.join(", ")));
        return;
    };
    if LATER_KINDS.contains(&kind) {
        reader.error(node, Problem::new(format!("kind {} is not supported by this version", quote(kind))));
        return;
    }
    let problem = Problem::new(format!("{} is not a kind of policy", quote(kind))).expected(KINDS.join(", "));
    reader.error(node, problem.nearest(nearest(kind, KINDS)));
}
