//! The properties of a compiled service that the state depends on.

use std::sync::Arc;

pub use script::program::CellScope;
use script::program::{ResourcePath, ScriptService};

/// The state of a program's service. All indices refer to these vectors.
#[derive(Clone, Debug, Default)]
pub struct StatePlan {
    /// The service's name, which is the prefix of all its keys in the store.
    pub service: String,
    /// The cells.
    pub cells: Vec<PlanCell>,
    /// The indices of cells that are written together.
    pub groups: Vec<Vec<usize>>,
    /// The resources.
    pub resources: Vec<PlanResource>,
    /// The handlers.
    pub handlers: Vec<PlanHandler>,
}

/// A cell.
#[derive(Clone, Debug)]
pub struct PlanCell {
    /// Its name in workers.
    pub name: String,
    /// Its key, which is stable across edits of the file.
    pub key: Arc<str>,
    /// Its scope: cells of a resource or handler exist once for each path.
    pub scope: CellScope,
    /// Whether it is initialised before its first use.
    pub eager: bool,
}

/// A resource.
#[derive(Clone, Debug)]
pub struct PlanResource {
    /// The stable key of its declaration.
    pub key: Arc<str>,
    /// Its path, if it is literal.
    pub path: Option<Arc<str>>,
    /// Whether its instances are created at run time.
    pub is_dynamic: bool,
    /// The indices of its own cells.
    pub cells: Vec<usize>,
}

/// A handler.
#[derive(Clone, Debug)]
pub struct PlanHandler {
    /// The index of its resource.
    pub resource: usize,
    /// The index of the group of its cells.
    pub group: Option<usize>,
    /// The indices of the cells that it uses, in the order of its slots.
    pub cells: Vec<usize>,
}

impl From<&ScriptService> for StatePlan {
    fn from(service: &ScriptService) -> Self {
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
                    path: match &resource.path {
                        ResourcePath::Literal(path) => Some(path.as_str().into()),
                        ResourcePath::Computed => None,
                    },
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
