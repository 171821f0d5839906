//! A compiled S file: the JavaScript for the workers, and the metadata that the runtime needs. Pure data.
//!
//! Indices refer to the vectors of the same [`ScriptService`]. The numbers of handlers are used in the
//! worker's frames.

use diagnostics::{Diagnostic, TextPosition};
use serde::Serialize;

use crate::method::HandlerMethod;
use inline_plan::InlinePlan;
use source_map::SourceMap;

pub mod inline_plan;
pub mod source_map;

/// A compiled S file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ScriptProgram {
    /// The file name passed to the compiler, such as `shop.sjs`.
    pub name: String,
    /// The emitted JavaScript.
    pub code: String,
    /// The source map of the emitted JavaScript.
    #[serde(skip)]
    pub map: SourceMap,
    /// The modules that it imports, as written in the source.
    pub imports: Vec<String>,
    /// The services, in source order.
    pub services: Vec<ScriptService>,
    /// Warnings and notes.
    #[serde(skip)]
    pub warnings: Vec<Diagnostic>,
    /// The dependence graph of each `par`.
    pub graphs: Vec<DependenceGraph>,
    /// The numbered sites: each resource call, `respond`, nested `res` and declaration of state. The emitted
    /// code numbers them from 1.
    pub sites: Vec<NumberedSite>,
}

/// An S service.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ScriptService {
    /// Its name.
    pub name: String,
    /// The position of its declaration.
    pub position: TextPosition,
    /// Its state cells.
    pub cells: Vec<ScriptCell>,
    /// Cells that are written together.
    pub groups: Vec<AccessGroup>,
    /// Its resources, nested ones too.
    pub resources: Vec<ScriptResource>,
    /// The handlers of all resources.
    pub handlers: Vec<ResourceHandler>,
}

/// A piece of state.
#[derive(Clone, Debug, Serialize)]
pub struct ScriptCell {
    /// The name in the source.
    pub name: String,
    /// Its name in the views of handlers, unique in the service: `id`, and `id$2` for the next of that name.
    pub view: String,
    /// The stable key of the cell across edits of the file: `shared`, `/data urls`, `/search POST id`.
    pub key: String,
    /// The handlers that have access.
    pub scope: CellScope,
    /// The index of its group.
    pub group: usize,
    /// Whether it has an initialiser that runs at creation. The cells of a handler are initialised by the
    /// declaration itself.
    pub eager: bool,
    /// The position of its declaration.
    pub position: TextPosition,
}

/// The scope of a cell. A cell of a resource or handler exists once for each instance (concrete URL) of the
/// resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CellScope {
    /// All handlers of the service.
    Service,
    /// The handlers of this resource.
    Resource(usize),
    /// This handler.
    Handler(usize),
}

/// Cells that are accessed together by some handler, and written by one run at a time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AccessGroup {
    /// Whether it has a service-level cell. There is one shared group for the service, and other groups exist
    /// for each instance.
    pub shared: bool,
    /// The cells.
    pub cells: Vec<usize>,
}

/// A resource.
#[derive(Clone, Debug, Serialize)]
pub struct ScriptResource {
    /// The stable key of its declaration: `/data`, `/start POST > /red/`.
    pub key: String,
    /// Its path.
    pub path: ResourcePath,
    /// The handler that declares it. `None` at top level, and if the declaration was hoisted.
    pub parent: Option<usize>,
    /// Variables that its handlers capture from the place of its declaration.
    pub captures: Vec<CapturedVariable>,
    /// The handler of each method.
    pub methods: Vec<(HandlerMethod, usize)>,
    /// Its cells.
    pub cells: Vec<usize>,
    /// The position of its declaration.
    pub position: TextPosition,
}

/// A resource's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ResourcePath {
    /// A path known at compile time.
    Literal(String),
    /// A path computed when the declaration runs.
    Computed,
}

/// A variable that is captured at a nested resource's declaration.
#[derive(Clone, Debug, Serialize)]
pub struct CapturedVariable {
    /// The variable's name.
    pub name: String,
    /// The kind of value.
    pub kind: CaptureKind,
}

/// The kind of a captured variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CaptureKind {
    /// A value, copied.
    Value,
    /// An external resource, by its template.
    Resource,
}

/// A handler of one method of a resource.
#[derive(Clone, Debug, Serialize)]
pub struct ResourceHandler {
    /// The method.
    pub method: HandlerMethod,
    /// The index of its resource.
    pub resource: usize,
    /// The concurrency class.
    pub class: ConcurrencyClass,
    /// The group of the cells that it accesses.
    pub group: Option<usize>,
    /// The cells that it accesses, in the order of its slots.
    pub cells: Vec<usize>,
    /// The point at which its writes are committed.
    pub commit: CommitPoint,
    /// The parts of the request that it can read.
    pub reads: RequestReads,
    /// The request headers that it can read.
    pub header_reads: HeaderReads,
    /// Whether it makes resource calls.
    pub calls: bool,
    /// A plan to run the handler without its code, if it only composes responses.
    pub recipe: Option<InlinePlan>,
    /// The position of its declaration.
    pub position: TextPosition,
}

/// The concurrency class of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ConcurrencyClass {
    /// Any number of concurrent runs, in any worker.
    Stateless,
    /// Any number of concurrent runs, in any worker, each on the last committed version.
    Reader,
    /// One run at a time within its group.
    Writer,
}

/// The point at which a writer's changes are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CommitPoint {
    /// At the end of the handler.
    End,
    /// After this position, beyond which the handler accesses no cells.
    Early(TextPosition),
}

/// The parts of a request that a handler's code can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RequestReads {
    /// The parameters.
    pub query: bool,
    /// `$headers`.
    pub headers: bool,
    /// `$body`.
    pub body: bool,
}

/// The request headers that a handler's code can read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum HeaderReads {
    /// Any header.
    #[default]
    Any,
    /// The headers of these names. The list can be empty.
    Named(Vec<String>),
}

/// A numbered site.
#[derive(Clone, Debug, Serialize)]
pub struct NumberedSite {
    /// The position in the S file.
    pub position: TextPosition,
    /// A short description of the code: `g.get`.
    pub text: String,
}

/// The dependence graph of a `par`.
#[derive(Clone, Debug, Serialize)]
pub struct DependenceGraph {
    /// The position of the `par`.
    pub position: TextPosition,
    /// The units, each of which runs as a whole.
    pub nodes: Vec<DependenceNode>,
    /// The dependencies as source, target and reason: a variable, or `order`.
    pub edges: Vec<(usize, usize, String)>,
}

/// A unit of a `par`.
#[derive(Clone, Debug, Serialize)]
pub struct DependenceNode {
    /// The code of the unit, shortened.
    pub label: String,
    /// The position of its first step.
    pub position: TextPosition,
    /// The number of resource calls in it.
    pub io: usize,
    /// Whether it waits for all units before it.
    pub barrier: bool,
}

impl Default for RequestReads {
    /// Returns all parts, the safe assumption for handlers without an analysis.
    fn default() -> Self {
        Self { query: true, headers: true, body: true }
    }
}
