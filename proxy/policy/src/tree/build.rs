//! From parser events to nodes. What YAML can say and policy does not need is refused here: anchors and aliases
//! (a kilobyte of them can stand for gigabytes), merge keys, tags, names that are not scalars.

use std::collections::HashSet;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::{Kind, Node, NodeId, Place, Segment, Tree, quote};
use crate::diagnostic::Severity;
use crate::report::{Problem, Report};
use crate::source::{MAX_SOURCE_BYTES, Source};

/// Policy as documented is eight deep.
const MAX_DEPTH: usize = 32;

/// Nodes of one source: at about 120 bytes each this bounds what a hostile megabyte may cost to some 6 MB.
const MAX_NODES: usize = 50_000;

impl Tree {
    /// Parses one more source and gives the roots of its documents, without empty ones. Where its syntax breaks off,
    /// what came before is still there to be checked.
    pub(crate) fn build(&mut self, source: &Source, report: &mut Report) -> Vec<NodeId> {
        let text = self.add_text(source);
        let start = Place { source: text, line: 1, column: 1, width: 1 };
        if source.text.len() > MAX_SOURCE_BYTES {
            let problem = Problem::new("this policy is larger than 1 MiB").expected("several smaller ones");
            report.push(Severity::Error, start, || self.diagnose_place(Severity::Error, start, String::new(), problem));
            return Vec::new();
        }
        let input = self.texts[text].text.clone();
        let first = self.nodes.len();
        let mut builder = Builder { tree: self, report, source: text, first, open: Vec::new(), roots: Vec::new() };
        builder.run(&input);
        let roots = builder.finish();
        if roots.is_empty() && !report.has_errors() {
            let problem = Problem::new("there is no policy in this source").expected("at least one document");
            report.push(Severity::Warning, start, || {
                self.diagnose_place(Severity::Warning, start, String::new(), problem)
            });
        }
        roots
    }
}

/// A map or list whose end has not come yet.
struct Open {
    node: NodeId,
    /// In a map: the name that waits for its value, and whether the pair is kept.
    name: Option<(NodeId, bool)>,
    names: HashSet<String>,
}

struct Builder<'a> {
    tree: &'a mut Tree,
    report: &'a mut Report,
    source: usize,
    first: usize,
    open: Vec<Open>,
    roots: Vec<NodeId>,
}

impl Builder<'_> {
    fn run(&mut self, input: &str) {
        let mut parser = Parser::new_from_str(input);
        while let Some(event) = parser.next_event() {
            let going = match event {
                Ok((event, span)) => self.handle_event(event, span),
                Err(error) => self.handle_scan_error(&error),
            };
            if !going {
                return;
            }
        }
    }

    /// Documents that broke off in the middle are not handed on: half a policy may read as a whole one.
    fn finish(self) -> Vec<NodeId> {
        let broken = self.open.first().map(|open| open.node);
        let tree = self.tree;
        self.roots.into_iter().filter(|root| Some(*root) != broken && !tree.is_null(*root)).collect()
    }

    /// False when there is no going on.
    fn handle_event(&mut self, event: Event<'_>, span: Span) -> bool {
        let place = self.place(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_decoration(place, anchor != 0, tag.is_some());
                self.scalar(place, text.into_owned(), style == ScalarStyle::Plain)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_decoration(place, anchor != 0, tag.is_some());
                self.container(place, Kind::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_decoration(place, anchor != 0, tag.is_some());
                self.container(place, Kind::Map(Vec::new()))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.open.pop();
                true
            }
            Event::Alias(_) => {
                self.error(place, Problem::new("aliases are not supported in policy").expected("the value itself"));
                self.add(place, Kind::Invalid).is_some()
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                true
            }
        }
    }

    fn scalar(&mut self, place: Place, text: String, plain: bool) -> bool {
        self.add(place, Kind::Scalar { text, plain }).is_some()
    }

    fn container(&mut self, place: Place, kind: Kind) -> bool {
        if self.open.len() >= MAX_DEPTH {
            self.error(place, Problem::new("nested too deeply").expected(format!("at most {MAX_DEPTH} levels")));
            return false;
        }
        let Some(node) = self.add(place, kind) else {
            return false;
        };
        self.open.push(Open { node, name: None, names: HashSet::new() });
        true
    }

    /// Puts a node where the open containers say it belongs. `None` when the source has too many.
    fn add(&mut self, place: Place, kind: Kind) -> Option<NodeId> {
        if self.tree.nodes.len() - self.first >= MAX_NODES {
            self.error(place, Problem::new("too many values in one policy source").expected("several smaller ones"));
            return None;
        }
        let node = NodeId(self.tree.nodes.len());
        let parent = self.open.last().map(|open| open.node);
        let segment = self.attach(node);
        self.tree.nodes.push(Node { kind, parent, segment, place });
        if matches!(segment, Segment::Name) {
            self.check_name(node, place);
        }
        Some(node)
    }

    /// Where the new node stands, noted in its parent unless it is a name.
    fn attach(&mut self, node: NodeId) -> Segment {
        let Some(open) = self.open.last_mut() else {
            self.roots.push(node);
            return Segment::Root;
        };
        let parent = open.node;
        match &mut self.tree.nodes[parent.0].kind {
            Kind::List(items) => {
                items.push(node);
                Segment::Item(items.len() - 1)
            }
            Kind::Map(entries) => match open.name.take() {
                None => {
                    // The pair is kept once `check_name` has seen the name.
                    open.name = Some((node, false));
                    Segment::Name
                }
                Some((name, kept)) => {
                    if kept {
                        entries.push((name, node));
                    }
                    Segment::Under(name)
                }
            },
            Kind::Scalar { .. } | Kind::Invalid => Segment::Root,
        }
    }

    fn check_name(&mut self, node: NodeId, place: Place) {
        let name = self.tree.text(node).map(str::to_owned);
        let Some(open) = self.open.last_mut() else {
            return;
        };
        let problem = match name {
            None => Some(Problem::new("a list or a map cannot be a field's name").expected("name: value")),
            Some(name) if name == "<<" => {
                Some(Problem::new("merge keys are not supported in policy").expected("the fields themselves"))
            }
            Some(name) if !open.names.insert(name.clone()) => {
                Some(Problem::new(format!("{} is written twice", quote(&name))).expected("each field once"))
            }
            Some(_) => None,
        };
        open.name = Some((node, problem.is_none()));
        if let Some(problem) = problem {
            let path = self.tree.path(node);
            self.error_in(place, path, problem);
        }
    }

    fn refuse_decoration(&mut self, place: Place, anchor: bool, tag: bool) {
        if anchor {
            self.error(
                place,
                Problem::new("anchors are not supported in policy").expected("the value, without `&name`"),
            );
        }
        if tag {
            self.error(place, Problem::new("tags are not supported in policy").expected("the value, without `!tag`"));
        }
    }

    fn handle_scan_error(&mut self, error: &ScanError) -> bool {
        let marker = error.marker();
        let place = Place { source: self.source, line: marker.line().max(1), column: marker.col() + 1, width: 1 };
        self.error(place, Problem::new(format!("not valid YAML: {}", error.info())));
        false
    }

    fn place(&self, span: Span) -> Place {
        let (start, end) = (span.start, span.end);
        let width = if end.line() == start.line() { end.col().saturating_sub(start.col()) } else { 1 };
        Place { source: self.source, line: start.line().max(1), column: start.col() + 1, width: width.max(1) }
    }

    fn error(&mut self, place: Place, problem: Problem) {
        self.error_in(place, String::new(), problem);
    }

    fn error_in(&mut self, place: Place, field: String, problem: Problem) {
        let tree = &*self.tree;
        self.report.push(Severity::Error, place, || tree.diagnose_place(Severity::Error, place, field, problem));
    }
}
