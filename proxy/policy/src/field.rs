//! How a block of policy is declared: once. Its Rust type, what it reads, what it refuses, its line in the table of
//! defaults and its JSON schema all come from the one `block!` that names its fields.

use serde_json::{Value as Json, json};
use serde_yaml::{Mapping, Value as Yaml};

use crate::nearest::nearest;
use crate::report::{Problem, Reader, Report};
use crate::source::Source;
use crate::tree::{Kind, NodeId, Tree, quote};

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
        let read = items
            .iter()
            .map(|item| T::read(reader, *item).map(|value| At { node: *item, value }));
        // Every item is read before giving up, so that all of their errors show.
        let read: Vec<_> = read.collect();
        read.into_iter().collect()
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

/// A list that says nothing when it is empty, and is an error then: `workloads: []` could mean all or none.
#[derive(Clone, Debug)]
pub(crate) struct Several<T>(pub(crate) Vec<At<T>>);

impl<T: Value> Value for Several<T> {
    fn read(reader: &mut Reader<'_>, node: NodeId) -> Option<Self> {
        let list = Vec::<At<T>>::read(reader, node)?;
        if list.is_empty() {
            reader.error(
                node,
                Problem::new("this list is empty").expected("at least one entry, or no such line"),
            );
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

impl<T: Value> Optional<Several<T>> {
    /// The entries; none where the list is left out.
    pub(crate) fn list(&self) -> &[At<T>] {
        self.written().map_or(&[], |written| &written.value.0)
    }
}

pub(crate) fn wrong_kind(reader: &mut Reader<'_>, node: NodeId, expected: &str) {
    let found = match reader.tree.kind(node) {
        _ if reader.tree.is_null(node) => "nothing is written here".to_owned(),
        Kind::Scalar { text, .. } => format!("{} is not {expected}", quote(text)),
        Kind::Map(_) => "a map is written here".to_owned(),
        Kind::List(_) => "a list is written here".to_owned(),
        Kind::Invalid => return,
    };
    reader.error(node, Problem::new(found).expected(expected));
}

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
        Self {
            written: None,
            default,
        }
    }

    pub(crate) fn written(&self) -> Option<&At<T>> {
        self.written.as_ref()
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

impl<T: Value> Optional<T> {
    pub(crate) const REQUIRED: bool = false;

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

impl<T: Value> Required<T> {
    pub(crate) const REQUIRED: bool = true;

    pub(crate) fn written_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut().map(|written| &mut written.value)
    }

    pub(crate) fn unset(_default: &'static str) -> Self {
        Self(None)
    }

    pub(crate) fn written(&self) -> Option<&At<T>> {
        self.0.as_ref()
    }

    pub(crate) fn inherit(&mut self, from: &Self) {
        inherit(&mut self.0, from.0.as_ref());
    }

    pub(crate) fn default_text(_default: &'static str) -> String {
        "required".to_owned()
    }
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
    let root = tree
        .build(&Source::new("default", text), &mut report)
        .first()
        .copied();
    let value = root.and_then(|root| T::read(&mut Reader::new(&tree, &mut report), root));
    value.expect("a default is a valid value; the test of the table of defaults reads each")
}

macro_rules! slot {
    ($Slot:ident, |$slot:ident| $field:expr, $write:expr) => {
        impl<T: Value> Slot for $Slot<T> {
            fn fill(&mut self, reader: &mut Reader<'_>, node: NodeId) {
                let $slot = self;
                $field = T::read(reader, node).map(|value| At { node, value });
            }

            fn write(&self) -> Option<Yaml> {
                let write: fn(&Self) -> Option<Yaml> = $write;
                write(self)
            }
        }
    };
}

slot!(Defaulted, |slot| slot.written, |slot| Some(
    slot.value().write()
));
slot!(Optional, |slot| slot.0, |slot| slot
    .0
    .as_ref()
    .map(|written| written.value.write()));
slot!(Required, |slot| slot.0, |slot| slot
    .0
    .as_ref()
    .map(|written| written.value.write()));

/// What is known of a field without a value of it.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) required: bool,
    pub(crate) default: fn() -> String,
    pub(crate) schema: fn() -> Json,
    pub(crate) rows: fn(&str, &mut Vec<Row>),
}

/// A field that policy.md documents and this version does not do.
pub(crate) struct Later {
    pub(crate) name: &'static str,
    /// The value that asks for nothing, and may therefore stand there.
    pub(crate) off: Option<&'static str>,
}

/// A map with known fields.
pub(crate) trait Block: Default + Clone {
    const FIELDS: &'static [Field];
    const LATER: &'static [Later];
    /// Fields that people look for here, and where they are.
    const ELSEWHERE: &'static [(&'static str, &'static str)];

    fn slot(&mut self, name: &str) -> Option<&mut dyn Slot>;
    fn slots(&self) -> Vec<(&'static str, &dyn Slot)>;
}

pub(crate) fn read_block<B: Block>(reader: &mut Reader<'_>, node: NodeId) -> Option<B> {
    let Kind::Map(entries) = reader.tree.kind(node) else {
        if reader.tree.is_null(node) {
            let empty = Problem::new("nothing is written here");
            reader.error(
                node,
                empty.expected("fields, or `{}` for the defaults, or no such line"),
            );
        } else {
            wrong_kind(reader, node, "a map of fields");
        }
        return None;
    };
    let mut block = B::default();
    for (name, value) in entries {
        let Some(text) = reader.tree.text(*name) else {
            continue;
        };
        match block.slot(text) {
            Some(slot) => slot.fill(reader, *value),
            None => refuse_field::<B>(reader, *name, *value, text),
        }
    }
    let written = |name| reader.tree.entry(node, name).is_some();
    let missing: Vec<_> = B::FIELDS
        .iter()
        .filter(|field| field.required && !written(field.name))
        .collect();
    for field in missing {
        let about = field.description.trim().trim_end_matches('.');
        let problem = Problem::new(format!("`{}` is missing", field.name)).below(field.name);
        reader.error(node, problem.expected(format!("`{}`: {about}", field.name)));
    }
    Some(block)
}

fn refuse_field<B: Block>(reader: &mut Reader<'_>, name: NodeId, value: NodeId, text: &str) {
    if reader.report.is_full() {
        reader.error(name, Problem::new("unknown field"));
        return;
    }
    if let Some(later) = B::LATER.iter().find(|later| later.name == text) {
        if !asks_for_nothing(reader.tree, value, later.off) {
            reader.error(
                name,
                Problem::new(format!("{} is not supported by this version", quote(text))),
            );
        }
        return;
    }
    if let Some((_, hint)) = B::ELSEWHERE.iter().find(|(field, _)| *field == text) {
        reader.error(
            name,
            Problem::new(format!("{} does not belong here", quote(text))).expected(*hint),
        );
        return;
    }
    let names = || B::FIELDS.iter().map(|field| field.name);
    let problem = Problem::new(format!("unknown field {}", quote(text)));
    let known: Vec<_> = names().collect();
    let later = B::LATER.iter().map(|later| later.name);
    reader.error(
        name,
        problem
            .expected(known.join(", "))
            .nearest(nearest(text, names().chain(later))),
    );
}

/// `mode: Disabled`, an empty list, or the one value that means "off".
fn asks_for_nothing(tree: &Tree, value: NodeId, off: Option<&str>) -> bool {
    match tree.kind(value) {
        Kind::Map(_) => tree
            .entry(value, "mode")
            .is_some_and(|mode| tree.text(mode) == Some("Disabled")),
        Kind::List(items) => items.is_empty(),
        Kind::Scalar { text, .. } => off == Some(text.as_str()),
        Kind::Invalid => false,
    }
}

pub(crate) fn write_block<B: Block>(block: &B) -> Yaml {
    let written = block
        .slots()
        .into_iter()
        .filter_map(|(name, slot)| Some((Yaml::from(name), slot.write()?)));
    Yaml::Mapping(written.collect::<Mapping>())
}

pub(crate) fn schema_of_block<B: Block>() -> Json {
    let property = |field: &Field| {
        let mut schema = (field.schema)();
        let default = (field.default)();
        let remark = if field.required {
            String::new()
        } else {
            format!(" Default: {default}.")
        };
        schema["description"] = Json::from(format!("{}{remark}", field.description.trim()));
        (field.name.to_owned(), schema)
    };
    let properties: serde_json::Map<_, _> = B::FIELDS.iter().map(property).collect();
    let required: Vec<_> = B::FIELDS
        .iter()
        .filter(|field| field.required)
        .map(|field| field.name)
        .collect();
    let mut schema =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

pub(crate) fn rows_of_block<B: Block>(path: &str, rows: &mut Vec<Row>) {
    for field in B::FIELDS {
        let path = format!("{path}.{}", field.name);
        let (default, description) = ((field.default)(), field.description.trim().to_owned());
        rows.push(Row {
            field: path.clone(),
            default,
            description,
        });
        (field.rows)(&path, rows);
    }
}

/// Declares a block. `later` names what is documented but not done yet, with the value that may stand all the same;
/// `elsewhere` says where a field is that people look for here.
macro_rules! block {
    (
        $(#[doc = $doc:literal])*
        pub(crate) struct $Name:ident {
            $( $(#[doc = $about:literal])* $yaml:literal $field:ident: $Slot:ident<$Type:ty> = $default:literal, )*
        }
        $(later { $( $later:literal $(unless $off:literal)? ),* $(,)? })?
        $(elsewhere { $( $elsewhere:literal => $hint:literal ),* $(,)? })?
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $Name {
            $( pub(crate) $field: $crate::field::$Slot<$Type>, )*
        }

        impl Default for $Name {
            fn default() -> Self {
                Self { $( $field: $crate::field::$Slot::unset($default), )* }
            }
        }

        impl $crate::field::Block for $Name {
            const FIELDS: &'static [$crate::field::Field] = &[$(
                $crate::field::Field {
                    name: $yaml,
                    description: concat!($($about),*),
                    required: $crate::field::$Slot::<$Type>::REQUIRED,
                    default: || $crate::field::$Slot::<$Type>::default_text($default),
                    schema: <$Type as $crate::field::Value>::schema,
                    rows: <$Type as $crate::field::Value>::rows,
                },
            )*];
            const LATER: &'static [$crate::field::Later] = &[
                $($( $crate::field::Later { name: $later, off: block!(@off $($off)?) }, )*)?
            ];
            const ELSEWHERE: &'static [(&'static str, &'static str)] = &[$($( ($elsewhere, $hint), )*)?];

            fn slot(&mut self, name: &str) -> Option<&mut dyn $crate::field::Slot> {
                match name {
                    $( $yaml => Some(&mut self.$field), )*
                    _ => None,
                }
            }

            fn slots(&self) -> Vec<(&'static str, &dyn $crate::field::Slot)> {
                vec![$( ($yaml, &self.$field), )*]
            }
        }

        impl $crate::field::Value for $Name {
            fn read(reader: &mut $crate::report::Reader<'_>, node: $crate::tree::NodeId) -> Option<Self> {
                $crate::field::read_block(reader, node)
            }

            fn schema() -> serde_json::Value {
                $crate::field::schema_of_block::<Self>()
            }

            fn write(&self) -> serde_yaml::Value {
                $crate::field::write_block(self)
            }

            fn inherit(&mut self, from: &Self) {
                $( self.$field.inherit(&from.$field); )*
            }

            fn rows(path: &str, rows: &mut Vec<$crate::field::Row>) {
                $crate::field::rows_of_block::<Self>(path, rows);
            }
        }
    };
    (@off) => { None };
    (@off $off:literal) => { Some($off) };
}

pub(crate) use block;
