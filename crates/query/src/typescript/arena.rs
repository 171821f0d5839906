//! An arena that bounds a syntax tree's memory in proportion to its source.
//!
//! To distinguish `a < b` from `a<b>(c)` the parser reads ahead and backtracks, and the nodes that it made
//! stay in the arena. Nested, that is quadratic: 64 KB of `a<a<a<` would take minutes and gigabytes. An arena
//! of fixed size ends it in milliseconds: the parser panics, which ends its thread.
#![expect(unsafe_code, reason = "oxc makes an arena of fixed size from raw parts only")]

use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use oxc_allocator::Allocator;

/// Three times the need of the densest source that is not hostile.
const BYTES_PER_BYTE: usize = 256;
const MIN_BYTES: usize = 1 << 20;

pub(super) struct SyntaxArena {
    /// Never dropped, since it would free memory that it does not own.
    allocator: ManuallyDrop<Allocator>,
    /// Owns the memory, which is not accessed while `allocator` exists.
    _memory: Vec<ArenaBlock>,
}

/// A unit of memory with the allocator's alignment.
#[repr(align(16))]
struct ArenaBlock {
    _bytes: [u8; 16],
}

impl SyntaxArena {
    /// Creates an arena for the tree of a source, or returns `None` if there is no memory for it. Pages are
    /// not allocated until they are written to.
    pub(super) fn for_source(source: &str) -> Option<Self> {
        let size = source.len().checked_mul(BYTES_PER_BYTE)?.checked_add(MIN_BYTES)?;
        let mut memory: Vec<ArenaBlock> = Vec::new();
        memory.try_reserve_exact(size / size_of::<ArenaBlock>()).ok()?;
        let layout = Layout::array::<ArenaBlock>(memory.capacity()).ok()?;
        let start = NonNull::new(memory.as_mut_ptr().cast::<u8>())?;
        // SAFETY: `start` is writable for `layout.size()` bytes, the capacity of `memory`, which
        // lives as long as the allocator and is never used. `ArenaBlock` has the size and at least the
        // alignment of `RAW_MIN_ALIGN`, so the start is aligned and the size a multiple of it; the
        // size is above `RAW_MIN_SIZE`. `ManuallyDrop` keeps the allocator from freeing the memory.
        let allocator = unsafe { Allocator::from_raw_parts(start, layout.size(), start, layout) };
        Some(Self { allocator: ManuallyDrop::new(allocator), _memory: memory })
    }
}

impl Deref for SyntaxArena {
    type Target = Allocator;

    fn deref(&self) -> &Allocator {
        &self.allocator
    }
}

const _: () = {
    assert!(size_of::<ArenaBlock>().is_multiple_of(Allocator::RAW_MIN_ALIGN));
    assert!(align_of::<ArenaBlock>() >= Allocator::RAW_MIN_ALIGN);
    assert!(MIN_BYTES > Allocator::RAW_MIN_SIZE);
};
