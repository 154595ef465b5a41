//! Whether a block acts, only counts, or rests.

/// What a block of policy may do to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Mode {
    /// Refuse, cut, wait, retry.
    #[default]
    Enforce,
    /// Count what would have been done, and do nothing.
    Observe,
    /// Neither.
    Disabled,
}

impl Mode {
    /// The word of the YAML.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "Enforce",
            Self::Observe => "Observe",
            Self::Disabled => "Disabled",
        }
    }

    /// True if the block acts on calls.
    pub const fn enforces(self) -> bool {
        matches!(self, Self::Enforce)
    }

    /// True if the block at least models what it would do.
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Disabled)
    }
}

/// A block's configuration together with its mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moded<T> {
    /// Whether it acts.
    pub mode: Mode,
    /// What it says.
    pub config: T,
}

impl<T> Moded<T> {
    /// A block that acts.
    pub const fn enforced(config: T) -> Self {
        Self { mode: Mode::Enforce, config }
    }

    /// A block that only counts.
    pub const fn observed(config: T) -> Self {
        Self { mode: Mode::Observe, config }
    }
}
