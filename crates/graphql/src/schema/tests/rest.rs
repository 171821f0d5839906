//! What documents say, and what becomes of it.
