//! What a compiled S file is: the JavaScript for the workers, and all that the runtime has to know of it without
//! reading it. Pure data.
//!
//! Indices are those of the vectors of the same [`Service`]; the numbers of handlers stand in the worker's frames.

use serde::Serialize;

use crate::diagnostic::Diagnostic;
use crate::line::Position;
use crate::map::SourceMap;
use crate::method::Method;
use crate::recipe::Recipe;

/// A compiled S file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Program {
    /// The file's name as it was given: `shop.sjs`.
    pub name: String,
    /// The emitted JavaScript.
    pub code: String,
    /// Where its places come from.
    #[serde(skip)]
    pub map: SourceMap,
    /// The modules that it imports, as it names them.
    pub imports: Vec<String>,
    /// In the order of the file.
    pub services: Vec<Service>,
    /// What may not be what its author means.
    #[serde(skip)]
    pub warnings: Vec<Diagnostic>,
    /// The dependence graph of each `par`.
    pub graphs: Vec<Graph>,
    /// Numbered places: each resource call, `respond`, nested `res`, declaration of state. The emitted code counts from 1.
    pub sites: Vec<Site>,
}

/// An S service.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Where it is declared.
    pub position: Position,
    /// Its state.
    pub cells: Vec<Cell>,
    /// What is written together.
    pub groups: Vec<Group>,
    /// Its resources, nested ones too.
    pub resources: Vec<Resource>,
    /// The handlers of all resources.
    pub handlers: Vec<Handler>,
}

/// A piece of state.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// As in the source.
    pub name: String,
    /// Its name in the views of handlers, unique in the service: `id`, and `id$2` for the next of that name.
    pub view: String,
    /// What it is called across edits of the file: `shared`, `/data urls`, `/search POST id`.
    pub key: String,
    /// Who sees it.
    pub scope: Scope,
    /// What it is written together with.
    pub group: usize,
    /// Whether it has an initialiser that runs at creation. A handler's are initialised by the declaration itself.
    pub eager: bool,
    /// Where it is declared.
    pub position: Position,
}

/// Who sees a cell. Those of a resource or handler exist once for each instance (concrete URL) of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Scope {
    /// All handlers of the service.
    Service,
    /// The handlers of this resource.
    Resource(usize),
    /// This handler.
    Handler(usize),
}

/// Cells that some handler touches together: written by one run at a time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Group {
    /// Whether it has a service-level cell: then there is one for the service, otherwise one for each instance.
    pub shared: bool,
    /// The cells.
    pub cells: Vec<usize>,
}

/// A resource.
#[derive(Clone, Debug, Serialize)]
pub struct Resource {
    /// Its declaration's stable identity: `/data`, `/start POST > /red/`.
    pub key: String,
    /// Its path.
    pub path: Path,
    /// The handler that declares it; `None` at top level, and where it was hoisted.
    pub parent: Option<usize>,
    /// What its handlers take along from where it is declared.
    pub captures: Vec<Capture>,
    /// The handler of each method.
    pub methods: Vec<(Method, usize)>,
    /// Its own cells.
    pub cells: Vec<usize>,
    /// Where it is declared.
    pub position: Position,
}

/// A resource's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Path {
    /// Known before anything runs.
    Literal(String),
    /// Known when the declaration is reached.
    Computed,
}

/// Something that is captured at a nested resource's declaration.
#[derive(Clone, Debug, Serialize)]
pub struct Capture {
    /// The variable.
    pub name: String,
    /// What it is.
    pub kind: CaptureKind,
}

/// What is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CaptureKind {
    /// A value, copied.
    Value,
    /// An external resource, by its template.
    Resource,
}

/// What answers a method of a resource.
#[derive(Clone, Debug, Serialize)]
pub struct Handler {
    /// The method.
    pub method: Method,
    /// Of which resource.
    pub resource: usize,
    /// How it may run beside others.
    pub class: Class,
    /// Whose cells it touches.
    pub group: Option<usize>,
    /// The cells that it touches, in the order of its slots.
    pub cells: Vec<usize>,
    /// When its writes are committed.
    pub commit: Commit,
    /// What of the request it can look at.
    pub reads: Reads,
    /// Which of the request's headers it can look at.
    pub header_reads: HeaderReads,
    /// Whether it makes resource calls.
    pub calls: bool,
    /// How to do it without its code, where it only puts answers together.
    pub recipe: Option<Recipe>,
    /// Where it is.
    pub position: Position,
}

/// How a handler may run beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Class {
    /// Anywhere, any number at once.
    Stateless,
    /// Anywhere, any number at once, each on the last committed version.
    Reader,
    /// One at a time within its group.
    Writer,
}

/// When a writer's changes are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Commit {
    /// When it has ended.
    End,
    /// After this place, from where on it touches no cell.
    Early(Position),
}

/// What of a request a handler's code can look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reads {
    /// The parameters.
    pub query: bool,
    /// `$headers`.
    pub headers: bool,
    /// `$body`.
    pub body: bool,
}

/// Which headers of a request a handler's code can look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum HeaderReads {
    /// All that there are.
    #[default]
    Any,
    /// Those with these names, which may be none at all.
    Named(Vec<String>),
}

/// A numbered place.
#[derive(Clone, Debug, Serialize)]
pub struct Site {
    /// Where.
    pub position: Position,
    /// What stands there: `g.get`.
    pub text: String,
}

/// What waits for what in a `par`.
#[derive(Clone, Debug, Serialize)]
pub struct Graph {
    /// Where the `par` is.
    pub position: Position,
    /// What runs as one.
    pub nodes: Vec<Node>,
    /// From, to, and why: the variable, or `respond`.
    pub edges: Vec<(usize, usize, String)>,
}

/// A unit of a `par`.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// What stands there.
    pub label: String,
    /// Where.
    pub position: Position,
    /// Resource calls in it.
    pub io: usize,
    /// Whether it waits for all before it.
    pub barrier: bool,
}

impl Default for Reads {
    /// Everything, where nobody has looked.
    fn default() -> Self {
        Self { query: true, headers: true, body: true }
    }
}
