//! What things are called in the store. A service's keys begin with its name, which has no `/`; a path has no line break.

use std::sync::Arc;

/// What a service's keys begin with.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    service: Arc<str>,
}

impl Keys {
    pub(crate) fn new(service: &str) -> Self {
        Self { service: service.into() }
    }

    pub(crate) fn service(&self) -> &Arc<str> {
        &self.service
    }

    /// All keys of the service.
    pub(crate) fn all(&self) -> Arc<str> {
        format!("{}/", self.service).into()
    }

    /// A cell of the service.
    pub(crate) fn shared_cell(&self, key: &str) -> Arc<str> {
        format!("{}/shared/{key}", self.service).into()
    }

    /// A cell of a resource's instance, or of a handler of it.
    pub(crate) fn cell(&self, path: &str, key: &str) -> Arc<str> {
        format!("{}/at/{path}\n{key}", self.service).into()
    }

    /// The cell's own key, of a key below [`Keys::all_instances`].
    pub(crate) fn own(cell: &str) -> &str {
        cell.split_once('\n').map_or("", |(_, own)| own)
    }

    /// All cells of an instance.
    pub(crate) fn instance(&self, path: &str) -> Arc<str> {
        self.cell(path, "")
    }

    /// All cells of all instances.
    pub(crate) fn all_instances(&self) -> Arc<str> {
        format!("{}/at/", self.service).into()
    }

    /// The declaration of a dynamic instance.
    pub(crate) fn declared(&self, path: &str) -> Arc<str> {
        format!("{}/declared/{path}", self.service).into()
    }

    /// The version below which no group begins.
    pub(crate) fn floor(&self) -> Arc<str> {
        format!("{}/floor", self.service).into()
    }

    /// The lease of the group, at a path or of the whole service, that has this cell.
    pub(crate) fn lease(&self, path: Option<&str>, key: &str) -> Arc<str> {
        path.map_or_else(|| self.shared_cell(key), |path| self.cell(path, key))
    }
}
