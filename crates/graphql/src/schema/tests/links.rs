//! What links can be, and every mistake in them.
