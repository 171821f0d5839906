//! The state as seen by one program.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use json::JsonDocument;
use offload::QuotaKey;
use services::UnfinishedResponse;
use store::WriteBatch;
use tokio::sync::OwnedSemaphorePermit;

use super::cell::SHORT;
use super::commit::DurableCommit;
use super::error::StateError;
use super::group::{CellGroup, CellGroupState};
use super::held::HeldLocks;
use super::home::ServiceGroups;
use super::instances::{
    InstanceRecord, MAX_CAPTURES, RegisteredInstance, check_path, instance_size, record_text,
};
use super::plan::{CellScope, PlanResource, StatePlan};
use super::sizes::entry_size;
use super::ticket::{ReadTicket, WriteTicket};
use super::workers::PrecedingFrame;
use crate::index::index;
use crate::work::spawn;

/// The state as seen by one program. Its runs keep it even after the program has changed.
#[derive(Clone, Debug)]
pub struct StateView {
    pub(crate) home: Arc<ServiceGroups>,
    pub(crate) plan: Arc<StatePlan>,
}

/// A run's request for access to state.
#[derive(Clone, Copy, Debug)]
pub struct StateRequest<'a> {
    /// The index of the handler.
    pub handler: usize,
    /// The requested path of its resource.
    pub path: &'a str,
    /// The groups that the callers hold.
    pub held: &'a HeldLocks,
    /// The position of the handler, for messages: `shop.sjs:12:3`.
    pub at: &'a str,
}

/// The declaration of a nested resource by a handler.
#[derive(Clone, Debug)]
pub struct ResourceDeclaration<'a> {
    /// The index of the resource.
    pub resource: usize,
    /// The path of the new instance.
    pub path: &'a str,
    /// The captured values, as JSON text.
    pub captures: Bytes,
    /// The initial values of its cells, as the JSON text of an object by name.
    pub initials: Bytes,
    /// The previous commit of the declaring run.
    pub after: Option<&'a DurableCommit>,
}

/// The result of a declaration.
#[derive(Clone, Debug)]
pub enum DeclarationResult {
    /// A new instance.
    New(DynamicInstance),
    /// An existing instance, which is unchanged.
    Existing(DynamicInstance),
}

/// A dynamic instance.
#[derive(Clone, Debug)]
pub struct DynamicInstance {
    home: Arc<ServiceGroups>,
    known: Arc<RegisteredInstance>,
    resource: usize,
}

/// The group and the cells of a request.
struct RequestedCells {
    group: Arc<CellGroup>,
    /// The keys of the handler's slots.
    keys: Vec<Arc<str>>,
    /// These keys, and all others that have to be loaded with them.
    loaded: Vec<Arc<str>>,
}

/// The texts of a declaration, parsed.
struct ParsedDeclarationTexts {
    record: InstanceRecord,
    initials: Option<JsonDocument>,
}

/// Keys of the store with their sizes.
type KeySizes = Vec<(Arc<str>, u64)>;

impl StateView {
    /// Returns the dynamic instance at a path, if this program contains its declaration.
    ///
    /// # Errors
    /// If the store fails. It is accessed only after a change by another gateway.
    pub async fn instance(&self, path: &str) -> Result<Option<DynamicInstance>, StateError> {
        Ok(self.home.instance(path).await?.and_then(|known| self.known(known)))
    }

    fn known(&self, known: Arc<RegisteredInstance>) -> Option<DynamicInstance> {
        let resource = self.plan.resources.iter().position(|resource| resource.key == known.site)?;
        Some(DynamicInstance { home: Arc::clone(&self.home), known, resource })
    }

    /// Returns a ticket to initialise those of the handler's cells that need a value before it runs and have
    /// none.
    ///
    /// # Errors
    /// As [`StateView::write`].
    pub async fn initialise(&self, ask: StateRequest<'_>) -> Result<Option<WriteTicket>, StateError> {
        let Some(wanted) = self.wanted(ask)? else { return Ok(None) };
        self.prepare(ask, &wanted, false).await?;
        if self.missing(ask, &wanted).is_empty() {
            return Ok(None);
        }
        let (wanted, permit) = self.slot(ask).await?;
        // Another run may have initialised them meanwhile.
        let (planned, keys): (Vec<usize>, Vec<Arc<str>>) = self.missing(ask, &wanted).into_iter().unzip();
        let ticket = || WriteTicket::new(wanted.group, keys, planned.clone(), permit, ask.held, ask.at);
        Ok((!planned.is_empty()).then(ticket))
    }

    /// Returns a ticket for the last durable version.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn read(&self, ask: StateRequest<'_>) -> Result<ReadTicket, StateError> {
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

    /// Returns the pending commit, if a cell that needs a value has one that is not durable yet.
    fn coming(
        &self,
        ask: StateRequest<'_>,
        wanted: &RequestedCells,
    ) -> Option<Result<DurableCommit, StateError>> {
        let generation = {
            let inner = wanted.group.lock();
            let is_coming = |key| inner.cells.get(key).is_some_and(|cell| cell.exists && cell.stored == 0);
            let mut eager = self.eager(ask, wanted);
            eager.any(|(_, key)| is_coming(key)).then_some(inner.generation)?
        };
        Some(wanted.group.settled(generation))
    }

    /// Waits for the group's slot, and returns a ticket to write.
    ///
    /// # Errors
    /// If a caller holds the slot, if another gateway holds the lease, if the instance is removed, or if the
    /// store fails.
    pub async fn write(&self, ask: StateRequest<'_>) -> Result<WriteTicket, StateError> {
        let (wanted, permit) = self.slot(ask).await?;
        let planned =
            self.plan.handlers.get(ask.handler).map(|handler| handler.cells.clone()).unwrap_or_default();
        Ok(WriteTicket::new(wanted.group, wanted.keys, planned, permit, ask.held, ask.at))
    }

    async fn slot(
        &self,
        ask: StateRequest<'_>,
    ) -> Result<(RequestedCells, OwnedSemaphorePermit), StateError> {
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
            let Some(permit) = permit.filter(|_| group.lock().state != CellGroupState::Closed) else {
                continue;
            };
            self.prepare(ask, &wanted, true).await?;
            if self.is_open(ask, &wanted)? {
                return Ok((wanted, permit));
            }
        }
    }

    fn refuse_held(&self, ask: StateRequest<'_>, group: &Arc<CellGroup>) -> Result<(), StateError> {
        let holder = ask.held.holder(group);
        holder.map_or(Ok(()), |holder| Err(StateError::SelfCall { asker: ask.at.into(), holder }))
    }

    /// Loads the cells.
    async fn prepare(
        &self,
        ask: StateRequest<'_>,
        wanted: &RequestedCells,
        writes: bool,
    ) -> Result<(), StateError> {
        // Retiring groups are waited for, and their writers may wait for this run.
        let before = wanted.group.before();
        if let Some(holder) = before.iter().find_map(|group| ask.held.holder(group)) {
            return Err(StateError::SelfCall { asker: ask.at.into(), holder });
        }
        wanted.group.prepare(&wanted.loaded, writes).await
    }

    /// Whether the group is still active; returns an error if the instance is removed.
    fn is_open(&self, ask: StateRequest<'_>, wanted: &RequestedCells) -> Result<bool, StateError> {
        let state = wanted.group.lock().state;
        let is_dynamic = || {
            let resource = self.plan.handlers.get(ask.handler).map(|handler| handler.resource);
            resource
                .and_then(|resource| self.plan.resources.get(resource))
                .is_some_and(|found| found.is_dynamic)
        };
        if state == CellGroupState::Gone || (is_dynamic() && self.home.instances.find(ask.path).is_none()) {
            return Err(StateError::Gone { path: ask.path.into() });
        }
        Ok(state == CellGroupState::Open)
    }

    /// Returns `None` if the handler has no cells.
    fn wanted(&self, ask: StateRequest<'_>) -> Result<Option<RequestedCells>, StateError> {
        let handler = self.plan.handlers.get(ask.handler).ok_or_else(|| self.stateless(ask))?;
        let cells: Vec<_> = handler.cells.iter().filter_map(|cell| self.plan.cells.get(*cell)).collect();
        let Some(first) = cells.first() else { return Ok(None) };
        let group = self.home.group(&first.key, ask.path).ok_or_else(|| self.stateless(ask))?;
        let keys = &self.home.keys;
        let key = |cell: &super::plan::PlanCell| match cell.scope {
            CellScope::Service => keys.shared_cell(&cell.key),
            CellScope::Resource(_) | CellScope::Handler(_) => keys.cell(ask.path, &cell.key),
        };
        let own: Vec<Arc<str>> = cells.into_iter().map(key).collect();
        let mut loaded: HashSet<Arc<str>> = own.iter().map(Arc::clone).collect();
        loaded.extend(group.domain.shared.iter().map(|cell| keys.shared_cell(cell)));
        if let Some(path) = &group.path {
            loaded.extend(group.domain.scattered.iter().map(|cell| keys.cell(path, cell)));
        }
        Ok(Some(RequestedCells { group, keys: own, loaded: loaded.into_iter().collect() }))
    }

    /// Returns the handler's cells that need a value before it runs.
    fn eager<'a>(
        &'a self,
        ask: StateRequest<'_>,
        wanted: &'a RequestedCells,
    ) -> impl Iterator<Item = (usize, &'a Arc<str>)> {
        let handler = self.plan.handlers.get(ask.handler);
        let cells = handler.map(|handler| &handler.cells[..]).unwrap_or_default();
        let is_eager = |cell: usize| self.plan.cells.get(cell).is_some_and(|cell| cell.eager);
        cells.iter().copied().zip(&wanted.keys).filter(move |(cell, _)| is_eager(*cell))
    }

    /// Returns those of these cells that have no value.
    fn missing(&self, ask: StateRequest<'_>, wanted: &RequestedCells) -> Vec<(usize, Arc<str>)> {
        let inner = wanted.group.lock();
        let exists = |key| inner.cells.get(key).is_some_and(|cell| cell.exists);
        let missing = self.eager(ask, wanted).filter(|(_, key)| !exists(*key));
        missing.map(|(cell, key)| (cell, Arc::clone(key))).collect()
    }

    fn stateless(&self, ask: StateRequest<'_>) -> StateError {
        StateError::Stateless { service: Arc::clone(self.home.keys.service()), handler: ask.handler }
    }

    /// Creates an instance, unless it exists. It is durable on return. A declaration that has begun is
    /// completed even if this future is dropped.
    ///
    /// # Errors
    /// If the path is invalid or belongs to another declaration, if a limit of captured values, instances or
    /// the size of the state is exceeded, or if the store fails.
    pub async fn declare(
        &self,
        declaration: ResourceDeclaration<'_>,
    ) -> Result<DeclarationResult, StateError> {
        let refused = |reason: String| StateError::declaration(declaration.path, reason);
        let resource = self.resource(declaration.resource, declaration.path)?;
        let site = &resource.key;
        check_path(declaration.path).map_err(refused)?;
        if let Some(owner) = self.literal_owner(resource, declaration.path) {
            let (path, owner) = (declaration.path.into(), Arc::clone(&owner.key));
            return Err(StateError::Taken { path, owner, site: Arc::clone(site) });
        }
        let captured = declaration.captures.len();
        if captured > MAX_CAPTURES {
            return Err(refused(format!(
                "it captures {captured} bytes, more than the maximum of {MAX_CAPTURES}"
            )));
        }
        if let Some(after) = declaration.after {
            after.wait().await?;
        }
        let epoch = self.home.shared.epoch();
        if let Some(known) = self.home.instance(declaration.path).await? {
            return self.existing(known, site, declaration.resource);
        }
        let parsed = self.parsed(&declaration, site).await?;
        let (edition, resource, path) =
            (self.clone(), declaration.resource, Arc::<str>::from(declaration.path));
        let task = spawn(async move { edition.create(resource, &path, parsed, epoch).await });
        task.await.unwrap_or_else(|_| Err(UnfinishedResponse.into()))
    }

    /// Returns a resource, for a declaration at a path.
    fn resource(&self, resource: usize, path: &str) -> Result<&PlanResource, StateError> {
        let unknown = || StateError::declaration(path, "the program has no such resource".to_owned());
        self.plan.resources.get(resource).ok_or_else(unknown)
    }

    /// Returns the resource with this literal path, if a declaration of `resource` cannot have the path:
    /// computed paths come from clients, which must not take the place of a resource that the program names.
    fn literal_owner(&self, resource: &PlanResource, path: &str) -> Option<&PlanResource> {
        let is_computed = resource.path.is_none();
        let is_owner =
            |other: &&PlanResource| other.path.as_deref() == Some(path) && (is_computed || !other.is_dynamic);
        self.plan.resources.iter().find(is_owner)
    }

    /// Stores an instance and adds it, unless it exists. Must not be cancelled between the two.
    async fn create(
        &self,
        resource: usize,
        path: &str,
        parsed: ParsedDeclarationTexts,
        epoch: u64,
    ) -> Result<DeclarationResult, StateError> {
        let ParsedDeclarationTexts { record, initials } = parsed;
        let planned = self.resource(resource, path)?;
        loop {
            if let Some(known) = self.home.instance(path).await? {
                return self.existing(known, &planned.key, resource);
            }
            let settings = self.home.settings();
            let most = settings.instances;
            let service = || Arc::clone(self.home.keys.service());
            let _room = self
                .home
                .instances
                .room(most)
                .ok_or_else(|| StateError::TooMany { service: service(), most })?;
            let (batch, sizes) = self.declaration(planned, path, record.text.clone(), initials.as_ref());
            let bytes = sizes.iter().map(|(_, size)| size).sum();
            let reserved = self.home.sizes.reserve(settings.size, bytes);
            let _reserved = reserved.map_err(|refused| self.home.state_full(refused, settings.size))?;
            match self.home.shared.store.commit(batch).await {
                Ok(written) => {
                    // Runs that looked for the instance before its creation have cached its cells as missing.
                    self.home.appeared(path, &planned.key);
                    sizes.iter().for_each(|(key, size)| self.home.sizes.set(key, *size));
                    let version = written.get(1).map_or(0, |written| written.version);
                    let known = self.home.instances.add(&self.home, path, version, record, epoch);
                    return Ok(DeclarationResult::New(DynamicInstance {
                        home: Arc::clone(&self.home),
                        known,
                        resource,
                    }));
                }
                // Another declaration was faster.
                Err(store::StoreError::Conflict { .. }) => self.home.adopt(path).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn existing(
        &self,
        known: Arc<RegisteredInstance>,
        site: &Arc<str>,
        resource: usize,
    ) -> Result<DeclarationResult, StateError> {
        if known.site != *site {
            let (path, owner) = (Arc::clone(&known.path), Arc::clone(&known.site));
            return Err(StateError::Taken { path, owner, site: Arc::clone(site) });
        }
        Ok(DeclarationResult::Existing(DynamicInstance { home: Arc::clone(&self.home), known, resource }))
    }

    /// Parses the texts of a declaration; long ones in the pool.
    async fn parsed(
        &self,
        declaration: &ResourceDeclaration<'_>,
        site: &Arc<str>,
    ) -> Result<ParsedDeclarationTexts, StateError> {
        let (captures, initials) = (declaration.captures.clone(), declaration.initials.clone());
        let (site, ends) = (Arc::clone(site), self.home.ends());
        let length = captures.len() + initials.len();
        let parse = move || -> Result<ParsedDeclarationTexts, String> {
            let text = record_text(&site, ends, &captures)?;
            let record =
                InstanceRecord::read(text).map_err(|reason| format!("its record is invalid: {reason}"))?;
            let initials = (!initials.is_empty()).then(|| index(Bytes::copy_from_slice(&initials)));
            let initials = initials.transpose();
            let initials = initials.map_err(|error| format!("its initial values are not JSON ({error})"))?;
            Ok(ParsedDeclarationTexts { record, initials })
        };
        let parsed = if length <= SHORT {
            parse()
        } else {
            self.home.shared.work(QuotaKey::new(self.home.keys.service()), parse).await?
        };
        parsed.map_err(|reason| StateError::declaration(declaration.path, reason))
    }

    /// Returns the store's batch, and the size of each of its keys. The batch also removes all old data of
    /// the resource at the path.
    fn declaration(
        &self,
        resource: &PlanResource,
        path: &str,
        record: Bytes,
        initials: Option<&JsonDocument>,
    ) -> (WriteBatch, KeySizes) {
        let keys = &self.home.keys;
        let batch = WriteBatch::new().remove_all(keys.instance(path, &resource.key));
        let declared = keys.declared(path);
        let size = instance_size(&declared, path, record.len());
        let mut sizes = vec![(Arc::clone(&declared), size)];
        let mut batch = batch.create(declared, record);
        let Some(initials) = initials else { return (batch, sizes) };
        for cell in resource.cells.iter().filter_map(|cell| self.plan.cells.get(*cell)) {
            if let Some(value) = initials.root().last_member(cell.name.as_bytes()) {
                let (key, value) = (keys.cell(path, &cell.key), value.slice());
                sizes.push((Arc::clone(&key), entry_size(&key, value.len())));
                batch = batch.create(key, value);
            }
        }
        (batch, sizes)
    }

    /// Removes the instance at a path, even if this program does not declare it. The removal is durable on
    /// return, and one that has begun is completed even if this future is dropped.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn remove(&self, path: &str, held: &HeldLocks, at: &str) -> Result<bool, StateError> {
        self.home.remove(path, held, at).await
    }
}

impl DynamicInstance {
    /// The number by which workers refer to the instance.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.known.id
    }

    /// The path of the instance.
    #[must_use]
    pub fn path(&self) -> &Arc<str> {
        &self.known.path
    }

    /// The index of its resource in this program.
    #[must_use]
    pub fn resource(&self) -> usize {
        self.resource
    }

    /// Whether it has been removed since it was found, or is being removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.home.is_leaving(&self.known.path)
            || self.home.instances.find(&self.known.path).is_none_or(|known| known.id != self.known.id)
    }

    /// The captured values, as JSON text.
    #[must_use]
    pub fn captures(&self) -> &Bytes {
        &self.known.captures
    }

    /// Returns the frames that a worker must receive before a run at this instance.
    #[must_use]
    pub fn ship(&self, worker: u32) -> Vec<PrecedingFrame> {
        self.home.shared.workers.ship(worker, |worker, frames| {
            if worker.instances.insert(self.known.id) {
                frames.push(PrecedingFrame::Instance {
                    id: self.known.id,
                    captures: self.known.captures.clone(),
                });
            }
        })
    }
}
