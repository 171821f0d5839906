//! Tests of the disk cache: reading after a restart, ownership, and eviction.

use std::time::Duration;

use super::*;

const LABEL: DiskEntryLabel = DiskEntryLabel { tag: 3, size: 70 };
/// The capacity for ten short files.
const TEN_BLOCKS: u64 = 10 * BLOCK_SIZE;

fn entry_name(owner: OwnerId, key: u8) -> DiskEntryName {
    DiskEntryName { owner, key: [key; 32] }
}

fn open_disk(folder: &Path, capacity: u64) -> DiskCache {
    DiskCache::open(folder, &[9; 32], capacity).unwrap()
}

/// Writes a text whose last use is `seconds` after the epoch.
fn write_entry(
    disk: &DiskCache,
    name: DiskEntryName,
    seconds: u64,
    used: impl Fn(&CacheKey) -> Option<SystemTime>,
) {
    disk.write(&name, LABEL, DiskEntryContent::Text(&[0; 63]), used);
    if let Ok(file) = File::options().write(true).open(disk.entry_path(&name)) {
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }
}

#[test]
fn reads_entries_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    open_disk(&folder, TEN_BLOCKS).write(&entry_name(1, 1), LABEL, DiskEntryContent::Text(b"code"), |_| None);
    let disk_entry = open_disk(&folder, TEN_BLOCKS).read(&entry_name(1, 1)).unwrap();
    assert_eq!((disk_entry.label(), disk_entry.bytes(), disk_entry.code()), (LABEL, &b"code"[..], None));
    assert!(open_disk(&folder, TEN_BLOCKS).read(&entry_name(1, 2)).is_none());
}

#[test]
fn rejects_files_of_other_writers() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let disk = open_disk(folder.path(), 1 << 20);
    disk.write(&entry_name(1, 1), LABEL, DiskEntryContent::Text(b"code"), |_| None);
    let file = disk.entry_path(&entry_name(1, 1));
    let whole = fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&file, changed).unwrap();
        assert!(disk.read(&entry_name(1, 1)).is_none(), "byte {at}");
        assert!(!file.exists(), "removed, so that it is written anew");
    }
    for len in 0..whole.len() {
        fs::write(&file, &whole[..len]).unwrap();
        assert!(disk.read(&entry_name(1, 1)).is_none(), "{len} bytes");
    }
    fs::write(disk.entry_path(&entry_name(1, 2)), &whole).unwrap();
    assert!(disk.read(&entry_name(1, 2)).is_none(), "the content of another name");
    fs::write(&file, &whole).unwrap();
    let other = DiskCache::open(folder.path(), &[8; 32], 1000).unwrap();
    assert!(other.read(&entry_name(1, 1)).is_none(), "written by another gateway");
}

#[test]
fn rejects_a_folder_open_to_others() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(DiskCache::open(folder.path(), &[9; 32], 1), Err(DiskError::NotPrivate(_))));
    assert!(matches!(secret_in(folder.path()), Err(DiskError::NotPrivate(_))));
}

#[test]
fn keeps_the_secret() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    let secret = secret_in(&folder).unwrap();
    assert_eq!(secret_in(&folder).unwrap(), secret);
    assert_ne!(secret, [0; 32]);
}

/// Creates everything except a file that can have a file's name: a pipe without a writer, a socket, a folder,
/// links.
fn create_non_files(folder: &Path, name: &str) -> Vec<PathBuf> {
    use rustix::fs::{CWD, FileType, Mode, mknodat, symlinkat};
    let place = |kind: &str| {
        let place = folder.join(kind);
        fs::DirBuilder::new().mode(0o700).create(&place).unwrap();
        place
    };
    let [pipe, socket, directory, to_pipe, to_device, to_nothing] =
        ["pipe", "socket", "directory", "to_pipe", "to_device", "to_nothing"].map(place);
    mknodat(CWD, pipe.join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    mknodat(CWD, socket.join(name), FileType::Socket, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::create_dir(directory.join(name)).unwrap();
    symlinkat(pipe.join(name), CWD, to_pipe.join(name)).unwrap();
    symlinkat("/dev/zero", CWD, to_device.join(name)).unwrap();
    symlinkat("/nothing/at/all", CWD, to_nothing.join(name)).unwrap();
    vec![pipe, socket, directory, to_pipe, to_device, to_nothing]
}

#[test]
fn rejects_a_secret_that_is_not_a_file_without_blocking() {
    let folder = tempfile::tempdir().unwrap();
    for folder in create_non_files(folder.path(), SECRET) {
        let error = secret_in(&folder).unwrap_err().to_string();
        assert!(error.contains("not a file of 32 bytes"), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no other file is left");
    }
}

#[test]
fn ignores_an_entry_that_is_not_a_file_without_blocking() {
    let all = tempfile::tempdir().unwrap();
    let file = open_disk(&all.path().join("any"), 1).entry_path(&entry_name(1, 1));
    for folder in create_non_files(all.path(), file.file_name().unwrap().to_str().unwrap()) {
        let disk = open_disk(&folder, TEN_BLOCKS);
        assert!(disk.read(&entry_name(1, 1)).is_none(), "{}", folder.display());
        disk.write(&entry_name(1, 1), LABEL, DiskEntryContent::Text(b"code"), |_| None);
        let is_kept = disk.read(&entry_name(1, 1)).is_some();
        assert_eq!(is_kept, !folder.ends_with("directory"), "{}", folder.display());
    }
}

#[test]
fn rejects_a_secret_of_another_length() {
    for bytes in [&[7; 31][..], &[7; 33], &[], &[7; 1 << 20]] {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(folder.path().join(SECRET), bytes).unwrap();
        assert!(secret_in(folder.path()).is_err(), "{} bytes", bytes.len());
        assert_eq!(fs::read(folder.path().join(SECRET)).unwrap(), bytes, "unchanged");
    }
}

#[test]
fn creates_private_files_and_never_overwrites() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    write_durably(&path, b"first").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(write_durably(&path, b"second").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"first");
    let nowhere = folder.path().join("none").join("file");
    assert_eq!(write_durably(&nowhere, b"third").unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn concurrent_gateways_share_one_private_secret() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    let secrets: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| secret_in(&folder).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(secrets.iter().all(|secret| *secret == secrets[0]));
    let file = fs::metadata(folder.join(SECRET)).unwrap();
    assert_eq!((file.permissions().mode() & 0o777, file.len()), (0o600, 32));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "temporary files are removed");
}

#[test]
fn evicts_the_least_recently_used_first() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    let disk = open_disk(&folder, TEN_BLOCKS);
    // Each file has 100 bytes, and takes up a block.
    (1..=10).for_each(|key| write_entry(&disk, entry_name(key.into(), key), key.into(), |_| None));
    assert!(disk.read(&entry_name(1, 1)).is_some());
    write_entry(&disk, entry_name(11, 11), 11, |key| (*key == [2; 32]).then(SystemTime::now));
    let there: Vec<_> =
        (1..=11).filter(|key| disk.entry_path(&entry_name((*key).into(), *key)).exists()).collect();
    assert_eq!(there, [1, 2, 5, 6, 7, 8, 9, 10, 11], "the second was used in memory");
}

#[test]
fn no_owner_exceeds_half_of_the_capacity() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    (1..=4).for_each(|key| {
        write_entry(&open_disk(&folder, TEN_BLOCKS), entry_name(1, key), key.into(), |_| None)
    });
    // Sizes are counted again after a restart.
    (11..=30).for_each(|key| {
        write_entry(&open_disk(&folder, TEN_BLOCKS), entry_name(2, key), key.into(), |_| None)
    });
    let there =
        |owner, key: &u8| open_disk(&folder, TEN_BLOCKS).entry_path(&entry_name(owner, *key)).exists();
    assert_eq!((1..=4).filter(|key| there(1, key)).count(), 4, "the other owner's files stay");
    let left: Vec<_> = (11..=30).filter(|key| there(2, key)).collect();
    assert!((4..=5).contains(&left.len()) && left.contains(&30), "{left:?}");
}

#[test]
fn counts_a_short_file_as_a_block() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    let disk = open_disk(&folder, TEN_BLOCKS);
    let held = |disk: &DiskCache| disk.lock_owner_bytes().values().sum::<u64>();
    let write = |length: usize| {
        disk.write(&entry_name(1, 1), LABEL, DiskEntryContent::Text(&vec![0; length]), |_| None);
        held(&disk)
    };
    assert_eq!(
        [write(1), write(3000), write(5000), write(0)],
        [1, 1, 2, 1].map(|blocks| blocks * BLOCK_SIZE)
    );
    assert_eq!(
        held(&DiskCache::open(&folder, &[9; 32], TEN_BLOCKS).unwrap()),
        BLOCK_SIZE,
        "after a restart, too"
    );
    disk.remove(&entry_name(1, 1));
    assert_eq!(held(&disk), 0);
}

#[test]
fn counts_files_that_are_written_during_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    let disk = open_disk(&folder, TEN_BLOCKS);
    (1..=10).for_each(|key| write_entry(&disk, entry_name(key.into(), key), key.into(), |_| None));
    write_entry(&disk, entry_name(11, 11), 11, |key| {
        if *key == [2; 32] {
            disk.write(&entry_name(12, 12), LABEL, DiskEntryContent::Text(&[0; 63]), |_| None);
        }
        None
    });
    let there: Vec<_> =
        (1..=12).filter(|key| disk.entry_path(&entry_name((*key).into(), *key)).exists()).collect();
    assert_eq!(there, (3..=12).collect::<Vec<u8>>(), "the sweep listed the files before");
    assert_eq!(disk.lock_owner_bytes().get(&12), Some(&BLOCK_SIZE));
    assert_eq!(disk.lock_owner_bytes().values().sum::<u64>(), 10 * BLOCK_SIZE);
}

#[test]
fn only_one_thread_sweeps_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    let disk = open_disk(&folder, TEN_BLOCKS);
    let count = |keys: std::ops::RangeInclusive<u8>| {
        keys.clone().for_each(|key| write_entry(&disk, entry_name(1, key), key.into(), |_| None));
        keys.filter(|key| disk.entry_path(&entry_name(1, *key)).exists()).count()
    };
    let sweeping = disk.sweep_lock.lock().unwrap();
    assert_eq!(count(1..=6), 6);
    drop(sweeping);
    assert_eq!(count(7..=7), 1);
    assert_eq!(disk.lock_owner_bytes().values().sum::<u64>(), 4 * BLOCK_SIZE);
}
