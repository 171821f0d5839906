//! The state as seen by one program.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use json::JsonDocument;
use offload::QuotaKey;
use services::UnfinishedResponse;
use store::WriteBatch;
use tokio::sync::OwnedSemaphorePermit;

use super::cell::MAX_LOCKED_TEXT;
use super::error::StateError;
use super::groups::commit::DurableCommit;
use super::groups::group::{CellGroup, CellGroupState};
use super::groups::held_locks::HeldLocks;
use super::groups::instances::{
    InstanceRecord, MAX_CAPTURES, RegisteredInstance, check_path, encode_record, instance_size,
};
use super::groups::service_groups::ServiceGroups;
use super::plan::{CellScope, PlanResource, StatePlan};
use super::sizes::entry_size;
use super::ticket::{ReadTicket, WriteTicket};
use super::workers::PrecedingFrame;
use crate::frame::json_index::build_index;
use crate::work::spawn;

/// The state as seen by one program. Its runs keep it even after the program has changed.
#[derive(Clone, Debug)]
pub struct StateView {
    pub(crate) service_groups: Arc<ServiceGroups>,
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
    pub held_locks: &'a HeldLocks,
    /// The position of the handler, for messages: `shop.sjs:12:3`.
    pub position: &'a str,
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
    pub after_commit: Option<&'a DurableCommit>,
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
    service_groups: Arc<ServiceGroups>,
    registered: Arc<RegisteredInstance>,
    resource: usize,
}

/// The group and the cells of a request.
struct RequestedCells {
    group: Arc<CellGroup>,
    /// The keys of the handler's slots.
    keys: Vec<Arc<str>>,
    /// These keys, and all others that have to be loaded with them.
    keys_to_load: Vec<Arc<str>>,
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
    pub async fn find_instance(&self, path: &str) -> Result<Option<DynamicInstance>, StateError> {
        Ok(self.service_groups.find_instance(path).await?.and_then(|instance| self.to_instance(instance)))
    }

    fn to_instance(&self, instance: Arc<RegisteredInstance>) -> Option<DynamicInstance> {
        let resource = self.plan.resources.iter().position(|resource| resource.key == instance.site)?;
        Some(DynamicInstance {
            service_groups: Arc::clone(&self.service_groups),
            registered: instance,
            resource,
        })
    }

    /// Returns a ticket to initialise those of the handler's cells that need a value before it runs and have
    /// none.
    ///
    /// # Errors
    /// As [`StateView::write_ticket`].
    pub async fn initialisation_ticket(
        &self,
        request: StateRequest<'_>,
    ) -> Result<Option<WriteTicket>, StateError> {
        let Some(cells) = self.requested_cells(request)? else { return Ok(None) };
        self.prepare_cells(request, &cells, false).await?;
        if self.missing_cells(request, &cells).is_empty() {
            return Ok(None);
        }
        let (requested_cells, permit) = self.acquire_slot(request).await?;
        // Another run may have initialised them meanwhile.
        let (planned, keys): (Vec<usize>, Vec<Arc<str>>) =
            self.missing_cells(request, &requested_cells).into_iter().unzip();
        let ticket = || {
            WriteTicket::new(
                requested_cells.group,
                keys,
                planned.clone(),
                permit,
                request.held_locks,
                request.position,
            )
        };
        Ok((!planned.is_empty()).then(ticket))
    }

    /// Returns a ticket for the last durable version.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn read_ticket(&self, request: StateRequest<'_>) -> Result<ReadTicket, StateError> {
        loop {
            let cells = self.requested_cells(request)?.ok_or_else(|| self.stateless_error(request))?;
            self.prepare_cells(request, &cells, false).await?;
            if !self.is_open(request, &cells)? {
                continue;
            }
            match self.pending_initial_commit(request, &cells) {
                Some(durable) => durable?.wait().await?,
                None => return Ok(ReadTicket::new(cells.group, cells.keys)),
            }
        }
    }

    /// Returns the pending commit, if a cell that needs a value has one that is not durable yet.
    fn pending_initial_commit(
        &self,
        request: StateRequest<'_>,
        cells: &RequestedCells,
    ) -> Option<Result<DurableCommit, StateError>> {
        let generation = {
            let inner = cells.group.lock();
            let is_coming =
                |key| inner.cells.get(key).is_some_and(|cell| cell.exists && cell.stored_version == 0);
            let mut eager = self.eager_cells(request, cells);
            eager.any(|(_, key)| is_coming(key)).then_some(inner.generation)?
        };
        Some(cells.group.pending_commits(generation))
    }

    /// Waits for the group's slot, and returns a ticket to write.
    ///
    /// # Errors
    /// If a caller holds the slot, if another gateway holds the lease, if the instance is removed, or if the
    /// store fails.
    pub async fn write_ticket(&self, request: StateRequest<'_>) -> Result<WriteTicket, StateError> {
        let (cells, permit) = self.acquire_slot(request).await?;
        let planned =
            self.plan.handlers.get(request.handler).map(|handler| handler.cells.clone()).unwrap_or_default();
        Ok(WriteTicket::new(cells.group, cells.keys, planned, permit, request.held_locks, request.position))
    }

    async fn acquire_slot(
        &self,
        request: StateRequest<'_>,
    ) -> Result<(RequestedCells, OwnedSemaphorePermit), StateError> {
        loop {
            let cells = self.requested_cells(request)?.ok_or_else(|| self.stateless_error(request))?;
            let group = &cells.group;
            self.reject_held(request, group)?;
            let slot = Arc::clone(&group.write_slot);
            let permit = match Arc::clone(&slot).try_acquire_owned() {
                Ok(permit) => Some(permit),
                Err(_) => {
                    let _waiting = self.service_groups.queue_admissions.register_wait(
                        request.held_locks,
                        group,
                        request.position,
                    )?;
                    slot.acquire_owned().await.ok()
                }
            };
            let Some(permit) = permit.filter(|_| group.lock().state != CellGroupState::Closed) else {
                continue;
            };
            self.prepare_cells(request, &cells, true).await?;
            if self.is_open(request, &cells)? {
                return Ok((cells, permit));
            }
        }
    }

    fn reject_held(&self, request: StateRequest<'_>, group: &Arc<CellGroup>) -> Result<(), StateError> {
        let holder = request.held_locks.find_holder(group);
        holder.map_or(Ok(()), |holder| Err(StateError::SelfCall { asker: request.position.into(), holder }))
    }

    /// Loads the cells.
    async fn prepare_cells(
        &self,
        request: StateRequest<'_>,
        cells: &RequestedCells,
        writes: bool,
    ) -> Result<(), StateError> {
        // Retiring groups are waited for, and their writers may wait for this run.
        let before = cells.group.predecessors();
        if let Some(holder) = before.iter().find_map(|group| request.held_locks.find_holder(group)) {
            return Err(StateError::SelfCall { asker: request.position.into(), holder });
        }
        cells.group.ensure_loaded(&cells.keys_to_load, writes).await
    }

    /// Whether the group is still active; returns an error if the instance is removed.
    fn is_open(&self, request: StateRequest<'_>, cells: &RequestedCells) -> Result<bool, StateError> {
        let state = cells.group.lock().state;
        let is_dynamic = || {
            let resource = self.plan.handlers.get(request.handler).map(|handler| handler.resource);
            resource
                .and_then(|resource| self.plan.resources.get(resource))
                .is_some_and(|plan_resource| plan_resource.is_dynamic)
        };
        if state == CellGroupState::Removed
            || (is_dynamic() && self.service_groups.instances.find(request.path).is_none())
        {
            return Err(StateError::ResourceRemoved { path: request.path.into() });
        }
        Ok(state == CellGroupState::Open)
    }

    /// Returns `None` if the handler has no cells.
    fn requested_cells(&self, request: StateRequest<'_>) -> Result<Option<RequestedCells>, StateError> {
        let handler = self.plan.handlers.get(request.handler).ok_or_else(|| self.stateless_error(request))?;
        let cells: Vec<_> = handler.cells.iter().filter_map(|cell| self.plan.cells.get(*cell)).collect();
        let Some(first) = cells.first() else { return Ok(None) };
        let group = self
            .service_groups
            .get_or_create_group(&first.key, request.path)
            .ok_or_else(|| self.stateless_error(request))?;
        let keys = &self.service_groups.keys;
        let key = |cell: &super::plan::PlanCell| match cell.scope {
            CellScope::Service => keys.shared_cell_key(&cell.key),
            CellScope::Resource(_) | CellScope::Handler(_) => keys.cell_key(request.path, &cell.key),
        };
        let own: Vec<Arc<str>> = cells.into_iter().map(key).collect();
        let mut loaded: HashSet<Arc<str>> = own.iter().map(Arc::clone).collect();
        loaded.extend(group.domain.shared.iter().map(|cell| keys.shared_cell_key(cell)));
        if let Some(path) = &group.path {
            loaded.extend(group.domain.scattered.iter().map(|cell| keys.cell_key(path, cell)));
        }
        Ok(Some(RequestedCells { group, keys: own, keys_to_load: loaded.into_iter().collect() }))
    }

    /// Returns the handler's cells that need a value before it runs.
    fn eager_cells<'a>(
        &'a self,
        request: StateRequest<'_>,
        requested_cells: &'a RequestedCells,
    ) -> impl Iterator<Item = (usize, &'a Arc<str>)> {
        let handler = self.plan.handlers.get(request.handler);
        let cells = handler.map(|handler| &handler.cells[..]).unwrap_or_default();
        let is_eager = |cell: usize| self.plan.cells.get(cell).is_some_and(|cell| cell.eager);
        cells.iter().copied().zip(&requested_cells.keys).filter(move |(cell, _)| is_eager(*cell))
    }

    /// Returns those of these cells that have no value.
    fn missing_cells(&self, request: StateRequest<'_>, cells: &RequestedCells) -> Vec<(usize, Arc<str>)> {
        let inner = cells.group.lock();
        let exists = |key| inner.cells.get(key).is_some_and(|cell| cell.exists);
        let missing = self.eager_cells(request, cells).filter(|(_, key)| !exists(*key));
        missing.map(|(cell, key)| (cell, Arc::clone(key))).collect()
    }

    fn stateless_error(&self, request: StateRequest<'_>) -> StateError {
        StateError::Stateless {
            service: Arc::clone(self.service_groups.keys.service()),
            handler: request.handler,
        }
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
        let refused = |reason: String| StateError::invalid_declaration(declaration.path, reason);
        let resource = self.planned_resource(declaration.resource, declaration.path)?;
        let site = &resource.key;
        check_path(declaration.path).map_err(refused)?;
        if let Some(owner) = self.literal_owner(resource, declaration.path) {
            let (path, owner) = (declaration.path.into(), Arc::clone(&owner.key));
            return Err(StateError::PathTaken { path, owner, site: Arc::clone(site) });
        }
        let captured = declaration.captures.len();
        if captured > MAX_CAPTURES {
            return Err(refused(format!(
                "it captures {captured} bytes, more than the maximum of {MAX_CAPTURES}"
            )));
        }
        if let Some(after) = declaration.after_commit {
            after.wait().await?;
        }
        let epoch = self.service_groups.shared.epoch();
        if let Some(instance) = self.service_groups.find_instance(declaration.path).await? {
            return self.existing_instance(instance, site, declaration.resource);
        }
        let parsed = self.parse_declaration(&declaration, site).await?;
        let (edition, resource, path) =
            (self.clone(), declaration.resource, Arc::<str>::from(declaration.path));
        let task = spawn(async move { edition.create_instance(resource, &path, parsed, epoch).await });
        task.await.unwrap_or_else(|_| Err(UnfinishedResponse.into()))
    }

    /// Returns a resource, for a declaration at a path.
    fn planned_resource(&self, resource: usize, path: &str) -> Result<&PlanResource, StateError> {
        let unknown = || StateError::invalid_declaration(path, "the program has no such resource".to_owned());
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
    async fn create_instance(
        &self,
        resource: usize,
        path: &str,
        parsed: ParsedDeclarationTexts,
        epoch: u64,
    ) -> Result<DeclarationResult, StateError> {
        let ParsedDeclarationTexts { record, initials } = parsed;
        let planned = self.planned_resource(resource, path)?;
        loop {
            if let Some(instance) = self.service_groups.find_instance(path).await? {
                return self.existing_instance(instance, &planned.key, resource);
            }
            let settings = self.service_groups.settings();
            let most = settings.instances;
            let service = || Arc::clone(self.service_groups.keys.service());
            let _room = self
                .service_groups
                .instances
                .reserve(most)
                .ok_or_else(|| StateError::TooManyResources { service: service(), most })?;
            let (batch, sizes) =
                self.declaration_batch(planned, path, record.text.clone(), initials.as_ref());
            let bytes = sizes.iter().map(|(_, size)| size).sum();
            let reserved = self.service_groups.sizes.reserve(settings.size, bytes);
            let _reserved =
                reserved.map_err(|refused| self.service_groups.state_full_error(refused, settings.size))?;
            match self.service_groups.shared.store.commit(batch).await {
                Ok(results) => {
                    // Runs that looked for the instance before its creation have cached its cells as missing.
                    self.service_groups.drop_missing_cells(path, &planned.key);
                    sizes.iter().for_each(|(key, size)| self.service_groups.sizes.set_size(key, *size));
                    let version = results.get(1).map_or(0, |result| result.version);
                    let registered_instance = self.service_groups.instances.register(
                        &self.service_groups,
                        path,
                        version,
                        record,
                        epoch,
                    );
                    return Ok(DeclarationResult::New(DynamicInstance {
                        service_groups: Arc::clone(&self.service_groups),
                        registered: registered_instance,
                        resource,
                    }));
                }
                // Another declaration was faster.
                Err(store::StoreError::Conflict { .. }) => self.service_groups.load_instance(path).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn existing_instance(
        &self,
        instance: Arc<RegisteredInstance>,
        site: &Arc<str>,
        resource: usize,
    ) -> Result<DeclarationResult, StateError> {
        if instance.site != *site {
            let (path, owner) = (Arc::clone(&instance.path), Arc::clone(&instance.site));
            return Err(StateError::PathTaken { path, owner, site: Arc::clone(site) });
        }
        Ok(DeclarationResult::Existing(DynamicInstance {
            service_groups: Arc::clone(&self.service_groups),
            registered: instance,
            resource,
        }))
    }

    /// Parses the texts of a declaration; long ones in the pool.
    async fn parse_declaration(
        &self,
        declaration: &ResourceDeclaration<'_>,
        site: &Arc<str>,
    ) -> Result<ParsedDeclarationTexts, StateError> {
        let (captures, initials) = (declaration.captures.clone(), declaration.initials.clone());
        let (site, ends) = (Arc::clone(site), self.service_groups.new_expiry());
        let length = captures.len() + initials.len();
        let parse = move || -> Result<ParsedDeclarationTexts, String> {
            let text = encode_record(&site, ends, &captures)?;
            let record =
                InstanceRecord::parse(text).map_err(|reason| format!("its record is invalid: {reason}"))?;
            let initials = (!initials.is_empty()).then(|| build_index(Bytes::copy_from_slice(&initials)));
            let initials = initials.transpose();
            let initials = initials.map_err(|error| format!("its initial values are not JSON ({error})"))?;
            Ok(ParsedDeclarationTexts { record, initials })
        };
        let parsed = if length <= MAX_LOCKED_TEXT {
            parse()
        } else {
            self.service_groups
                .shared
                .run_offloaded(QuotaKey::new(self.service_groups.keys.service()), parse)
                .await?
        };
        parsed.map_err(|reason| StateError::invalid_declaration(declaration.path, reason))
    }

    /// Returns the store's batch, and the size of each of its keys. The batch also removes all old data of
    /// the resource at the path.
    fn declaration_batch(
        &self,
        resource: &PlanResource,
        path: &str,
        record: Bytes,
        initials: Option<&JsonDocument>,
    ) -> (WriteBatch, KeySizes) {
        let keys = &self.service_groups.keys;
        let batch = WriteBatch::new().remove_all(keys.instance_prefix(path, &resource.key));
        let declared = keys.declaration_key(path);
        let size = instance_size(&declared, path, record.len());
        let mut sizes = vec![(Arc::clone(&declared), size)];
        let mut batch = batch.create(declared, record);
        let Some(initials) = initials else { return (batch, sizes) };
        for cell in resource.cells.iter().filter_map(|cell| self.plan.cells.get(*cell)) {
            if let Some(value) = initials.root().last_member(cell.name.as_bytes()) {
                let (key, value) = (keys.cell_key(path, &cell.key), value.slice());
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
    pub async fn remove_instance(&self, path: &str, locks: &HeldLocks, at: &str) -> Result<bool, StateError> {
        self.service_groups.remove_instance(path, locks, at).await
    }
}

impl DynamicInstance {
    /// The number by which workers refer to the instance.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.registered.id
    }

    /// The path of the instance.
    #[must_use]
    pub fn path(&self) -> &Arc<str> {
        &self.registered.path
    }

    /// The index of its resource in this program.
    #[must_use]
    pub fn resource(&self) -> usize {
        self.resource
    }

    /// Whether it has been removed since it was found, or is being removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.service_groups.is_being_removed(&self.registered.path)
            || self
                .service_groups
                .instances
                .find(&self.registered.path)
                .is_none_or(|instance| instance.id != self.registered.id)
    }

    /// The captured values, as JSON text.
    #[must_use]
    pub fn captures(&self) -> &Bytes {
        &self.registered.captures
    }

    /// Returns the frames that a worker must receive before a run at this instance.
    #[must_use]
    pub fn collect_frames(&self, worker: u32) -> Vec<PrecedingFrame> {
        self.service_groups.shared.workers.collect_frames(worker, |worker, frames| {
            if worker.instances.insert(self.registered.id) {
                frames.push(PrecedingFrame::Instance {
                    id: self.registered.id,
                    captures: self.registered.captures.clone(),
                });
            }
        })
    }
}
