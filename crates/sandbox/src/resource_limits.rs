//! The resources that the system grants this process: memory by its cgroup, address space by `RLIMIT_AS`.
//!
//! Pools reserve far more address space than they use, and the memory that their slots keep between guests is
//! resident. The creator of the pools limits their size by both.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// Address space for everything except pools: thread stacks, heap, compiled code.
const ADDRESS_SPACE_LEFT: u64 = 1 << 30;

/// Returns the memory limit of the process's cgroup in bytes, or `None` without a limit.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    smallest_cgroup_limit(Path::new("/sys/fs/cgroup"), &groups)
}

/// Returns the smallest limit from the process's group up to the root. A container may see the whole path, or
/// its own group as the root.
fn smallest_cgroup_limit(root: &Path, groups: &str) -> Option<u64> {
    groups.lines().filter_map(|line| hierarchy_limit(root, line)).min()
}

/// Returns the limit in one hierarchy. A line of `/proc/self/cgroup` consists of a number, controllers, and
/// the group's path. Version 2 lists no controllers; version 1 has a separate folder for the memory
/// controller.
fn hierarchy_limit(root: &Path, line: &str) -> Option<u64> {
    let (controllers, group) = line.split_once(':')?.1.split_once(":/")?;
    let (root, file) = match controllers {
        "" => (root.to_owned(), "memory.max"),
        "memory" => (root.join("memory"), "memory.limit_in_bytes"),
        _ => return None,
    };
    let limit = |folder: &Path| -> Option<u64> {
        let text = std::fs::read_to_string(root.join(folder).join(file)).ok()?;
        // Without a limit, version 2 has `max`, and version 1 a number beyond all memory.
        text.trim().parse().ok().filter(|limit| *limit < 1 << 60)
    };
    Path::new(group).ancestors().filter_map(limit).min()
}

/// Whether enough address space is left for the rest of the process.
#[must_use]
pub fn has_address_space() -> bool {
    let Some(limit) = getrlimit(Resource::As).current else { return true };
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64 + ADDRESS_SPACE_LEFT <= limit
}

#[cfg(test)]
mod tests {
    use super::smallest_cgroup_limit;

    #[test]
    fn uses_the_smallest_limit_up_to_the_root() {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(root.path().join("system/orfa")).expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).expect("written");
        write("system/memory.max", "1000\n");
        write("system/orfa/memory.max", "max\n");
        assert_eq!(smallest_cgroup_limit(root.path(), "1:cpu:/x\n0::/system/orfa\n"), Some(1000));
        write("system/orfa/memory.max", "900\n");
        assert_eq!(smallest_cgroup_limit(root.path(), "0::/system/orfa\n"), Some(900));
        assert_eq!(smallest_cgroup_limit(root.path(), "0::/\n"), None);
    }

    #[test]
    fn reads_cgroup_version_1_memory_limits() {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(root.path().join("memory/docker/orfa")).expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).expect("written");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        let groups = "5:cpu,cpuacct:/docker/orfa\n4:memory:/docker/orfa\n0::/docker/orfa\n";
        assert_eq!(smallest_cgroup_limit(root.path(), groups), None);
        write("memory/docker/orfa/memory.limit_in_bytes", "1000\n");
        assert_eq!(smallest_cgroup_limit(root.path(), groups), Some(1000));
        assert_eq!(smallest_cgroup_limit(root.path(), "4:memory:/\n0::/\n"), None);
        write("memory/memory.limit_in_bytes", "900\n");
        assert_eq!(
            smallest_cgroup_limit(root.path(), "4:memory:/gone\n"),
            Some(900),
            "a container's own group"
        );
    }
}
