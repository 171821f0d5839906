//! The worker's own files, as `build.rs` found them in `worker/`.

include!(concat!(env!("OUT_DIR"), "/files.rs"));

#[cfg(test)]
mod tests {
    #[test]
    fn the_worker_is_among_its_files() {
        assert!(super::FILES.iter().any(|(name, _)| *name == "worker.js"));
    }
}
