//! What is wrong with a configuration.

use std::fmt;

/// A value that a machine cannot work with. `policy` names the field's place in the YAML; this names the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The field, in the words of the YAML (`maxConcurrentCalls`).
    pub field: &'static str,
    /// What would be accepted ("1 or more").
    pub expected: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}", self.field, self.expected)
    }
}

impl std::error::Error for ConfigError {}

/// `Ok` if `holds`, else the error for `field`.
pub(crate) const fn require(holds: bool, field: &'static str, expected: &'static str) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError { field, expected }) }
}
