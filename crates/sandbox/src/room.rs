//! How much room the system gives this process: memory by its cgroup, address space by `RLIMIT_AS`.
//!
//! Pools reserve address space, far more than they ever use; what their places keep between guests is
//! memory. Whoever makes the pools fits them into both.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// Beside the pools: threads' stacks, the heap, compiled code.
const ADDRESS_SPACE_LEFT: u64 = 1 << 30;

/// The most memory that the process's cgroup may use, in bytes; `None` without a bound, and where there is
/// no cgroup of version 2.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    smallest(Path::new("/sys/fs/cgroup"), &groups)
}

/// The smallest `memory.max` on the way from the process's group to the root.
fn smallest(root: &Path, groups: &str) -> Option<u64> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |folder: &Path| -> Option<u64> {
        let text = std::fs::read_to_string(root.join(folder).join("memory.max")).ok()?;
        // Where there is no bound it says `max`.
        text.trim().parse().ok()
    };
    Path::new(group).ancestors().filter_map(limit).min()
}

/// Whether the rest of the process still finds address space.
#[must_use]
pub fn has_address_space() -> bool {
    let Some(limit) = getrlimit(Resource::As).current else { return true };
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64 + ADDRESS_SPACE_LEFT <= limit
}

#[cfg(test)]
mod tests {
    use super::smallest;

    #[test]
    fn the_smallest_bound_on_the_way_to_the_root_counts() {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(root.path().join("system/orfa")).expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).expect("written");
        write("system/memory.max", "1000\n");
        write("system/orfa/memory.max", "max\n");
        assert_eq!(smallest(root.path(), "1:cpu:/x\n0::/system/orfa\n"), Some(1000));
        write("system/orfa/memory.max", "900\n");
        assert_eq!(smallest(root.path(), "0::/system/orfa\n"), Some(900));
        assert_eq!(smallest(root.path(), "0::/\n"), None);
        assert_eq!(smallest(root.path(), "4:memory:/old\n"), None);
    }
}
