//! The classes of guests, with their requirements for engine and pool.

/// The kind of guest that an engine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GuestClass {
    /// Query modules on the C environment, which are small and touch little memory.
    C,
    /// Programs on the JavaScript environment, whose snapshot has two thirds of a megabyte.
    Javascript,
    /// Plain modules with their own memory.
    Plain,
    /// Filters, which are long-lived and need no pool ([`crate::Sandbox::unpooled`]).
    Filter,
}

/// The size of a pool: the number of guests, and the size of each.
#[derive(Clone, Copy, Debug)]
pub struct PoolSize {
    /// The maximum number of concurrent guests.
    pub instances: u32,
    /// The maximum size of a linear memory in bytes.
    pub memory: usize,
}

/// The bytes of a table that a slot keeps resident.
pub(crate) const TABLE_KEEP_RESIDENT: usize = 64 << 10;
/// The bytes of a stack that a slot keeps resident.
pub(crate) const STACK_KEEP_RESIDENT: usize = 64 << 10;

impl GuestClass {
    /// Returns the name in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Javascript => "javascript",
            Self::Plain => "plain",
            Self::Filter => "filter",
        }
    }

    /// Returns the bytes of linear memory that a slot keeps resident between guests. It has to cover the
    /// memory that a typical guest touches: with less, every request incurs page faults, and two threads are
    /// slower than one.
    pub(crate) fn keep_resident(self) -> usize {
        match self {
            Self::C => 512 << 10,
            Self::Javascript => 2 << 20,
            Self::Plain => 1 << 20,
            Self::Filter => 0,
        }
    }

    /// Returns the maximum number of bytes that a slot keeps between guests: memory, table and stack.
    #[must_use]
    pub fn max_resident_bytes(self) -> u64 {
        (self.keep_resident() + TABLE_KEEP_RESIDENT + STACK_KEEP_RESIDENT) as u64
    }

    /// Returns the size of a guest's native stack in bytes. QuickJS recurses through its interpreter.
    pub(crate) fn stack_size(self) -> usize {
        match self {
            Self::C | Self::Plain | Self::Filter => 512 << 10,
            Self::Javascript => 1 << 20,
        }
    }

    /// Returns the number of instances that a guest needs: environment and query, or a single module.
    pub(crate) fn instances_per_guest(self) -> u32 {
        match self {
            Self::C => 2,
            Self::Javascript | Self::Plain | Self::Filter => 1,
        }
    }
}
