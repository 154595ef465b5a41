//! How a block of policy is declared: once. Its Rust type, what it reads, what it refuses, its line in the table of
//! defaults and its JSON schema all come from the one `block!` that names its fields.

mod block;
mod slot;

pub(crate) use block::block;
pub(crate) use block::{Block, Field, Later, read_block, rows_of_block, schema_of_block, write_block};
pub(crate) use slot::{Defaulted, Optional, Required, Slot};

use std::collections::HashSet;

use serde_json::{Value as Json, json};
use serde_yaml::Value as Yaml;

use crate::report::{Problem, Reader};
use crate::tree::{Kind, NodeId, quote};

/// Something that can stand as the value of a field.
pub(crate) trait Value: Sized + Clone {
    /// `None`: it is wrong, and that has been reported.
    fn read(reader: &mut Reader<'_>, node: NodeId) -> Option<Self>;
    fn schema() -> Json;
    fn write(&self) -> Yaml;
    /// What is not written here is as in `from` (routes inherit from their dependency).
    fn inherit(&mut self, _from: &Self) {}
    /// The rows of the fields below it.
    fn rows(_path: &str, _rows: &mut Vec<Row>) {}
}

/// One field in the table of defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its path from `spec`, such as `spec.bulkhead.maxQueued`.
    pub field: String,
    /// Its default as YAML, a remark in parentheses, or `required`.
    pub default: String,
    /// What it means.
    pub description: String,
}

/// A value and where it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<T> {
    pub(crate) node: NodeId,
    pub(crate) value: T,
}

impl<T: Value> Value for Vec<At<T>> {
    fn read(reader: &mut Reader<'_>, node: NodeId) -> Option<Self> {
        let Kind::List(items) = reader.tree.kind(node) else {
            wrong_kind(reader, node, "a list");
            return None;
        };
        let read = items.iter().map(|item| T::read(reader, *item).map(|value| At { node: *item, value }));
        // Every item is read before giving up, so that all of their errors show.
        let read: Vec<_> = read.collect();
        let list: Self = read.into_iter().collect::<Option<_>>()?;
        written_once(reader, &list).then_some(list)
    }

    fn schema() -> Json {
        json!({"type": "array", "items": T::schema()})
    }

    fn write(&self) -> Yaml {
        Yaml::Sequence(self.iter().map(|item| item.value.write()).collect())
    }

    fn rows(path: &str, rows: &mut Vec<Row>) {
        T::rows(&format!("{path}[]"), rows);
    }
}

/// No list of ours means anything by a repetition. Blocks have names of their own to be told apart by.
fn written_once<T: Value>(reader: &mut Reader<'_>, list: &[At<T>]) -> bool {
    let mut seen = HashSet::new();
    let mut once = true;
    for item in list {
        let value = item.value.write();
        if !value.is_mapping() && !seen.insert(value) {
            let text = reader.tree.text(item.node).unwrap_or_default();
            let problem = Problem::new(format!("{} is written twice", quote(text)));
            reader.error(item.node, problem.expected("each entry once"));
            once = false;
        }
    }
    once
}

/// A list that says nothing when it is empty, and is an error then: `workloads: []` could mean all or none.
#[derive(Clone, Debug)]
pub(crate) struct Several<T>(pub(crate) Vec<At<T>>);

impl<T: Value> Value for Several<T> {
    fn read(reader: &mut Reader<'_>, node: NodeId) -> Option<Self> {
        let list = Vec::<At<T>>::read(reader, node)?;
        if list.is_empty() {
            reader.error(node, Problem::new("this list is empty").expected("at least one entry, or no such line"));
            return None;
        }
        Some(Self(list))
    }

    fn schema() -> Json {
        json!({"type": "array", "items": T::schema(), "minItems": 1})
    }

    fn write(&self) -> Yaml {
        self.0.write()
    }

    fn rows(path: &str, rows: &mut Vec<Row>) {
        Vec::<At<T>>::rows(path, rows);
    }
}

pub(crate) fn wrong_kind(reader: &mut Reader<'_>, node: NodeId, expected: &str) {
    let found = match reader.tree.kind(node) {
        _ if reader.tree.is_null(node) => "nothing is written here".to_owned(),
        Kind::Scalar { text, .. } => format!("{} is not {expected}", quote(text)),
        Kind::Map(_) => "a map is written here".to_owned(),
        Kind::List(_) => "a list is written here".to_owned(),
        Kind::Invalid => return reader.spoil(node),
    };
    reader.error(node, Problem::new(found).expected(expected));
}
