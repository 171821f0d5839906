//! The allocator of `orfa`: mimalloc, called through its C interface.
//!
//! A request makes some twenty allocations, and its futures are larger than the sizes that the C library's
//! allocator has fast lists for. The crate that wraps mimalloc requests an explicit alignment for each
//! allocation. That path over-allocates almost every block that is larger than a kilobyte or has no free
//! block of its size, and takes three times as many instructions. Almost no type needs more alignment than
//! `malloc` provides anyway.
//!
//! The allocator does not use pages of 2 MiB ("transparent huge pages"): the system zeroes such a page at
//! once, while the thread that touched it first is blocked, on some virtual machines for five milliseconds.

mod purge;
#[cfg(feature = "count")]
mod usage;

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

pub use purge::purge_in_background;
#[cfg(feature = "count")]
pub use usage::{HeapUsage, take_usage};

/// The alignment that `malloc` provides for blocks of at least this size: that of C's `max_align_t`.
const MALLOC_ALIGNMENT: usize = 16;

/// mimalloc, for `#[global_allocator]`.
#[derive(Debug)]
pub struct GlobalAllocator;

/// Whether `malloc` provides this alignment.
fn is_malloc_aligned(size: usize, align: usize) -> bool {
    align <= MALLOC_ALIGNMENT && align <= size
}

// SAFETY: each function is C's function with the same contract: it returns a block of at least that size,
// which lives until it is freed or reallocated, or null. A block from `malloc` is aligned for every object
// that fits in it and needs no more than the alignment of `max_align_t` (C11, 7.22.3), which `is_usual`
// checks; for all others mimalloc receives the alignment. It frees and reallocates blocks of both kinds by
// their address alone.
#[expect(unsafe_code, reason = "an allocator is unsafe to implement, and each request calls it twenty times")]
unsafe impl GlobalAlloc for GlobalAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        #[cfg(feature = "count")]
        usage::add_bytes(layout.size());
        let block = match is_malloc_aligned(layout.size(), layout.align()) {
            true => unsafe { mi_malloc(layout.size()) },
            false => unsafe { mi_malloc_aligned(layout.size(), layout.align()) },
        };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        #[cfg(feature = "count")]
        usage::add_bytes(layout.size());
        let block = match is_malloc_aligned(layout.size(), layout.align()) {
            true => unsafe { mi_zalloc(layout.size()) },
            false => unsafe { mi_zalloc_aligned(layout.size(), layout.align()) },
        };
        block.cast()
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        #[cfg(feature = "count")]
        {
            usage::add_bytes(size);
            usage::remove_bytes(layout.size());
        }
        let block = match is_malloc_aligned(size, layout.align()) {
            true => unsafe { mi_realloc(block.cast(), size) },
            false => unsafe { mi_realloc_aligned(block.cast(), size, layout.align()) },
        };
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        #[cfg(feature = "count")]
        usage::remove_bytes(layout.size());
        #[cfg(not(feature = "count"))]
        let _ = layout;
        unsafe { mi_free(block.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use std::slice::{from_raw_parts, from_raw_parts_mut};

    use proptest::prelude::*;

    use super::*;

    /// Mostly small sizes, some of several pages, and some that are allocated separately.
    fn sizes() -> impl Strategy<Value = usize> {
        prop_oneof![4 => 1..100_usize, 4 => 100..5_000_usize, 1 => 5_000..2_000_000_usize]
    }

    proptest! {
        #[test]
        fn a_block_is_aligned_and_keeps_its_contents(size in sizes(), later in sizes(), power in 0..18_u32) {
            let layout = Layout::from_size_align(size, 1 << power).unwrap();
            let is_aligned = |block: *mut u8| !block.is_null() && block.addr().is_multiple_of(layout.align());
            #[expect(unsafe_code, reason = "the functions of an allocator are unsafe")]
            // SAFETY: the layouts are not empty, and the block is read and written within the smaller of
            // both.
            unsafe {
                let zeroed = GlobalAllocator.alloc_zeroed(layout);
                prop_assert!(is_aligned(zeroed));
                prop_assert!(from_raw_parts(zeroed, size).iter().all(|byte| *byte == 0));
                let block = GlobalAllocator.alloc(layout);
                prop_assert!(is_aligned(block));
                from_raw_parts_mut(block, size).fill(7);
                let block = GlobalAllocator.realloc(block, layout, later);
                prop_assert!(is_aligned(block));
                prop_assert!(from_raw_parts(block, size.min(later)).iter().all(|byte| *byte == 7));
                GlobalAllocator.dealloc(block, Layout::from_size_align(later, layout.align()).unwrap());
                GlobalAllocator.dealloc(zeroed, layout);
            }
        }
    }
}
