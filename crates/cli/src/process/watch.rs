//! Watches files by polling their inode, time and size.
//!
//! Polling works on every file system, network shares and containers included, and regardless of whether an
//! editor replaces a file or writes to it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The polling interval, shorter than a developer needs to switch from the editor to the browser.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// The watched files, with their state at the last poll.
pub(crate) struct FileWatcher {
    files: Vec<(PathBuf, FileState)>,
}

/// Device and inode, time and size of the file after resolving links; `None` for a missing file. A link with
/// a new target has another inode.
type FileState = Option<((u64, u64), SystemTime, u64)>;

impl FileWatcher {
    pub(crate) fn new(files: Vec<PathBuf>) -> Self {
        Self { files: files.into_iter().map(with_state).collect() }
    }

    /// Watches these files from now on. Files that were watched before keep their last state, so that a
    /// change in between is not lost.
    pub(crate) fn set_files(&mut self, files: Vec<PathBuf>) {
        let known = std::mem::take(&mut self.files);
        let keep = |file: PathBuf| {
            known.iter().find(|(name, _)| *name == file).cloned().unwrap_or_else(|| with_state(file))
        };
        self.files = files.into_iter().map(keep).collect();
    }

    /// Waits until one of the files changes; forever without files.
    pub(crate) async fn wait_for_change(&mut self) {
        while !self.has_changed() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Whether any file has changed since the last call. A missing file doesn't count, since editors write a
    /// new file and rename it.
    pub(crate) fn has_changed(&mut self) -> bool {
        let mut changed = false;
        for (file, known) in &mut self.files {
            let now = file_state(file);
            if now.is_some() && now != *known {
                *known = now;
                changed = true;
            }
        }
        changed
    }
}

fn with_state(file: PathBuf) -> (PathBuf, FileState) {
    let look = file_state(&file);
    (file, look)
}

fn file_state(file: &Path) -> FileState {
    let metadata = std::fs::metadata(file).ok()?;
    Some(((metadata.dev(), metadata.ino()), metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_change_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("orfa.yaml");
        std::fs::write(&file, "a").expect("written");
        let mut watch = FileWatcher::new(vec![file.clone()]);
        assert!(!watch.has_changed());
        std::fs::write(&file, "ab").expect("written");
        assert!(watch.has_changed());
        assert!(!watch.has_changed());
    }

    #[test]
    fn keeps_changes_when_the_watched_files_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, other) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&file, "a").expect("written");
        let mut watch = FileWatcher::new(vec![file.clone()]);
        std::fs::write(&file, "ab").expect("written");
        watch.set_files(vec![file, other]);
        assert!(watch.has_changed());
    }

    #[test]
    fn retargeted_link_is_a_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        // As a ConfigMap is mounted: the file is a link through `..data`, which is swapped atomically.
        for (name, text) in [("..1", "a"), ("..2", "b")] {
            std::fs::create_dir(path(name)).expect("a folder");
            std::fs::write(path(name).join("orfa.yaml"), text).expect("written");
        }
        std::os::unix::fs::symlink("..1", path("..data")).expect("a link");
        std::os::unix::fs::symlink("..data/orfa.yaml", path("orfa.yaml")).expect("a link");
        let mut watch = FileWatcher::new(vec![path("orfa.yaml")]);
        assert!(!watch.has_changed());
        std::os::unix::fs::symlink("..2", path("..data_tmp")).expect("a link");
        std::fs::rename(path("..data_tmp"), path("..data")).expect("renamed");
        assert!(watch.has_changed());
        assert!(!watch.has_changed());
    }

    #[test]
    fn restored_file_has_not_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, aside) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&file, "a").expect("written");
        let mut watch = FileWatcher::new(vec![file.clone()]);
        std::fs::rename(&file, &aside).expect("renamed");
        assert!(!watch.has_changed());
        std::fs::rename(&aside, &file).expect("renamed");
        assert!(!watch.has_changed());
    }
}
