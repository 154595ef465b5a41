//! Blocks: maps with known fields.

use serde_json::{Value as Json, json};
use serde_yaml::{Mapping, Value as Yaml};

use super::{Row, Slot, wrong_kind};
use crate::nearest::nearest;
use crate::report::{Problem, Reader};
use crate::tree::{Kind, NodeId, Tree, quote};

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
            reader.error(node, empty.expected("fields, or `{}` for the defaults, or no such line"));
        } else {
            wrong_kind(reader, node, "a map of fields");
        }
        return None;
    };
    let mut block = B::default();
    let mut meant = Vec::new();
    for (name, value) in entries {
        let Some(text) = reader.tree.text(*name) else {
            continue;
        };
        match block.slot(text) {
            Some(slot) => slot.fill(reader, *value),
            None => meant.extend(refuse_field::<B>(reader, *name, *value, text)),
        }
    }
    // A required field whose name is misspelled is not missing as well.
    let written = |name| reader.tree.entry(node, name).is_some() || meant.contains(&name);
    let missing: Vec<_> = B::FIELDS.iter().filter(|field| field.required && !written(field.name)).collect();
    for field in missing {
        let about = field.description.trim().trim_end_matches('.');
        let problem = Problem::new(format!("`{}` is missing", field.name)).below(field.name);
        reader.error(node, problem.expected(format!("`{}`: {about}", field.name)));
    }
    Some(block)
}

/// Gives the field that was probably meant.
fn refuse_field<B: Block>(reader: &mut Reader<'_>, name: NodeId, value: NodeId, text: &str) -> Option<&'static str> {
    if reader.report.is_full() {
        reader.error(name, Problem::new("unknown field"));
        return None;
    }
    if let Some(later) = B::LATER.iter().find(|later| later.name == text) {
        if !asks_for_nothing(reader.tree, value, later.off) {
            reader.error(name, Problem::new(format!("{} is not supported by this version", quote(text))));
        }
        return None;
    }
    if let Some((_, hint)) = B::ELSEWHERE.iter().find(|(field, _)| *field == text) {
        reader.error(name, Problem::new(format!("{} does not belong here", quote(text))).expected(*hint));
        return None;
    }
    let names = || B::FIELDS.iter().map(|field| field.name);
    let problem = Problem::new(format!("unknown field {}", quote(text)));
    let known: Vec<_> = names().collect();
    let later = B::LATER.iter().map(|later| later.name);
    let nearest = nearest(text, names().chain(later));
    reader.error(name, problem.expected(known.join(", ")).nearest(nearest));
    nearest
}

/// `mode: Disabled`, an empty list, or the one value that means "off".
fn asks_for_nothing(tree: &Tree, value: NodeId, off: Option<&str>) -> bool {
    match tree.kind(value) {
        Kind::Map(_) => tree.entry(value, "mode").is_some_and(|mode| tree.text(mode) == Some("Disabled")),
        Kind::List(items) => items.is_empty(),
        Kind::Scalar { text, .. } => off == Some(text.as_str()),
        Kind::Invalid => false,
    }
}

pub(crate) fn write_block<B: Block>(block: &B) -> Mapping {
    let written = block.slots().into_iter().filter_map(|(name, slot)| Some((Yaml::from(name), slot.write()?)));
    written.collect()
}

pub(crate) fn schema_of_block<B: Block>() -> Json {
    let property = |field: &Field| {
        let mut schema = (field.schema)();
        let default = (field.default)();
        let remark = if field.required { String::new() } else { format!(" Default: {default}.") };
        schema["description"] = Json::from(format!("{}{remark}", field.description.trim()));
        (field.name.to_owned(), schema)
    };
    let properties: serde_json::Map<_, _> = B::FIELDS.iter().map(property).collect();
    let required: Vec<_> = B::FIELDS.iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

pub(crate) fn rows_of_block<B: Block>(path: &str, rows: &mut Vec<Row>) {
    for field in B::FIELDS {
        let path = format!("{path}.{}", field.name);
        let (default, description) = ((field.default)(), field.description.trim().to_owned());
        rows.push(Row { field: path.clone(), default, description });
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
                serde_yaml::Value::Mapping($crate::field::write_block(self))
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
