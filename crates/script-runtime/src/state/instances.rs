//! Dynamic instances of resources: those that handlers declared and nobody removed yet (rules 9 to 11).
//!
//! An instance is its path, which declaration it is of, and what it captured; in the store it is one key, written
//! together with the first values of its cells. One whose declaration the program no longer has is dormant: it keeps
//! its path and its state, and is there again when the declaration is.
//!
//! Every instance is in memory, dormant or not. So each is bounded ([`MAX_PATH`], [`MAX_CAPTURES`]), all of them by their number,
//! and their memory counts as part of the state ([`instance_size`]).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use json::{Document, Number};
use services::path::has_dot_segment;

use super::error::Error;
use super::home::Home;
use super::sizes::entry_size;

/// So many are loaded at once.
const PAGE: usize = 1000;

/// The most bytes of an instance's path. A request's may be as long with each of its bytes percent-encoded.
pub(crate) const MAX_PATH: usize = 4 << 10;

/// The most bytes of JSON that an instance captures.
pub(crate) const MAX_CAPTURES: usize = 256 << 10;

/// Bytes of memory that an instance takes beside its path, its record and what its key counts.
const INSTANCE: u64 = 256;

/// All of a service.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    registry: Mutex<Registry>,
    /// How much of what other gateways did was looked at.
    seen: AtomicU64,
}

#[derive(Debug, Default)]
struct Registry {
    by_path: HashMap<Arc<str>, Arc<Known>>,
    /// When those with a time to live end.
    ends: BTreeSet<(u64, Arc<str>)>,
    /// Those that are being declared.
    coming: usize,
    sites: HashSet<Arc<str>>,
}

/// An instance, whichever program knows it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) id: u32,
    pub(crate) path: Arc<str>,
    /// The key of its declaration.
    pub(crate) site: Arc<str>,
    /// A part of its record, which is in memory once.
    pub(crate) captures: Bytes,
    /// Of its key in the store: a later one is another instance.
    version: u64,
    /// In milliseconds since 1970; none where it stays until it is removed.
    ends: Option<u64>,
    /// As [`Instances`]'.
    seen: AtomicU64,
}

// The rest is the counters of its `Arc` and of its record, and its places in the registry.
const _: () = assert!(size_of::<Known>() as u64 + 128 <= INSTANCE);

/// What the store keeps of an instance.
pub(crate) struct Record<'a> {
    pub(crate) site: &'a str,
    pub(crate) captures: &'a str,
    pub(crate) ends: Option<u64>,
}

/// Room for one more, until it is there or given up.
pub(crate) struct Room<'a>(&'a Instances);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.lock().coming -= 1;
    }
}

impl Record<'_> {
    /// The JSON text. It stays in memory, so its allocation is as long as the text and no longer.
    pub(crate) fn text(&self) -> String {
        let site = serde_json::Value::from(self.site);
        let ends = self.ends.map(|ends| format!(",\"ends\":{ends}")).unwrap_or_default();
        let head = format!("{{\"site\":{site}{ends},\"captures\":");
        let mut text = String::with_capacity(head.len() + self.captures.len() + 1);
        text.push_str(&head);
        text.push_str(self.captures);
        text.push('}');
        text
    }
}

/// What an instance counts of the state: the key and the record in the store, and the memory that it takes here.
pub(crate) fn instance_size(key: &str, path: &str, record: usize) -> u64 {
    entry_size(key, record) + INSTANCE + path.len() as u64
}

/// Checks that a request can have a path.
///
/// # Errors
/// The reason why none can.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') || path.contains(char::is_control) {
        return Err("its path does not begin with `/`, or has control characters".to_owned());
    }
    if path.len() > MAX_PATH {
        return Err(format!("its path has {} bytes, and {MAX_PATH} are the most it may have", path.len()));
    }
    if path.contains(['?', '#']) {
        return Err(
            "`?` and `#` end a path; `encodeURIComponent` makes a part of a path of any text".to_owned()
        );
    }
    if path.contains('\\') || has_dot_segment(path) {
        return Err("no request can have a path with a backslash, or with a `.` or `..` segment".to_owned());
    }
    Ok(())
}

/// Milliseconds since 1970.
pub(crate) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Instances {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<Known>> {
        self.lock().by_path.values().map(Arc::clone).collect()
    }

    pub(crate) fn find(&self, path: &str) -> Option<Arc<Known>> {
        self.lock().by_path.get(path).cloned()
    }

    /// Takes room for one more, if there are fewer than `most`.
    pub(crate) fn room(&self, most: usize) -> Option<Room<'_>> {
        let mut registry = self.lock();
        if registry.by_path.len() + registry.coming >= most {
            return None;
        }
        registry.coming += 1;
        Some(Room(self))
    }

    pub(crate) fn remove(&self, path: &str) -> Option<Arc<Known>> {
        let mut registry = self.lock();
        let known = registry.by_path.remove(path)?;
        if let Some(ends) = known.ends {
            registry.ends.remove(&(ends, Arc::clone(&known.path)));
        }
        Some(known)
    }

    /// Those whose time was over at `now`.
    pub(crate) fn over(&self, now: u64) -> Vec<Arc<str>> {
        let registry = self.lock();
        registry.ends.iter().take_while(|(ends, _)| *ends <= now).map(|(_, path)| Arc::clone(path)).collect()
    }

    /// Adds what the store has of an instance, unless it is here. Gives the one that is here then.
    pub(crate) fn add(
        &self,
        home: &Home,
        path: &str,
        (version, text): (u64, Bytes),
        epoch: u64,
    ) -> Result<Arc<Known>, Error> {
        let broken =
            |reason: &str| Error::Unreadable { key: home.keys.declared(path), reason: reason.to_owned() };
        let length = text.len();
        let document = Document::new(text).map_err(|error| broken(&error.to_string()))?;
        let member = |name: &[u8]| document.root().member(name);
        let site = member(b"site").and_then(json::Node::string).ok_or_else(|| broken("it has no `site`"))?;
        let captures = member(b"captures").ok_or_else(|| broken("it has no `captures`"))?.slice();
        let ends = match member(b"ends").and_then(json::Node::number) {
            Some(Number::Unsigned(ends)) => Some(ends),
            _ => None,
        };
        let mut registry = self.lock();
        if let Some(known) = registry.by_path.get(path) {
            return Ok(Arc::clone(known));
        }
        let path: Arc<str> = path.into();
        let site = registry.site(&String::from_utf8_lossy(&site));
        let seen = AtomicU64::new(epoch);
        let id = home.shared.instance_id();
        let known = Arc::new(Known { id, path: Arc::clone(&path), site, captures, version, ends, seen });
        registry.ends.extend(ends.map(|ends| (ends, Arc::clone(&path))));
        registry.by_path.insert(path, Arc::clone(&known));
        let key = home.keys.declared(&known.path);
        home.sizes.set(&key, instance_size(&key, &known.path, length));
        Ok(known)
    }
}

impl Registry {
    /// One text for all instances of a declaration.
    fn site(&mut self, site: &str) -> Arc<str> {
        if let Some(known) = self.sites.get(site) {
            return Arc::clone(known);
        }
        let site: Arc<str> = site.into();
        self.sites.insert(Arc::clone(&site));
        site
    }
}

impl Home {
    /// Loads all instances, where there are none here yet.
    pub(crate) async fn load_all_instances(&self) -> Result<(), Error> {
        let epoch = self.shared.epoch();
        let prefix = self.keys.declared("");
        let mut after = Arc::clone(&prefix);
        loop {
            let page = self.shared.store.scan(Arc::clone(&prefix), after, PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = last.as_str().into();
            for (key, log) in page {
                if let (Some(path), Some(text)) = (key.strip_prefix(&*prefix), log.snapshot) {
                    self.instances.add(self, path, text, epoch)?;
                }
            }
        }
        self.instances.seen.store(epoch, Ordering::Relaxed);
        Ok(())
    }

    /// Loads the instances that are not here, and drops those that another gateway removed, or made anew.
    pub(crate) async fn load_instances(&self) -> Result<(), Error> {
        let epoch = self.shared.epoch();
        let prefix = self.keys.declared("");
        let mine = self.instances.all();
        let keys = self.shared.store.keys(Arc::clone(&prefix)).await?;
        let versions: HashMap<&str, u64> =
            keys.iter().filter_map(|(key, version)| Some((key.strip_prefix(&*prefix)?, *version))).collect();
        for known in mine.iter().filter(|known| versions.get(&*known.path) != Some(&known.version)) {
            self.drop_old(known);
        }
        let is_new = |path: &str| self.instances.find(path).is_none();
        let lacks: Vec<Arc<str>> =
            versions.keys().filter(|path| is_new(path)).map(|path| self.keys.declared(path)).collect();
        for page in lacks.chunks(PAGE) {
            let logs =
                self.shared.store.load_after(page.iter().map(|key| (Arc::clone(key), 0)).collect()).await?;
            for (key, log) in page.iter().zip(logs) {
                if let (Some(path), Some(text)) =
                    (key.strip_prefix(&*prefix), log.and_then(|log| log.snapshot))
                {
                    self.instances.add(self, path, text, epoch)?;
                }
            }
        }
        self.instances.seen.store(epoch, Ordering::Relaxed);
        Ok(())
    }

    /// Looks at what other gateways did, if they did something.
    pub(crate) async fn look(&self) -> Result<(), Error> {
        if self.instances.seen.load(Ordering::Relaxed) == self.shared.epoch() {
            return Ok(());
        }
        self.load_instances().await
    }

    /// Takes what the store has at a path for what is there.
    pub(crate) async fn adopt(&self, path: &str) -> Result<(), Error> {
        let stored = self.shared.store.load(self.keys.declared(path)).await?.and_then(|log| log.snapshot);
        if let Some(stored) = stored {
            self.instances.add(self, path, stored, self.shared.epoch())?;
        }
        Ok(())
    }

    /// The instance at a path. Another gateway may have made or removed it; the store is asked only after it did something.
    pub(crate) async fn instance(&self, path: &str) -> Result<Option<Arc<Known>>, Error> {
        let epoch = self.shared.epoch();
        let known = self.instances.find(path);
        let seen = |seen: &AtomicU64| seen.load(Ordering::Relaxed) == epoch;
        if seen(&self.instances.seen) || known.as_ref().is_some_and(|known| seen(&known.seen)) {
            return Ok(known);
        }
        let stored = self.shared.store.load(self.keys.declared(path)).await?.and_then(|log| log.snapshot);
        if let Some(known) =
            known.filter(|known| stored.as_ref().is_none_or(|(version, _)| *version != known.version))
        {
            self.drop_old(&known);
        }
        let Some(stored) = stored else { return Ok(None) };
        let known = self.instances.add(self, path, stored, epoch)?;
        known.seen.store(epoch, Ordering::Relaxed);
        Ok(Some(known))
    }

    /// Drops what another gateway removed, unless it was made anew here meanwhile.
    fn drop_old(&self, known: &Arc<Known>) {
        if self.instances.find(&known.path).is_some_and(|now| Arc::ptr_eq(&now, known)) {
            self.removed(&known.path);
        }
    }

    /// When an instance that is made now ends.
    pub(crate) fn ends(&self) -> Option<u64> {
        let life: Duration = self.settings().ttl?;
        Some(
            milliseconds(SystemTime::now())
                .saturating_add(u64::try_from(life.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}
