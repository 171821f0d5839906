//! The keys of the store. A service's keys begin with its name, which contains no `/`; a path contains no
//! line break.

use std::sync::Arc;

/// The keys of a service.
#[derive(Clone, Debug)]
pub(crate) struct StoreKeys {
    service: Arc<str>,
}

impl StoreKeys {
    pub(crate) fn new(service: &str) -> Self {
        Self { service: service.into() }
    }

    pub(crate) fn service(&self) -> &Arc<str> {
        &self.service
    }

    /// The prefix of all keys of the service.
    pub(crate) fn service_prefix(&self) -> Arc<str> {
        format!("{}/", self.service).into()
    }

    /// The key of a cell of the service.
    pub(crate) fn shared_cell_key(&self, key: &str) -> Arc<str> {
        format!("{}/shared/{key}", self.service).into()
    }

    /// The key of a cell of a resource's instance, or of one of its handlers.
    pub(crate) fn cell_key(&self, path: &str, key: &str) -> Arc<str> {
        format!("{}/at/{path}\n{key}", self.service).into()
    }

    /// Returns the cell's own key, given a key below [`StoreKeys::instances_prefix`].
    pub(crate) fn local_key(cell: &str) -> &str {
        cell.split_once('\n').map_or("", |(_, own)| own)
    }

    /// The prefix of all cells of an instance of this declaration. Cells of other resources at the path, such
    /// as a literal one of an earlier or later program, have other keys.
    pub(crate) fn instance_prefix(&self, path: &str, site: &str) -> Arc<str> {
        self.cell_key(path, &format!("{site} "))
    }

    /// Whether a cell belongs to a declaration or to one of its handlers, given the cell's own key.
    pub(crate) fn belongs_to(own: &str, site: &str) -> bool {
        own.strip_prefix(site).is_some_and(|rest| rest.starts_with(' '))
    }

    /// The prefix of all cells of all instances.
    pub(crate) fn instances_prefix(&self) -> Arc<str> {
        format!("{}/at/", self.service).into()
    }

    /// The key of a dynamic instance's declaration.
    pub(crate) fn declaration_key(&self, path: &str) -> Arc<str> {
        format!("{}/declared/{path}", self.service).into()
    }

    /// The key of the minimum version at which a group begins.
    pub(crate) fn floor_key(&self) -> Arc<str> {
        format!("{}/floor", self.service).into()
    }

    /// The lease of the group with this cell, at a path or of the whole service.
    pub(crate) fn lease_name(&self, path: Option<&str>, key: &str) -> Arc<str> {
        path.map_or_else(|| self.shared_cell_key(key), |path| self.cell_key(path, key))
    }
}
