//! Misbehaving services and a gateway builder, for tests and benches only.
