//! What state has to know of a compiled service.

use std::sync::Arc;

pub use script::program::Scope;
use script::program::Service;

/// The state of a program's service. Indices are those of these vectors.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The service's name: with it all its keys in the store begin.
    pub service: String,
    /// Its cells.
    pub cells: Vec<PlanCell>,
    /// Indices of cells that are written together.
    pub groups: Vec<Vec<usize>>,
    /// Its resources.
    pub resources: Vec<PlanResource>,
    /// Its handlers.
    pub handlers: Vec<PlanHandler>,
}

/// A cell.
#[derive(Clone, Debug)]
pub struct PlanCell {
    /// What workers call it.
    pub name: String,
    /// What it is called across edits of the file.
    pub key: Arc<str>,
    /// Who sees it: those of a resource or handler exist once for each path.
    pub scope: Scope,
    /// Whether it is initialised before it is first used.
    pub eager: bool,
}

/// A resource.
#[derive(Clone, Debug)]
pub struct PlanResource {
    /// Its declaration's stable identity.
    pub key: Arc<str>,
    /// Whether its instances are made at run time.
    pub is_dynamic: bool,
    /// Its own cells.
    pub cells: Vec<usize>,
}

/// A handler.
#[derive(Clone, Debug)]
pub struct PlanHandler {
    /// Of which resource.
    pub resource: usize,
    /// Whose cells it touches.
    pub group: Option<usize>,
    /// The cells that it touches, in the order of its slots.
    pub cells: Vec<usize>,
}

impl From<&Service> for Plan {
    fn from(service: &Service) -> Self {
        Self {
            service: service.name.clone(),
            cells: service
                .cells
                .iter()
                .map(|cell| PlanCell {
                    name: cell.view.clone(),
                    key: cell.key.as_str().into(),
                    scope: cell.scope,
                    eager: cell.eager,
                })
                .collect(),
            groups: service.groups.iter().map(|group| group.cells.clone()).collect(),
            resources: service
                .resources
                .iter()
                .map(|resource| PlanResource {
                    key: resource.key.as_str().into(),
                    is_dynamic: resource.parent.is_some(),
                    cells: resource.cells.clone(),
                })
                .collect(),
            handlers: service
                .handlers
                .iter()
                .map(|handler| PlanHandler {
                    resource: handler.resource,
                    group: handler.group,
                    cells: handler.cells.clone(),
                })
                .collect(),
        }
    }
}
