//! The allocator of `orfa`: mimalloc, asked as C programs ask it.
//!
//! A request allocates some twenty times, and its futures are larger than what the C library's allocator has quick
//! lists for. The crate that wraps mimalloc asks for an alignment each time, and nearly whatever is larger than a kilobyte, or has
//! no free block of its size, is then made larger to be aligned within, which takes three times as many instructions. Nearly
//! everything needs no more alignment than `malloc` gives anyway.
//!
//! It asks for no pages of 2 MiB ("transparent huge pages"): the system zeroes one in one piece, while the thread that touched
//! it first stands still, on some virtual machines for five milliseconds.

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

/// What `malloc` gives to whatever is at least as large: the alignment of C's `max_align_t`.
const USUAL: usize = 16;

/// mimalloc, for `#[global_allocator]`.
#[derive(Debug)]
pub struct Allocator;

/// Whether `malloc` aligns it well enough.
fn is_usual(size: usize, align: usize) -> bool {
    align <= USUAL && align <= size
}

// SAFETY: each function is the one of C's library of the same contract: a block of at least that size, which lives until
// it is freed or reallocated, or null. A block that `malloc` gives is aligned for every object that fits in it and asks
// for no more than `max_align_t` (C11, 7.22.3), which `is_usual` looks for; for all others mimalloc is told the alignment.
// It frees and reallocates blocks of both kinds by their address alone.
#[expect(unsafe_code, reason = "an allocator is unsafe to write, and each request asks it twenty times")]
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        #[cfg(feature = "count")]
        usage::add(layout.size());
        let block = match is_usual(layout.size(), layout.align()) {
            true => unsafe { mi_malloc(layout.size()) },
            false => unsafe { mi_malloc_aligned(layout.size(), layout.align()) },
        };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        #[cfg(feature = "count")]
        usage::add(layout.size());
        let block = match is_usual(layout.size(), layout.align()) {
            true => unsafe { mi_zalloc(layout.size()) },
            false => unsafe { mi_zalloc_aligned(layout.size(), layout.align()) },
        };
        block.cast()
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        #[cfg(feature = "count")]
        {
            usage::add(size);
            usage::remove(layout.size());
        }
        let block = match is_usual(size, layout.align()) {
            true => unsafe { mi_realloc(block.cast(), size) },
            false => unsafe { mi_realloc_aligned(block.cast(), size, layout.align()) },
        };
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        #[cfg(feature = "count")]
        usage::remove(layout.size());
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

    /// Mostly small ones, some of several pages, and some that stand alone.
    fn sizes() -> impl Strategy<Value = usize> {
        prop_oneof![4 => 1..100_usize, 4 => 100..5_000_usize, 1 => 5_000..2_000_000_usize]
    }

    proptest! {
        #[test]
        fn a_block_is_aligned_and_keeps_what_was_in_it(size in sizes(), later in sizes(), power in 0..18_u32) {
            let layout = Layout::from_size_align(size, 1 << power).unwrap();
            let is_aligned = |block: *mut u8| !block.is_null() && block.addr().is_multiple_of(layout.align());
            #[expect(unsafe_code, reason = "that is how an allocator is asked")]
            // SAFETY: the layouts have a size, and the block is read and written within the smaller of both.
            unsafe {
                let zeroed = Allocator.alloc_zeroed(layout);
                prop_assert!(is_aligned(zeroed));
                prop_assert!(from_raw_parts(zeroed, size).iter().all(|byte| *byte == 0));
                let block = Allocator.alloc(layout);
                prop_assert!(is_aligned(block));
                from_raw_parts_mut(block, size).fill(7);
                let block = Allocator.realloc(block, layout, later);
                prop_assert!(is_aligned(block));
                prop_assert!(from_raw_parts(block, size.min(later)).iter().all(|byte| *byte == 7));
                Allocator.dealloc(block, Layout::from_size_align(later, layout.align()).unwrap());
                Allocator.dealloc(zeroed, layout);
            }
        }
    }
}
