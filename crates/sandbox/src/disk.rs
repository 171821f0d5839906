//! The compile cache on disk, in the gateway's own folder, so that a restart starts warm.
//!
//! Machine code is executed as it is read, so only files that this gateway wrote may be loaded. The folder
//! has to belong to the gateway alone (mode 0700), and every file starts with the HMAC-SHA-256 of its name
//! and content, keyed by the gateway's secret. Files that do not verify are removed and treated as missing.
//!
//! The least recently used files are removed first. A use is a read from disk, or a use of the same program
//! in memory, which the caller of [`DiskCache::write`] reports. No owner may hold more than half of the
//! folder, so that a stream of one owner's programs evicts that owner's own files. File names contain the
//! owner.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::SystemTime;

use ring::hmac;
use rustix::fs::OFlags;
use wasmtime::Module;

use crate::cache::{CacheKey, OwnerId};

/// The maximum size of a file to read: many times the largest compiled program.
const MAX_FILE_SIZE: u64 = 64 << 20;
const MAC_LENGTH: usize = 32;
/// The size of a label: a tag and the program's size.
const LABEL_LENGTH: usize = 1 + size_of::<u32>();
/// The block size of common file systems: a file takes up whole blocks, however short it is.
const BLOCK_SIZE: u64 = 4096;
/// The maximum share of one owner, as the reciprocal of a fraction of the folder.
const OWNER_SHARE_DIVISOR: u64 = 2;
/// The extension of program files.
const ENDING: &str = "code";
const VERSION: &str = concat!("orfa code 3, ", env!("CARGO_PKG_VERSION"));
/// The file with the secret, used if the config has none.
const SECRET: &str = "secret";

/// A folder of compiled programs.
#[derive(Debug)]
pub struct DiskCache {
    folder: PathBuf,
    key: hmac::Key,
    capacity: u64,
    /// The bytes of each owner's files, as [`size_on_disk`] counts them; during a sweep, those written since
    /// it began.
    owner_bytes: Mutex<HashMap<OwnerId, u64>>,
    /// Locked by the thread that lists all files to remove some.
    sweep_lock: Mutex<()>,
}

/// The name of an entry: its owner and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskEntryName {
    /// The owner.
    pub owner: OwnerId,
    /// The key, which is unique among all owners.
    pub key: CacheKey,
}

/// Metadata of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskEntryLabel {
    /// The kind of program, below 128.
    pub tag: u8,
    /// The size of the program's source in bytes.
    pub size: u32,
}

/// An entry that was read from the folder and verified. Only [`DiskCache::read`] creates one.
#[derive(Debug)]
pub struct DiskEntry {
    label: DiskEntryLabel,
    is_code: bool,
    bytes: Vec<u8>,
}

/// The content of an entry.
#[derive(Clone, Copy, Debug)]
pub enum DiskEntryContent<'a> {
    /// A module's compiled code.
    Code(&'a Module),
    /// Any other bytes.
    Text(&'a [u8]),
}

/// The bit of a tag that marks compiled code.
const CODE_TAG: u8 = 0x80;

/// The reason why a folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The system reported an error.
    #[error("the folder {} can't be used: {source}", .folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users could write to the folder.
    #[error("the folder {} has to belong to the gateway's user and be closed to all others (mode 0700)", .0.display())]
    NotPrivate(PathBuf),
}

impl DiskEntry {
    /// Returns the metadata that was written with the entry.
    #[must_use]
    pub fn label(&self) -> DiskEntryLabel {
        self.label
    }

    /// Returns a module's compiled code, if the entry contains it.
    pub(crate) fn code(&self) -> Option<&[u8]> {
        self.is_code.then_some(&self.bytes)
    }

    /// Returns the content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the secret in a folder. Creates one if there is none. Concurrent gateways with the same folder get
/// the same secret.
///
/// # Errors
/// If the folder does not belong to the gateway alone, or can't be used.
pub fn secret_in(folder: &Path) -> Result<[u8; 32], DiskError> {
    ensure_private_folder(folder)?;
    let file = folder.join(SECRET);
    let fail = |source| DiskError::Io { folder: folder.to_owned(), source };
    if let Some(secret) = read_secret(&file) {
        // Another process may have created the file just now, so its name may not be on the disk yet.
        sync_folders(folder);
        return Ok(secret);
    }
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| fail(io::Error::other(error.to_string())))?;
    let new = temporary_path(folder);
    write_durably(&new, &secret).map_err(fail)?;
    // Another gateway may have been faster. Both then use the existing file, which is complete.
    let linked = fs::hard_link(&new, &file);
    let _ = fs::remove_file(new);
    match (linked, read_secret(&file)) {
        (_, Some(secret)) => {
            sync_folders(folder);
            Ok(secret)
        }
        (linked, None) => {
            let broken = || io::Error::other(format!("`{SECRET}` in it is not a file of 32 bytes"));
            Err(fail(
                linked
                    .err()
                    .filter(|error| error.kind() != io::ErrorKind::AlreadyExists)
                    .unwrap_or_else(broken),
            ))
        }
    }
}

/// Returns the path of a new file that no other process writes.
fn temporary_path(folder: &Path) -> PathBuf {
    let mut number = [0; 8];
    // Without random bytes, two processes may choose the same name, and one of them then writes nothing.
    let _ = getrandom::fill(&mut number);
    folder.join(format!("{:016x}.new", u64::from_be_bytes(number)))
}

fn read_secret(file: &Path) -> Option<[u8; 32]> {
    let mut secret = [0; 32];
    let mut file = open_file(file).ok().filter(|file| file.metadata().is_ok_and(|file| file.len() == 32))?;
    file.read_exact(&mut secret).ok().map(|()| secret)
}

/// Opens a file for reading. Rejects anything else with that name (a pipe, a socket, a device, a link), and
/// never blocks on it.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("this is not a file")),
    }
}

/// Syncs the folder and its ancestors to disk, if this user may open them.
fn sync_folders(folder: &Path) {
    let Ok(path) = std::path::absolute(folder) else { return };
    for folder in path.ancestors() {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

impl DiskCache {
    /// Opens a folder for at most `capacity` bytes in whole blocks of 4 KiB. Creates it if it is missing.
    ///
    /// # Errors
    /// If the folder does not belong to the gateway alone, or can't be used.
    pub fn open(folder: &Path, secret: &[u8; 32], capacity: u64) -> Result<Self, DiskError> {
        ensure_private_folder(folder)?;
        // Files that another version of the gateway checked and wrote do not verify.
        let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), VERSION.as_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref());
        let mut held = HashMap::new();
        add_sizes(&mut held, &list_files(folder));
        let (held, sweeping) = (Mutex::new(held), Mutex::default());
        Ok(Self { folder: folder.to_owned(), key, capacity, owner_bytes: held, sweep_lock: sweeping })
    }

    /// Reads the entry with this name.
    #[must_use]
    #[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "at most `LARGEST` bytes"))]
    pub fn read(&self, name: &DiskEntryName) -> Option<DiskEntry> {
        let file = open_file(&self.entry_path(name)).ok()?;
        let mut bytes = Vec::new();
        (&file).take(MAX_FILE_SIZE).read_to_end(&mut bytes).ok()?;
        if let Some((mac, content)) = bytes.split_first_chunk::<MAC_LENGTH>()
            && let Some((label, _)) = content.split_first_chunk::<LABEL_LENGTH>()
            && self.verify_mac(&name.key, content, mac)
        {
            // A failure only means that the file is removed earlier.
            let _ = file.set_modified(SystemTime::now());
            let [tag, size @ ..] = *label;
            bytes.drain(..MAC_LENGTH + LABEL_LENGTH);
            let label = DiskEntryLabel { tag: tag & !CODE_TAG, size: u32::from_be_bytes(size) };
            return Some(DiskEntry { label, is_code: tag & CODE_TAG != 0, bytes });
        }
        self.remove(name);
        None
    }

    /// Writes an entry. Errors are ignored. `used` returns the time when a key's program was last used in
    /// memory.
    pub fn write(
        &self,
        name: &DiskEntryName,
        label: DiskEntryLabel,
        content: DiskEntryContent<'_>,
        used: impl Fn(&CacheKey) -> Option<SystemTime>,
    ) {
        let DiskEntryLabel { tag, size } = label;
        let written = match content {
            DiskEntryContent::Text(bytes) => self.write_bytes(name, tag & !CODE_TAG, size, bytes),
            DiskEntryContent::Code(module) => match module.serialize() {
                Ok(bytes) => self.write_bytes(name, tag | CODE_TAG, size, &bytes),
                Err(_) => return,
            },
        };
        if written.is_ok() {
            self.sweep(name.owner, used);
        }
    }

    fn write_bytes(&self, name: &DiskEntryName, tag: u8, size: u32, bytes: &[u8]) -> io::Result<()> {
        let [a, b, c, d] = size.to_be_bytes();
        let label: [u8; LABEL_LENGTH] = [tag, a, b, c, d];
        let mac = self.compute_mac(&name.key, &[&label, bytes]);
        let path = self.entry_path(name);
        let before = fs::metadata(&path).map_or(0, |file| size_on_disk(file.len()));
        let new = temporary_path(&self.folder);
        let written = write_file(&new, &[mac.as_ref(), &label, bytes]).and_then(|_| fs::rename(&new, &path));
        written.inspect_err(|_| drop(fs::remove_file(&new)))?;
        let mut held = self.lock_owner_bytes();
        let held = held.entry(name.owner).or_default();
        *held = held.saturating_sub(before) + size_on_disk((MAC_LENGTH + LABEL_LENGTH + bytes.len()) as u64);
        Ok(())
    }

    /// Removes the entry with this name.
    pub fn remove(&self, name: &DiskEntryName) {
        let path = self.entry_path(name);
        let size = fs::metadata(&path).map_or(0, |file| size_on_disk(file.len()));
        if fs::remove_file(path).is_ok()
            && let Some(held) = self.lock_owner_bytes().get_mut(&name.owner)
        {
            *held = held.saturating_sub(size);
        }
    }

    /// Removes the least recently used files if this owner, or all owners together, exceed their limit.
    /// Returns at once if another thread is doing so.
    fn sweep(&self, owner: OwnerId, used: impl Fn(&CacheKey) -> Option<SystemTime>) {
        let share = self.capacity / OWNER_SHARE_DIVISOR;
        let (all, own) = {
            let held = self.lock_owner_bytes();
            (held.values().sum::<u64>(), held.get(&owner).copied().unwrap_or_default())
        };
        if all <= self.capacity && own <= share {
            return;
        }
        let _guard = match self.sweep_lock.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // A file that is written meanwhile is counted once, or twice until the next sweep.
        self.lock_owner_bytes().clear();
        let mut files = list_files(&self.folder);
        for file in &mut files {
            file.last_used = used(&file.name.key).map_or(file.last_used, |used| used.max(file.last_used));
        }
        files.sort_by_key(|file| file.last_used);
        evict_until(&mut files, share, |file| file.name.owner == owner);
        evict_until(&mut files, self.capacity, |_| true);
        add_sizes(&mut self.lock_owner_bytes(), &files);
    }

    fn lock_owner_bytes(&self) -> MutexGuard<'_, HashMap<OwnerId, u64>> {
        self.owner_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry_path(&self, name: &DiskEntryName) -> PathBuf {
        let key: String = name.key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("{:016x}-{key}.{ENDING}", name.owner))
    }

    fn verify_mac(&self, key: &CacheKey, content: &[u8], mac: &[u8]) -> bool {
        hmac::verify(&self.key, &[key, content].concat(), mac).is_ok()
    }

    fn compute_mac(&self, key: &CacheKey, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(key);
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }
}

impl DiskEntryName {
    /// Parses the name of a file.
    fn parse(file: &str) -> Option<Self> {
        let (owner, key) = file.strip_suffix(ENDING)?.strip_suffix('.')?.split_once('-')?;
        let bytes = key.as_bytes().as_chunks::<2>().0.iter();
        let bytes = bytes.map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        let key = bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()?;
        Some(Self { owner: u64::from_str_radix(owner, 16).ok()?, key })
    }
}

/// Creates a folder if it is missing, and checks that it belongs to this user alone.
fn ensure_private_folder(folder: &Path) -> Result<(), DiskError> {
    let fail = |source| DiskError::Io { folder: folder.to_owned(), source };
    if !folder.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
    }
    let found = fs::metadata(folder).map_err(fail)?;
    let is_own =
        found.uid() == rustix::process::geteuid().as_raw() && found.permissions().mode() & 0o077 == 0;
    if found.is_dir() && is_own { Ok(()) } else { Err(DiskError::NotPrivate(folder.to_owned())) }
}

fn write_file(path: &Path, parts: &[&[u8]]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    parts.iter().try_for_each(|part| file.write_all(part)).map(|()| file)
}

/// Creates a file and waits until its bytes are on the disk. Its name is durable once the folder is synced.
fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    write_file(path, &[content])?.sync_all()
}

/// The file of a program.
struct ProgramFile {
    name: DiskEntryName,
    path: PathBuf,
    /// The size on the disk in bytes.
    size: u64,
    /// The time of its last use.
    last_used: SystemTime,
}

/// Returns the size on the disk of a file with this length, in bytes.
fn size_on_disk(length: u64) -> u64 {
    length.next_multiple_of(BLOCK_SIZE)
}

/// Returns the programs in a folder.
fn list_files(folder: &Path) -> Vec<ProgramFile> {
    let program = |entry: fs::DirEntry| {
        let name = DiskEntryName::parse(entry.file_name().to_str()?)?;
        let data = entry.metadata().ok()?;
        Some(ProgramFile {
            name,
            path: entry.path(),
            size: size_on_disk(data.len()),
            last_used: data.modified().ok()?,
        })
    };
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(program).collect()
}

/// Adds the sizes of files to those of their owners.
fn add_sizes(held: &mut HashMap<OwnerId, u64>, files: &[ProgramFile]) {
    for file in files {
        *held.entry(file.name.owner).or_default() += file.size;
    }
}

/// If the matching files exceed `most`, removes the first of them until a tenth is free.
fn evict_until(files: &mut Vec<ProgramFile>, most: u64, which: impl Fn(&ProgramFile) -> bool) {
    let mut held: u64 = files.iter().filter(|file| which(file)).map(|file| file.size).sum();
    let left = if held > most { most / 10 * 9 } else { most };
    files.retain(|file| {
        let goes = held > left && which(file) && fs::remove_file(&file.path).is_ok();
        held -= if goes { file.size } else { 0 };
        !goes
    });
}

#[cfg(test)]
mod tests;
