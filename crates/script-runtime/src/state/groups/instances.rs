//! Dynamic instances of resources: those that handlers declared and that are not removed yet (rules 9 to 11).
//!
//! An instance consists of its path, its declaration, and its captured values; in the store it is a single
//! key, written together with the initial values of its cells. An instance whose declaration the current
//! program lacks is dormant: it keeps its path and its state, and becomes available again together with the
//! declaration.
//!
//! Every instance is in memory, dormant or not. So the size of each is bounded ([`MAX_PATH`],
//! [`MAX_CAPTURES`]) as well as their number, and their memory counts as part of the state
//! ([`instance_size`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use json::{JsonDocument, JsonNumber};
use offload::QuotaKey;
use services::coop::ByteTurn;
use services::path::has_dot_segment;
use tokio::task::yield_now;

use super::service_groups::ServiceGroups;
use crate::frame::json_index::build_index;
use crate::state::cell::MAX_LOCKED_TEXT;
use crate::state::error::StateError;
use crate::state::sizes::entry_size;

/// The number of instances that are loaded at once.
const INSTANCES_PER_PAGE: usize = 1000;

/// The maximum length of an instance's path in bytes. A request's path may be longer, since each byte can be
/// percent-encoded.
pub(crate) const MAX_PATH: usize = 4 << 10;

/// The maximum size of an instance's captured values, in bytes of JSON.
pub(crate) const MAX_CAPTURES: usize = 256 << 10;

/// The overhead in memory of an instance, besides its path, its record and the size of its key.
const INSTANCE_OVERHEAD: u64 = 256;

/// All instances of a service.
#[derive(Debug, Default)]
pub(crate) struct InstanceRegistry {
    registry: Mutex<RegistryState>,
    /// The epoch up to which changes of other gateways are loaded.
    synced_epoch: AtomicU64,
}

#[derive(Debug, Default)]
struct RegistryState {
    /// In order, so that there are pages of them.
    by_path: BTreeMap<Arc<str>, Arc<RegisteredInstance>>,
    /// The expiry times and paths of instances with a time to live.
    expiries: BTreeSet<(u64, Arc<str>)>,
    /// The number of declarations in progress.
    reserved: usize,
    sites: HashSet<Arc<str>>,
}

/// An instance, independent of programs.
#[derive(Debug)]
pub(crate) struct RegisteredInstance {
    pub(crate) id: u32,
    pub(crate) path: Arc<str>,
    /// The key of its declaration.
    pub(crate) site: Arc<str>,
    /// A slice of its record, so that the record is in memory only once.
    pub(crate) captures: Bytes,
    /// The version of its key in the store: a later one is a different instance.
    version: u64,
    /// The expiry time in milliseconds since 1970; `None` if it does not expire.
    expires_at: Option<u64>,
    /// The epoch up to which changes of other gateways to this instance are loaded.
    synced_epoch: AtomicU64,
}

// The remainder is for the counters of its `Arc` and of its record, and its entries in the registry.
const _: () = assert!(size_of::<RegisteredInstance>() as u64 + 128 <= INSTANCE_OVERHEAD);

/// The record of an instance in the store: its JSON text, parsed.
#[derive(Debug)]
pub(crate) struct InstanceRecord {
    pub(crate) text: Bytes,
    site: String,
    captures: Bytes,
    expires_at: Option<u64>,
}

/// Room for one more instance, until it is added or given up.
pub(crate) struct InstanceReservation<'a>(&'a InstanceRegistry);

impl Drop for InstanceReservation<'_> {
    fn drop(&mut self) {
        self.0.lock().reserved -= 1;
    }
}

impl InstanceRecord {
    /// Parses the text of a record.
    ///
    /// # Errors
    /// The reason why it is not one.
    pub(crate) fn parse(text: Bytes) -> Result<Self, String> {
        let document = JsonDocument::new(text.clone()).map_err(|error| error.to_string())?;
        let member = |name: &[u8]| document.root().member(name);
        let site = member(b"site").and_then(json::JsonNode::string).ok_or("it has no `site`")?;
        let captures = member(b"captures").ok_or("it has no `captures`")?.slice();
        let ends = match member(b"ends").and_then(json::JsonNode::number) {
            Some(JsonNumber::Unsigned(ends)) => Some(ends),
            _ => None,
        };
        Ok(Self { text, site: String::from_utf8_lossy(&site).into_owned(), captures, expires_at: ends })
    }
}

/// Returns the text of a record. It stays in memory, so its allocation has the exact length.
///
/// # Errors
/// The captured values are not JSON.
pub(crate) fn encode_record(site: &str, ends: Option<u64>, captures: &[u8]) -> Result<Bytes, String> {
    let captures = String::from_utf8_lossy(captures);
    build_index(Bytes::copy_from_slice(captures.as_bytes()))
        .map_err(|error| format!("its captured values are not JSON ({error})"))?;
    let site = serde_json::Value::from(site);
    let ends = ends.map(|ends| format!(",\"ends\":{ends}")).unwrap_or_default();
    let head = format!("{{\"site\":{site}{ends},\"captures\":");
    let mut text = String::with_capacity(head.len() + captures.len() + 1);
    text.push_str(&head);
    text.push_str(&captures);
    text.push('}');
    Ok(text.into())
}

/// Returns the share of an instance in the size of the state: its key and record in the store, and its
/// memory.
pub(crate) fn instance_size(key: &str, path: &str, record: usize) -> u64 {
    entry_size(key, record) + INSTANCE_OVERHEAD + path.len() as u64
}

/// Checks that a path is valid for requests.
///
/// # Errors
/// The reason why it is not.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') || path.contains(char::is_control) {
        return Err("its path does not begin with `/`, or has control characters".to_owned());
    }
    if path.len() > MAX_PATH {
        return Err(format!("its path has {} bytes, more than the maximum of {MAX_PATH}", path.len()));
    }
    if path.contains(['?', '#']) {
        return Err("`?` and `#` end a path; `encodeURIComponent` encodes any text for a path".to_owned());
    }
    if path.contains('\\') || has_dot_segment(path) {
        return Err("no request can have a path with a backslash, or with a `.` or `..` segment".to_owned());
    }
    Ok(())
}

/// Returns the milliseconds since 1970.
pub(crate) fn unix_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl InstanceRegistry {
    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn list_all(&self) -> Vec<Arc<RegisteredInstance>> {
        let mut all: Vec<Arc<RegisteredInstance>> = Vec::new();
        loop {
            let (before, last) = (all.len(), all.last().map(|instance| Arc::clone(&instance.path)));
            {
                let registry = self.lock();
                let after = last.as_ref().map_or(Unbounded, Excluded);
                let rest = registry.by_path.range::<Arc<str>, _>((after, Unbounded));
                all.extend(rest.take(INSTANCES_PER_PAGE).map(|(_, known)| Arc::clone(known)));
            }
            if all.len() < before + INSTANCES_PER_PAGE {
                return all;
            }
            yield_now().await;
        }
    }

    pub(crate) fn find(&self, path: &str) -> Option<Arc<RegisteredInstance>> {
        self.lock().by_path.get(path).cloned()
    }

    /// Reserves room for one more instance, if there are fewer than `most`.
    pub(crate) fn reserve(&self, most: usize) -> Option<InstanceReservation<'_>> {
        let mut registry = self.lock();
        if registry.by_path.len() + registry.reserved >= most {
            return None;
        }
        registry.reserved += 1;
        Some(InstanceReservation(self))
    }

    pub(crate) fn remove(&self, path: &str) -> Option<Arc<RegisteredInstance>> {
        let mut registry = self.lock();
        let instance = registry.by_path.remove(path)?;
        if let Some(ends) = instance.expires_at {
            registry.expiries.remove(&(ends, Arc::clone(&instance.path)));
        }
        Some(instance)
    }

    /// Returns some of the instances that have expired at `now`: the first ones after this one, each with its
    /// expiry time.
    pub(crate) fn expired(&self, now: u64, after: Option<&(u64, Arc<str>)>) -> Vec<(u64, Arc<str>)> {
        let registry = self.lock();
        let rest =
            registry.expiries.range::<(u64, Arc<str>), _>((after.map_or(Unbounded, Excluded), Unbounded));
        rest.take_while(|(ends, _)| *ends <= now).take(INSTANCES_PER_PAGE).cloned().collect()
    }

    /// Adds an instance. If it exists already, returns the existing one.
    pub(crate) fn register(
        &self,
        home: &ServiceGroups,
        path: &str,
        version: u64,
        record: InstanceRecord,
        epoch: u64,
    ) -> Arc<RegisteredInstance> {
        let InstanceRecord { text, site, captures, expires_at: ends } = record;
        let length = text.len();
        let mut registry = self.lock();
        if let Some(instance) = registry.by_path.get(path) {
            return Arc::clone(instance);
        }
        let path: Arc<str> = path.into();
        let site = registry.intern_site(&site);
        let seen = AtomicU64::new(epoch);
        let id = home.shared.next_instance_id();
        let registered_instance = Arc::new(RegisteredInstance {
            id,
            path: Arc::clone(&path),
            site,
            captures,
            version,
            expires_at: ends,
            synced_epoch: seen,
        });
        registry.expiries.extend(ends.map(|ends| (ends, Arc::clone(&path))));
        registry.by_path.insert(path, Arc::clone(&registered_instance));
        let key = home.keys.declaration_key(&registered_instance.path);
        home.sizes.set_size(&key, instance_size(&key, &registered_instance.path, length));
        registered_instance
    }
}

impl RegistryState {
    /// Returns the shared text of a declaration's key.
    fn intern_site(&mut self, site: &str) -> Arc<str> {
        if let Some(known) = self.sites.get(site) {
            return Arc::clone(known);
        }
        let site: Arc<str> = site.into();
        self.sites.insert(Arc::clone(&site));
        site
    }
}

impl ServiceGroups {
    /// Adds an instance from the text of its record. If it exists already, returns the existing one.
    async fn add_stored(
        &self,
        path: &str,
        (version, text): (u64, Bytes),
        epoch: u64,
    ) -> Result<Arc<RegisteredInstance>, StateError> {
        let broken = |reason| StateError::Unreadable { key: self.keys.declaration_key(path), reason };
        let record = self.parse_record(text).await.map_err(broken)?;
        Ok(self.instances.register(self, path, version, record, epoch))
    }

    /// Parses a record; a long one in the pool, unless that has too much to do.
    async fn parse_record(&self, text: Bytes) -> Result<InstanceRecord, String> {
        if text.len() > MAX_LOCKED_TEXT {
            let copy = text.clone();
            let read =
                self.shared.run_offloaded(QuotaKey::new(self.keys.service()), || InstanceRecord::parse(copy));
            if let Ok(record) = read.await {
                return record;
            }
        }
        InstanceRecord::parse(text)
    }

    /// Loads all instances; for use when none is loaded yet.
    pub(crate) async fn load_all_instances(&self) -> Result<(), StateError> {
        let epoch = self.shared.epoch();
        let prefix = self.keys.declaration_key("");
        let mut after = Arc::clone(&prefix);
        let mut turn = ByteTurn::default();
        loop {
            let page = self.shared.store.scan(Arc::clone(&prefix), after, INSTANCES_PER_PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = last.as_str().into();
            for (key, log) in page {
                if let (Some(path), Some(text)) = (key.strip_prefix(&*prefix), log.snapshot) {
                    turn.consume_bytes(text.1.len()).await;
                    self.add_stored(path, text, epoch).await?;
                }
            }
        }
        self.instances.synced_epoch.store(epoch, Ordering::Relaxed);
        Ok(())
    }

    /// Loads missing instances, and drops those that another gateway removed or recreated.
    pub(crate) async fn load_instances(&self) -> Result<(), StateError> {
        let epoch = self.shared.epoch();
        let prefix = self.keys.declaration_key("");
        let instances = self.instances.list_all().await;
        let stored = self.shared.store.keys(Arc::clone(&prefix)).await?;
        let (is_short, start) = (instances.len().max(stored.len()) <= INSTANCES_PER_PAGE, prefix.len());
        let compare = move || diff_instances(&instances, &stored, start);
        let (old, new) = if is_short {
            compare()
        } else {
            self.shared.run_offloaded(QuotaKey::new(self.keys.service()), compare).await?
        };
        let mut turn = ByteTurn::default();
        for instance in &old {
            turn.consume_bytes(0).await;
            self.drop_stale(instance);
        }
        for page in new.chunks(INSTANCES_PER_PAGE) {
            let logs =
                self.shared.store.load_after(page.iter().map(|key| (Arc::clone(key), 0)).collect()).await?;
            for (key, log) in page.iter().zip(logs) {
                if let (Some(path), Some(text)) = (key.get(start..), log.and_then(|log| log.snapshot)) {
                    turn.consume_bytes(text.1.len()).await;
                    self.add_stored(path, text, epoch).await?;
                }
            }
        }
        self.instances.synced_epoch.store(epoch, Ordering::Relaxed);
        Ok(())
    }

    /// Loads the changes of other gateways, if there are any.
    pub(crate) async fn sync_instances(&self) -> Result<(), StateError> {
        if self.instances.synced_epoch.load(Ordering::Relaxed) == self.shared.epoch() {
            return Ok(());
        }
        self.load_instances().await
    }

    /// Adds the instance that the store has at a path.
    pub(crate) async fn load_instance(&self, path: &str) -> Result<(), StateError> {
        let stored =
            self.shared.store.load(self.keys.declaration_key(path)).await?.and_then(|log| log.snapshot);
        if let Some(stored) = stored {
            self.add_stored(path, stored, self.shared.epoch()).await?;
        }
        Ok(())
    }

    /// Returns the instance at a path. Another gateway may have created or removed it, so the store is
    /// accessed, but only after a change by another gateway.
    pub(crate) async fn find_instance(
        &self,
        path: &str,
    ) -> Result<Option<Arc<RegisteredInstance>>, StateError> {
        let epoch = self.shared.epoch();
        let instance = self.instances.find(path);
        let seen = |seen: &AtomicU64| seen.load(Ordering::Relaxed) == epoch;
        if seen(&self.instances.synced_epoch)
            || instance.as_ref().is_some_and(|registered_instance| seen(&registered_instance.synced_epoch))
        {
            return Ok(instance);
        }
        let stored =
            self.shared.store.load(self.keys.declaration_key(path)).await?.and_then(|log| log.snapshot);
        if let Some(known) =
            instance.filter(|known| stored.as_ref().is_none_or(|(version, _)| *version != known.version))
        {
            self.drop_stale(&known);
        }
        let Some(stored) = stored else { return Ok(None) };
        let known = self.add_stored(path, stored, epoch).await?;
        known.synced_epoch.store(epoch, Ordering::Relaxed);
        Ok(Some(known))
    }

    /// Drops an instance that another gateway removed, unless it has been recreated here meanwhile.
    fn drop_stale(&self, instance: &Arc<RegisteredInstance>) {
        if self.instances.find(&instance.path).is_some_and(|now| Arc::ptr_eq(&now, instance)) {
            self.drop_instance(&instance.path);
        }
    }

    /// Returns the expiry time of an instance that is created now.
    pub(crate) fn new_expiry(&self) -> Option<u64> {
        let life: Duration = self.settings().ttl?;
        Some(
            unix_millis(SystemTime::now())
                .saturating_add(u64::try_from(life.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

/// Compares the instances in memory with the keys and versions in the store; a key is a path after `start`
/// bytes. Returns the instances that the store does not have, and the keys of those that are not in memory.
fn diff_instances(
    instances: &[Arc<RegisteredInstance>],
    stored: &[(String, u64)],
    start: usize,
) -> (Vec<Arc<RegisteredInstance>>, Vec<Arc<str>>) {
    let stored = || stored.iter().filter_map(|(key, version)| Some((key.get(start..)?, key, *version)));
    let versions: HashMap<&str, u64> = stored().map(|(path, _, version)| (path, version)).collect();
    let known: HashMap<&str, u64> =
        instances.iter().map(|instance| (&*instance.path, instance.version)).collect();
    let old = instances.iter().filter(|registered_instance| {
        versions.get(&*registered_instance.path) != Some(&registered_instance.version)
    });
    let new = stored().filter(|(path, _, version)| known.get(path) != Some(version));
    (old.map(Arc::clone).collect(), new.map(|(_, key, _)| key.as_str().into()).collect())
}
