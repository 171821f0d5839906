//! The classes of guests, and what each asks of its engine and its pool.

/// Which kind of guest an engine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Query modules on the C environment: small, touch little.
    C,
    /// Programs on the JavaScript environment: a snapshot of two thirds of a megabyte.
    Javascript,
    /// Plain modules that bring their own memory.
    Plain,
    /// Filters: they live long, and need no pool ([`crate::Sandbox::unpooled`]).
    Filter,
}

/// How many guests of a class may live at once, and how large each may be.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// Guests at once.
    pub instances: u32,
    /// The largest linear memory, in bytes.
    pub memory: usize,
}

/// Bytes of a table that a place keeps.
pub(crate) const TABLE_KEPT: usize = 64 << 10;
/// Bytes of a stack that a place keeps.
pub(crate) const STACK_KEPT: usize = 64 << 10;

impl Class {
    /// The name in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Javascript => "javascript",
            Self::Plain => "plain",
            Self::Filter => "filter",
        }
    }

    /// Bytes of linear memory that a slot keeps between guests. It has to cover what a usual guest
    /// touches: below that, every request pays page faults, and two threads are slower than one.
    pub(crate) fn keep_resident(self) -> usize {
        match self {
            Self::C => 512 << 10,
            Self::Javascript => 2 << 20,
            Self::Plain => 1 << 20,
            Self::Filter => 0,
        }
    }

    /// Bytes that a place keeps between guests at most: of memory, table and stack.
    #[must_use]
    pub fn kept(self) -> u64 {
        (self.keep_resident() + TABLE_KEPT + STACK_KEPT) as u64
    }

    /// The native stack of a guest, in bytes: QuickJS recurses through its interpreter.
    pub(crate) fn stack(self) -> usize {
        match self {
            Self::C | Self::Plain | Self::Filter => 512 << 10,
            Self::Javascript => 1 << 20,
        }
    }

    /// Memories, tables and instances that one guest needs: environment and query, or the one module.
    pub(crate) fn instances_per_guest(self) -> u32 {
        match self {
            Self::C => 2,
            Self::Javascript | Self::Plain | Self::Filter => 1,
        }
    }
}
