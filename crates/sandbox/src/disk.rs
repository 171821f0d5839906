//! Compiled programs in a folder of the gateway's own, so that a restart starts warm.
//!
//! Machine code is run as it is read, so only what this gateway wrote itself may be read: the folder has to be
//! its own (mode 0700), and every file begins with the HMAC-SHA-256 of its name and content by the
//! gateway's secret. A file that does not fit is removed and counts as not there. The files that were not read
//! for longest go first.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use ring::hmac;
use wasmtime::Module;

use crate::cache::Key;

/// The largest file that is read: many times what the largest program compiles to.
const LARGEST: u64 = 64 << 20;
const MAC: usize = 32;
/// How files end that hold a program.
const ENDING: &str = "code";
const VERSION: &str = concat!("orfa code ", env!("CARGO_PKG_VERSION"));
/// The file of the secret, where the config has none.
const SECRET: &str = "secret";

/// A folder of compiled programs.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    key: hmac::Key,
    capacity: u64,
    held: AtomicU64,
}

/// What was read from the folder, and is what this gateway wrote: only [`Disk::read`] makes one.
#[derive(Debug)]
pub struct Kept {
    tag: u8,
    bytes: Vec<u8>,
}

/// What is kept.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A module's compiled code.
    Code(&'a Module),
    /// Anything else.
    Text(&'a [u8]),
}

/// The bit of a tag that says that a module follows.
const CODE: u8 = 0x80;

/// Why a folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The system says no.
    #[error("the folder {} can't be used: {source}", .folder.display())]
    Io {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else could write into it.
    #[error("the folder {} has to belong to the gateway's user and to nobody else (mode 0700)", .0.display())]
    NotOwn(PathBuf),
}

impl Kept {
    /// What kind of content it is, as it was written.
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.tag & !CODE
    }

    /// A module's compiled code, if it is that.
    pub(crate) fn code(&self) -> Option<&[u8]> {
        (self.tag & CODE != 0).then_some(&self.bytes)
    }

    /// The content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The secret that lies in a folder; a new one where there is none. Gateways that share nothing else use it.
///
/// # Errors
/// When the folder is not the gateway's own, or can't be used.
pub fn secret_in(folder: &Path) -> Result<[u8; 32], DiskError> {
    own(folder)?;
    let file = folder.join(SECRET);
    let fail = |source| DiskError::Io { folder: folder.to_owned(), source };
    if let Some(secret) = read_secret(&file) {
        return Ok(secret);
    }
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| fail(io::Error::other(error.to_string())))?;
    let new = fresh(folder);
    write_file(&new, &[&secret]).map_err(fail)?;
    // Another gateway may have been faster: what lies there then is what both use, and it is whole.
    let linked = fs::hard_link(&new, &file);
    let _ = fs::remove_file(new);
    match (linked, read_secret(&file)) {
        (_, Some(secret)) => Ok(secret),
        (linked, None) => {
            let broken = || io::Error::other(format!("`{SECRET}` in it is no secret of 32 bytes"));
            Err(fail(
                linked
                    .err()
                    .filter(|error| error.kind() != io::ErrorKind::AlreadyExists)
                    .unwrap_or_else(broken),
            ))
        }
    }
}

/// A file that nobody else writes.
fn fresh(folder: &Path) -> PathBuf {
    let mut number = [0; 8];
    // Without chance two processes may take the same name, and one of them writes nothing then.
    let _ = getrandom::fill(&mut number);
    folder.join(format!("{:016x}.new", u64::from_be_bytes(number)))
}

fn read_secret(file: &Path) -> Option<[u8; 32]> {
    fs::read(file).ok()?.try_into().ok()
}

impl Disk {
    /// Opens a folder, and makes it where there is none, for so many bytes.
    ///
    /// # Errors
    /// When the folder is not the gateway's own, or can't be used.
    pub fn open(folder: &Path, secret: &[u8; 32], capacity: u64) -> Result<Self, DiskError> {
        own(folder)?;
        // What another version of the gateway checked and wrote is not this one's.
        let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), VERSION.as_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref());
        let held = files(folder).iter().map(|(_, _, size)| size).sum();
        let folder = folder.to_owned();
        Ok(Self { folder, key, capacity, held: AtomicU64::new(held) })
    }

    /// What was written under a key.
    #[must_use]
    pub fn read(&self, key: &Key) -> Option<Kept> {
        let path = self.path(key);
        let file = File::open(&path).ok()?;
        let mut bytes = Vec::new();
        (&file).take(LARGEST).read_to_end(&mut bytes).ok()?;
        if let Some((mac, content)) = bytes.split_first_chunk::<MAC>()
            && let Some((tag, _)) = content.split_first()
            && self.fits(key, content, mac)
        {
            // Whether the time can be set is of no matter: the file goes earlier then.
            let _ = file.set_modified(SystemTime::now());
            let tag = *tag;
            bytes.drain(..=MAC);
            return Some(Kept { tag, bytes });
        }
        self.remove(key);
        None
    }

    /// Keeps something under a key; `tag`, below 128, is for whoever reads it. What can't be written is not
    /// kept.
    pub fn write(&self, key: &Key, tag: u8, content: Content<'_>) {
        match content {
            Content::Text(bytes) => self.write_bytes(key, tag & !CODE, bytes),
            Content::Code(module) => {
                if let Ok(bytes) = module.serialize() {
                    self.write_bytes(key, tag | CODE, &bytes);
                }
            }
        }
    }

    fn write_bytes(&self, key: &Key, tag: u8, bytes: &[u8]) {
        let mac = self.mac(key, &[&[tag], bytes]);
        let path = self.path(key);
        let before = fs::metadata(&path).map_or(0, |file| file.len());
        let new = fresh(&self.folder);
        if write_file(&new, &[mac.as_ref(), &[tag], bytes]).is_err() {
            return;
        }
        if fs::rename(&new, &path).is_err() {
            let _ = fs::remove_file(new);
            return;
        }
        let size = (MAC + 1 + bytes.len()) as u64;
        let held = self.held.fetch_add(size, Relaxed) + size;
        self.held.fetch_sub(before, Relaxed);
        if held > self.capacity {
            self.shrink();
        }
    }

    /// Removes what is kept under a key.
    pub fn remove(&self, key: &Key) {
        let path = self.path(key);
        let size = fs::metadata(&path).map_or(0, |file| file.len());
        if fs::remove_file(path).is_ok() {
            self.held.fetch_sub(size, Relaxed);
        }
    }

    /// Removes what was not read for longest, until a tenth is free.
    fn shrink(&self) {
        let mut files = files(&self.folder);
        files.sort();
        let mut held: u64 = files.iter().map(|(_, _, size)| size).sum();
        for (_, path, size) in files {
            if held <= self.capacity / 10 * 9 {
                break;
            }
            if fs::remove_file(path).is_ok() {
                held -= size;
            }
        }
        self.held.store(held, Relaxed);
    }

    fn path(&self, key: &Key) -> PathBuf {
        let name: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(name).with_extension(ENDING)
    }

    fn fits(&self, key: &Key, content: &[u8], mac: &[u8]) -> bool {
        hmac::verify(&self.key, &[key, content].concat(), mac).is_ok()
    }

    fn mac(&self, key: &Key, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(key);
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }
}

/// Makes sure that a folder is there and nobody else's.
fn own(folder: &Path) -> Result<(), DiskError> {
    let fail = |source| DiskError::Io { folder: folder.to_owned(), source };
    if !folder.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
    }
    let found = fs::metadata(folder).map_err(fail)?;
    let is_own =
        found.uid() == rustix::process::geteuid().as_raw() && found.permissions().mode() & 0o077 == 0;
    if found.is_dir() && is_own { Ok(()) } else { Err(DiskError::NotOwn(folder.to_owned())) }
}

fn write_file(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))
}

/// The programs in a folder: when each was read last, where it is, its size.
fn files(folder: &Path) -> Vec<(SystemTime, PathBuf, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let programs =
        entries.filter(|entry| Path::new(&entry.file_name()).extension().is_some_and(|end| end == ENDING));
    let file = |entry: fs::DirEntry| {
        let data = entry.metadata().ok()?;
        Some((data.modified().ok()?, entry.path(), data.len()))
    };
    programs.filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const KEY: Key = [1; 32];

    fn disk(folder: &Path, capacity: u64) -> Disk {
        Disk::open(folder, &[9; 32], capacity).unwrap()
    }

    #[test]
    fn what_was_written_is_read_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("cache");
        disk(&folder, 1000).write(&KEY, 3, Content::Text(b"code"));
        let kept = disk(&folder, 1000).read(&KEY).unwrap();
        assert_eq!((kept.tag(), kept.bytes()), (3, &b"code"[..]));
        assert!(disk(&folder, 1000).read(&[2; 32]).is_none());
    }

    #[test]
    fn what_anybody_else_wrote_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let disk = disk(folder.path(), 1 << 20);
        disk.write(&KEY, 3, Content::Text(b"code"));
        let file = disk.path(&KEY);
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&file, changed).unwrap();
            assert!(disk.read(&KEY).is_none(), "byte {at}");
            assert!(!file.exists(), "it is gone, so that it is written anew");
        }
        for len in 0..whole.len() {
            fs::write(&file, &whole[..len]).unwrap();
            assert!(disk.read(&KEY).is_none(), "{len} bytes");
        }
        fs::write(disk.path(&[2; 32]), &whole).unwrap();
        assert!(disk.read(&[2; 32]).is_none(), "under another name it is another program's");
        fs::write(&file, &whole).unwrap();
        assert!(Disk::open(folder.path(), &[8; 32], 1000).unwrap().read(&KEY).is_none(), "another gateway's");
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(Disk::open(folder.path(), &[9; 32], 1), Err(DiskError::NotOwn(_))));
        assert!(matches!(secret_in(folder.path()), Err(DiskError::NotOwn(_))));
    }

    #[test]
    fn the_secret_stays_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("cache");
        let secret = secret_in(&folder).unwrap();
        assert_eq!(secret_in(&folder).unwrap(), secret);
        assert_ne!(secret, [0; 32]);
    }

    #[test]
    fn what_was_not_read_for_longest_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("cache");
        let disk = disk(&folder, 1000);
        let old = SystemTime::now() - Duration::from_secs(60);
        for key in 1..=5u8 {
            disk.write(&[key; 32], 0, Content::Text(&[0; 150]));
            let file = File::options().write(true).open(disk.path(&[key; 32])).unwrap();
            file.set_modified(old + Duration::from_secs(key.into())).unwrap();
        }
        assert!(disk.read(&[1; 32]).is_some());
        disk.write(&[6; 32], 0, Content::Text(&[0; 150]));
        assert!(disk.read(&[2; 32]).is_none());
        assert!(disk.read(&[1; 32]).is_some() && disk.read(&[6; 32]).is_some());
    }
}
