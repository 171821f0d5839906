//! State as one program sees it.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use store::Batch;
use tokio::sync::OwnedSemaphorePermit;

use super::commit::Durable;
use super::error::Error;
use super::group::{Group, State};
use super::held::Held;
use super::home::Home;
use super::instances::{Known, MAX_CAPTURES, Record, check_path, instance_size};
use super::plan::{Plan, Scope};
use super::sizes::entry_size;
use super::ticket::{ReadTicket, WriteTicket};
use super::workers::Frame;
use crate::index::index;

/// One program's view of the state. Its runs keep it, also when the program has changed.
#[derive(Clone, Debug)]
pub struct Edition {
    pub(crate) home: Arc<Home>,
    pub(crate) plan: Arc<Plan>,
}

/// Who asks for state.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The handler's number.
    pub handler: usize,
    /// The path of its resource, as it was requested.
    pub path: &'a str,
    /// What the callers hold.
    pub held: &'a Held,
    /// The handler, for people: `shop.sjs:12:3`.
    pub at: &'a str,
}

/// A nested resource that a handler declares.
#[derive(Clone, Copy, Debug)]
pub struct Declaration<'a> {
    /// Its number.
    pub resource: usize,
    /// Its path.
    pub path: &'a str,
    /// JSON text of what it captured.
    pub captures: &'a str,
    /// JSON text: an object with the first values of its cells, by name.
    pub initials: &'a str,
    /// What the handler committed before.
    pub after: Option<&'a Durable>,
}

/// What became of a declaration.
#[derive(Clone, Debug)]
pub enum Declared {
    /// There was none before.
    New(Instance),
    /// It was there already; nothing of it was changed.
    Existing(Instance),
}

/// A dynamic instance.
#[derive(Clone, Debug)]
pub struct Instance {
    home: Arc<Home>,
    known: Arc<Known>,
    resource: usize,
}

/// What an ask comes to.
struct Wanted {
    group: Arc<Group>,
    /// Of the handler's slots.
    keys: Vec<Arc<str>>,
    /// These, and what has to be loaded with them.
    loaded: Vec<Arc<str>>,
}

/// Keys of the store, each with its size.
type KeySizes = Vec<(Arc<str>, u64)>;

impl Edition {
    /// The dynamic instance at a path, if this program has its declaration.
    ///
    /// # Errors
    /// When the store fails. It is asked only after another gateway did something.
    pub async fn instance(&self, path: &str) -> Result<Option<Instance>, Error> {
        Ok(self.home.instance(path).await?.and_then(|known| self.known(known)))
    }

    fn known(&self, known: Arc<Known>) -> Option<Instance> {
        let resource = self.plan.resources.iter().position(|resource| resource.key == known.site)?;
        Some(Instance { home: Arc::clone(&self.home), known, resource })
    }

    /// A ticket to initialise those of the handler's cells that must have a value before it runs and have none.
    ///
    /// # Errors
    /// As [`Edition::write`].
    pub async fn initialise(&self, ask: Ask<'_>) -> Result<Option<WriteTicket>, Error> {
        let Some(wanted) = self.wanted(ask)? else { return Ok(None) };
        self.prepare(ask, &wanted, false).await?;
        if self.missing(ask, &wanted).is_empty() {
            return Ok(None);
        }
        let (wanted, permit) = self.slot(ask).await?;
        // Somebody else may have done it meanwhile.
        let (planned, keys): (Vec<usize>, Vec<Arc<str>>) = self.missing(ask, &wanted).into_iter().unzip();
        let ticket = || WriteTicket::new(wanted.group, keys, planned.clone(), permit, ask.held, ask.at);
        Ok((!planned.is_empty()).then(ticket))
    }

    /// The last durable version.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn read(&self, ask: Ask<'_>) -> Result<ReadTicket, Error> {
        loop {
            let wanted = self.wanted(ask)?.ok_or_else(|| self.stateless(ask))?;
            self.prepare(ask, &wanted, false).await?;
            if !self.is_open(ask, &wanted)? {
                continue;
            }
            match self.coming(ask, &wanted) {
                Some(durable) => durable?.wait().await?,
                None => return Ok(ReadTicket::new(wanted.group, wanted.keys)),
            }
        }
    }

    /// If a cell that must have a value has one that is not durable yet, when that will be.
    fn coming(&self, ask: Ask<'_>, wanted: &Wanted) -> Option<Result<Durable, Error>> {
        let generation = {
            let inner = wanted.group.lock();
            let is_coming = |key| inner.cells.get(key).is_some_and(|cell| cell.exists && cell.stored == 0);
            let mut eager = self.eager(ask, wanted);
            eager.any(|(_, key)| is_coming(key)).then_some(inner.generation)?
        };
        // Nothing is written, but it is settled after all that was.
        Some(wanted.group.commit(&[], generation, 0, b"", None))
    }

    /// Waits for the slot.
    ///
    /// # Errors
    /// When a caller holds it, when another gateway does, when the instance is gone, when the store fails.
    pub async fn write(&self, ask: Ask<'_>) -> Result<WriteTicket, Error> {
        let (wanted, permit) = self.slot(ask).await?;
        let planned =
            self.plan.handlers.get(ask.handler).map(|handler| handler.cells.clone()).unwrap_or_default();
        Ok(WriteTicket::new(wanted.group, wanted.keys, planned, permit, ask.held, ask.at))
    }

    async fn slot(&self, ask: Ask<'_>) -> Result<(Wanted, OwnedSemaphorePermit), Error> {
        loop {
            let wanted = self.wanted(ask)?.ok_or_else(|| self.stateless(ask))?;
            let group = &wanted.group;
            self.refuse_held(ask, group)?;
            let slot = Arc::clone(&group.slot);
            let permit = match Arc::clone(&slot).try_acquire_owned() {
                Ok(permit) => Some(permit),
                Err(_) => {
                    let _waiting = self.home.waits.enter(ask.held, group, ask.at)?;
                    slot.acquire_owned().await.ok()
                }
            };
            let Some(permit) = permit.filter(|_| group.lock().state != State::Closed) else { continue };
            self.prepare(ask, &wanted, true).await?;
            if self.is_open(ask, &wanted)? {
                return Ok((wanted, permit));
            }
        }
    }

    fn refuse_held(&self, ask: Ask<'_>, group: &Arc<Group>) -> Result<(), Error> {
        let holder = ask.held.holder(group);
        holder.map_or(Ok(()), |holder| Err(Error::SelfCall { asker: ask.at.into(), holder }))
    }

    /// Has the cells loaded.
    async fn prepare(&self, ask: Ask<'_>, wanted: &Wanted, writes: bool) -> Result<(), Error> {
        // What retires is waited for, and its writer may wait for us.
        let before = wanted.group.before();
        if let Some(holder) = before.iter().find_map(|group| ask.held.holder(group)) {
            return Err(Error::SelfCall { asker: ask.at.into(), holder });
        }
        wanted.group.prepare(&wanted.loaded, writes).await
    }

    /// Whether the group is in force still; an error where its instance is gone.
    fn is_open(&self, ask: Ask<'_>, wanted: &Wanted) -> Result<bool, Error> {
        let state = wanted.group.lock().state;
        let is_dynamic = || {
            let resource = self.plan.handlers.get(ask.handler).map(|handler| handler.resource);
            resource
                .and_then(|resource| self.plan.resources.get(resource))
                .is_some_and(|found| found.is_dynamic)
        };
        if state == State::Gone || (is_dynamic() && self.home.instances.find(ask.path).is_none()) {
            return Err(Error::Gone { path: ask.path.into() });
        }
        Ok(state == State::Open)
    }

    /// None where the handler has no cells.
    fn wanted(&self, ask: Ask<'_>) -> Result<Option<Wanted>, Error> {
        let handler = self.plan.handlers.get(ask.handler).ok_or_else(|| self.stateless(ask))?;
        let cells: Vec<_> = handler.cells.iter().filter_map(|cell| self.plan.cells.get(*cell)).collect();
        let Some(first) = cells.first() else { return Ok(None) };
        let group = self.home.group(&first.key, ask.path).ok_or_else(|| self.stateless(ask))?;
        let keys = &self.home.keys;
        let key = |cell: &super::plan::PlanCell| match cell.scope {
            Scope::Service => keys.shared_cell(&cell.key),
            Scope::Resource(_) | Scope::Handler(_) => keys.cell(ask.path, &cell.key),
        };
        let own: Vec<Arc<str>> = cells.into_iter().map(key).collect();
        let mut loaded: HashSet<Arc<str>> = own.iter().map(Arc::clone).collect();
        loaded.extend(group.domain.shared.iter().map(|cell| keys.shared_cell(cell)));
        if let Some(path) = &group.path {
            loaded.extend(group.domain.scattered.iter().map(|cell| keys.cell(path, cell)));
        }
        Ok(Some(Wanted { group, keys: own, loaded: loaded.into_iter().collect() }))
    }

    /// The handler's cells that must have a value before it runs.
    fn eager<'a>(&'a self, ask: Ask<'_>, wanted: &'a Wanted) -> impl Iterator<Item = (usize, &'a Arc<str>)> {
        let handler = self.plan.handlers.get(ask.handler);
        let cells = handler.map(|handler| &handler.cells[..]).unwrap_or_default();
        let is_eager = |cell: usize| self.plan.cells.get(cell).is_some_and(|cell| cell.eager);
        cells.iter().copied().zip(&wanted.keys).filter(move |(cell, _)| is_eager(*cell))
    }

    /// Those of them that have none.
    fn missing(&self, ask: Ask<'_>, wanted: &Wanted) -> Vec<(usize, Arc<str>)> {
        let inner = wanted.group.lock();
        let exists = |key| inner.cells.get(key).is_some_and(|cell| cell.exists);
        let missing = self.eager(ask, wanted).filter(|(_, key)| !exists(*key));
        missing.map(|(cell, key)| (cell, Arc::clone(key))).collect()
    }

    fn stateless(&self, ask: Ask<'_>) -> Error {
        Error::Stateless { service: Arc::clone(self.home.keys.service()), handler: ask.handler }
    }

    /// Makes an instance, unless it is there. It is durable when this returns.
    ///
    /// # Errors
    /// When no request can have the path, when it is another declaration's, when too much is captured, when there are too many,
    /// when the state would be too large, when the store fails.
    pub async fn declare(&self, declaration: Declaration<'_>) -> Result<Declared, Error> {
        let refused = |reason: String| Error::declaration(declaration.path, reason);
        let resource = self.plan.resources.get(declaration.resource);
        let site = &resource.ok_or_else(|| refused("the program has no such resource".to_owned()))?.key;
        check_path(declaration.path).map_err(refused)?;
        let captured = declaration.captures.len();
        if captured > MAX_CAPTURES {
            return Err(refused(format!(
                "what it captured has {captured} bytes, and {MAX_CAPTURES} are the most it may have"
            )));
        }
        if let Some(after) = declaration.after {
            after.wait().await?;
        }
        let epoch = self.home.shared.epoch();
        loop {
            if let Some(known) = self.home.instance(declaration.path).await? {
                return self.existing(known, site, declaration.resource);
            }
            let settings = self.home.settings();
            let most = settings.instances;
            let service = || Arc::clone(self.home.keys.service());
            let _room =
                self.home.instances.room(most).ok_or_else(|| Error::TooMany { service: service(), most })?;
            let text: Bytes = self.record(declaration, site)?.into();
            let (batch, sizes) = self.declaration(declaration, text.clone())?;
            let bytes = sizes.iter().map(|(_, size)| size).sum();
            let reserved = self.home.sizes.reserve(settings.size, bytes);
            let _reserved = reserved.map_err(|refused| self.home.state_full(refused, settings.size))?;
            match self.home.shared.store.commit(batch).await {
                Ok(written) => {
                    // Whoever asked for it before it was there saw no values.
                    self.home.appeared(declaration.path);
                    sizes.iter().for_each(|(key, size)| self.home.sizes.set(key, *size));
                    let version = written.get(1).map_or(0, |written| written.version);
                    let known =
                        self.home.instances.add(&self.home, declaration.path, (version, text), epoch)?;
                    let resource = declaration.resource;
                    return Ok(Declared::New(Instance { home: Arc::clone(&self.home), known, resource }));
                }
                // Somebody else declared it first.
                Err(store::Error::Conflict { .. }) => self.home.adopt(declaration.path).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn existing(&self, known: Arc<Known>, site: &Arc<str>, resource: usize) -> Result<Declared, Error> {
        if known.site != *site {
            let (path, owner) = (Arc::clone(&known.path), Arc::clone(&known.site));
            return Err(Error::Taken { path, owner, site: Arc::clone(site) });
        }
        Ok(Declared::Existing(Instance { home: Arc::clone(&self.home), known, resource }))
    }

    /// What the store keeps of an instance.
    fn record(&self, declaration: Declaration<'_>, site: &str) -> Result<String, Error> {
        let refused = |reason: String| Error::declaration(declaration.path, reason);
        let captures = Bytes::copy_from_slice(declaration.captures.as_bytes());
        index(captures).map_err(|error| refused(format!("what it captured is no JSON ({error})")))?;
        Ok(Record { site, captures: declaration.captures, ends: self.home.ends() }.text())
    }

    /// The store's batch, and the size of each of its keys. Nothing that was there at its path before is left.
    fn declaration(&self, declaration: Declaration<'_>, record: Bytes) -> Result<(Batch, KeySizes), Error> {
        let refused = |reason: String| Error::declaration(declaration.path, reason);
        let keys = &self.home.keys;
        let batch = Batch::new().remove_all(keys.instance(declaration.path));
        let declared = keys.declared(declaration.path);
        let size = instance_size(&declared, declaration.path, record.len());
        let mut sizes = vec![(Arc::clone(&declared), size)];
        let mut batch = batch.create(declared, record);
        if declaration.initials.is_empty() {
            return Ok((batch, sizes));
        }
        let initials = index(Bytes::copy_from_slice(declaration.initials.as_bytes()))
            .map_err(|error| refused(format!("its first values are no JSON ({error})")))?;
        let cells = self.plan.resources.get(declaration.resource).map(|resource| &resource.cells[..]);
        for cell in cells.unwrap_or_default().iter().filter_map(|cell| self.plan.cells.get(*cell)) {
            if let Some(value) = initials.root().last_member(cell.name.as_bytes()) {
                let (key, value) = (keys.cell(declaration.path, &cell.key), value.slice());
                sizes.push((Arc::clone(&key), entry_size(&key, value.len())));
                batch = batch.create(key, value);
            }
        }
        Ok((batch, sizes))
    }

    /// Removes the instance at a path, one that this program does not know as well. It is durable when this returns.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn remove(&self, path: &str, held: &Held, at: &str) -> Result<bool, Error> {
        self.home.remove(path, held, at).await
    }
}

impl Instance {
    /// What workers know it by.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.known.id
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Arc<str> {
        &self.known.path
    }

    /// The number of its resource in this program.
    #[must_use]
    pub fn resource(&self) -> usize {
        self.resource
    }

    /// Whether it was removed since it was found, or is about to be.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.home.is_leaving(&self.known.path)
            || self.home.instances.find(&self.known.path).is_none_or(|known| known.id != self.known.id)
    }

    /// JSON text.
    #[must_use]
    pub fn captures(&self) -> &Bytes {
        &self.known.captures
    }

    /// What the worker has to be sent before a run at this instance.
    #[must_use]
    pub fn ship(&self, worker: u32) -> Vec<Frame> {
        self.home.shared.workers.ship(worker, |worker, frames| {
            if worker.instances.insert(self.known.id) {
                frames.push(Frame::Instance { id: self.known.id, captures: self.known.captures.clone() });
            }
        })
    }
}
