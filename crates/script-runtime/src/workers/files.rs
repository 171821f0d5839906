//! The worker's files, embedded by `build.rs` from `worker/`.

include!(concat!(env!("OUT_DIR"), "/files.rs"));

#[cfg(test)]
mod tests {
    #[test]
    fn the_worker_is_embedded() {
        assert!(super::FILES.iter().any(|(name, _)| *name == "worker.js"));
    }
}
