//! The three ways in which a block has a field.

use serde_yaml::Value as Yaml;

use super::{At, Several, Value};
use crate::report::{Reader, Report};
use crate::source::Source;
use crate::tree::{NodeId, Tree};

/// A field of a block, whatever its type.
pub(crate) trait Slot {
    fn fill(&mut self, reader: &mut Reader<'_>, node: NodeId);
    fn write(&self) -> Option<Yaml>;
}

/// A field that has a value even when it is not written.
#[derive(Clone, Debug)]
pub(crate) struct Defaulted<T> {
    written: Option<At<T>>,
    default: &'static str,
}

/// A field that may be left out; what that means is in its `default` remark.
#[derive(Clone, Debug)]
pub(crate) struct Optional<T>(Option<At<T>>);

/// A field that must be written. It is still absent where that was reported.
#[derive(Clone, Debug)]
pub(crate) struct Required<T>(Option<At<T>>);

impl<T: Value> Defaulted<T> {
    pub(crate) const REQUIRED: bool = false;

    pub(crate) fn unset(default: &'static str) -> Self {
        Self { written: None, default }
    }

    pub(crate) fn written(&self) -> Option<&At<T>> {
        self.written.as_ref()
    }

    /// Where something other than the default is written.
    pub(crate) fn chosen(&self) -> Option<NodeId> {
        let default = || parse_default::<T>(self.default).write();
        self.written.as_ref().filter(|written| written.value.write() != default()).map(|written| written.node)
    }

    /// What was written, else the default.
    pub(crate) fn value(&self) -> T {
        match &self.written {
            Some(written) => written.value.clone(),
            None => parse_default(self.default),
        }
    }

    pub(crate) fn inherit(&mut self, from: &Self) {
        inherit(&mut self.written, from.written.as_ref());
    }

    /// The default as the table prints it; reading it proves that it is a value.
    pub(crate) fn default_text(default: &'static str) -> String {
        parse_default::<T>(default);
        default.to_owned()
    }
}

impl<T: Value> Slot for Defaulted<T> {
    fn fill(&mut self, reader: &mut Reader<'_>, node: NodeId) {
        self.written = read(reader, node);
    }

    fn write(&self) -> Option<Yaml> {
        Some(self.value().write())
    }
}

impl<T: Value> Optional<T> {
    pub(crate) const REQUIRED: bool = false;

    pub(crate) fn is_written(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn node(&self) -> Option<NodeId> {
        self.0.as_ref().map(|written| written.node)
    }

    pub(crate) fn unset(_default: &'static str) -> Self {
        Self(None)
    }

    pub(crate) fn written(&self) -> Option<&At<T>> {
        self.0.as_ref()
    }

    pub(crate) fn written_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut().map(|written| &mut written.value)
    }

    pub(crate) fn value(&self) -> Option<T> {
        self.0.as_ref().map(|written| written.value.clone())
    }

    pub(crate) fn inherit(&mut self, from: &Self) {
        inherit(&mut self.0, from.0.as_ref());
    }

    pub(crate) fn default_text(default: &'static str) -> String {
        format!("({default})")
    }
}

impl<T: Value> Optional<Several<T>> {
    /// The entries; none where the list is left out.
    pub(crate) fn list(&self) -> &[At<T>] {
        self.written().map_or(&[], |written| &written.value.0)
    }
}

impl<T: Value> Slot for Optional<T> {
    fn fill(&mut self, reader: &mut Reader<'_>, node: NodeId) {
        self.0 = read(reader, node);
    }

    fn write(&self) -> Option<Yaml> {
        self.written().map(|written| written.value.write())
    }
}

impl<T: Value> Required<T> {
    pub(crate) const REQUIRED: bool = true;

    pub(crate) fn unset(_default: &'static str) -> Self {
        Self(None)
    }

    pub(crate) fn written(&self) -> Option<&At<T>> {
        self.0.as_ref()
    }

    pub(crate) fn written_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut().map(|written| &mut written.value)
    }

    pub(crate) fn inherit(&mut self, from: &Self) {
        inherit(&mut self.0, from.0.as_ref());
    }

    pub(crate) fn default_text(_default: &'static str) -> String {
        "required".to_owned()
    }
}

impl<T: Value> Slot for Required<T> {
    fn fill(&mut self, reader: &mut Reader<'_>, node: NodeId) {
        self.0 = read(reader, node);
    }

    fn write(&self) -> Option<Yaml> {
        self.written().map(|written| written.value.write())
    }
}

fn read<T: Value>(reader: &mut Reader<'_>, node: NodeId) -> Option<At<T>> {
    T::read(reader, node).map(|value| At { node, value })
}

fn inherit<T: Value>(own: &mut Option<At<T>>, from: Option<&At<T>>) {
    match (own, from) {
        (own @ None, Some(from)) => *own = Some(from.clone()),
        (Some(own), Some(from)) => own.value.inherit(&from.value),
        (_, None) => {}
    }
}

fn parse_default<T: Value>(text: &'static str) -> T {
    let mut report = Report::default();
    let mut tree = Tree::default();
    let root = tree.build(&Source::new("default", text), &mut report).first().copied();
    let value = root.and_then(|root| T::read(&mut Reader::new(&tree, &mut report), root));
    value.expect("a default is a valid value; the test of the table of defaults reads each")
}
