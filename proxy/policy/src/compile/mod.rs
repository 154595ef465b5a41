//! From what is written to what holds: defaults, modes and inheritance applied, and everything checked that needs
//! more than one field. A document that is not whole still gets its other parts checked; it just makes no policy.

mod breaker;
mod dependency;
mod matching;
mod opaque;
mod retry;
mod target;
mod timing;
mod tls;
mod workload;

pub(crate) use breaker::slow_threshold;
pub(crate) use dependency::{dependency, with_inherited};
pub(crate) use opaque::fields_about_calls;
pub(crate) use timing::BUILT_IN_REQUEST;
pub(crate) use workload::workload;

use plimsoll_resilience::{ConfigError, Mode, Moded, bulkhead, token_bucket};

use crate::emit::emit;
use crate::field::{Block, Optional, write_block};
use crate::model::{ConnectionLimit, Origin, PolicyId};
use crate::report::{Problem, Reader};
use crate::spec::Metadata;
use crate::tree::{NodeId, Tree};

fn identity(tree: &Tree, metadata: &Metadata) -> Option<(PolicyId, Origin)> {
    let name = metadata.name.written()?;
    let id = PolicyId { namespace: metadata.namespace.value().0, name: name.value.0.clone() };
    let place = tree.place(name.node);
    Some((id, Origin { file: tree.file(place.source).to_owned(), line: place.line }))
}

/// The mode of a block: its own, else the policy's.
fn mode_of(block: &Optional<Mode>, policy: Mode) -> Mode {
    block.value().unwrap_or(policy)
}

/// What a bulkhead allows.
#[derive(Default)]
struct Limits {
    calls: Option<Moded<bulkhead::Config>>,
    connections: Option<Moded<ConnectionLimit>>,
    connection_rate: Option<Moded<token_bucket::Config>>,
}

fn refuse_empty_bulkhead(reader: &mut Reader<'_>, node: NodeId, mode: Mode, expected: &str) {
    if mode.is_on() {
        reader.consequence(node, node, Problem::new("this bulkhead limits nothing").expected(expected));
    }
}

/// What a machine of the core says about its configuration, said at the field that it names.
fn checked<T>(reader: &mut Reader<'_>, block: NodeId, config: Result<T, ConfigError>) -> Option<T> {
    match config {
        Ok(config) => Some(config),
        Err(ConfigError { field, expected }) => {
            let node = reader.tree.entry(block, field).unwrap_or(block);
            let problem = Problem::new(format!("`{field}` cannot have this value"));
            reader.consequence(node, node, problem.expected(expected));
            None
        }
    }
}

/// The document as it is in force: what was written, and the defaults of the blocks that were written.
fn as_in_force<T: Block>(document: &T) -> String {
    emit(&write_block(document))
}
