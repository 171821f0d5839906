//! The GraphQL routes of a config. The files of their schemas are read when it is activated, like the config
//! itself.
//!
//! A mistake in one of them is a mistake of the config, reported at its position in that file: a reload then
//! leaves the active config in place. Schemas that have to be fetched from services are fetched in the
//! background, so that a service that is down doesn't block others.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use diagnostics::{Diagnostic, DiagnosticLocation, Diagnostics, SourceDocument};
use graphql::{
    DocumentFile, GraphqlConfig, GraphqlRoute, GraphqlRouteContext, RemoteSchemas, RemoteService,
    RemoteServices, SchemaDeclarations,
};
use json::pointer::append_step;
use offload::OffloadPool;
use services::ServiceSet;

use super::{openapi_documents, start_offload_pool};
use crate::config::{
    FieldPositions, GatewayConfig, companion_files, matching_files, read_file, read_long_file,
};

/// The inputs of GraphQL routes besides the config.
pub(crate) struct GraphqlInputs {
    remotes: RemoteServices,
    routes: Vec<GraphqlRouteFiles>,
}

/// The objects that all GraphQL routes of a gateway share.
#[derive(Clone, Copy)]
pub(crate) struct SharedGraphqlState<'a> {
    pub(crate) source: &'a FieldPositions,
    pub(crate) services: &'a ServiceSet,
    pub(crate) documents: &'a graphql::ServiceDocuments,
    pub(crate) schemas: &'a Arc<RemoteSchemas>,
    pub(crate) offload: &'a OffloadPool,
}

/// The files of a route.
struct GraphqlRouteFiles {
    /// The index of the route.
    route: usize,
    links: Option<(SchemaDeclarations, FieldPositions)>,
    supergraph: Option<(Box<str>, Arc<str>)>,
    document_files: Vec<DocumentFile>,
}

/// A GraphQL route of a config, built for inspection without a gateway.
pub struct InspectableGraphqlRoute {
    /// The route's path.
    pub path: String,
    /// The handler.
    pub graphql: GraphqlRoute,
    /// The route's index, and the files of all routes.
    route: usize,
    inputs: Arc<GraphqlInputs>,
}

/// Reads the files that a config names for GraphQL.
///
/// # Errors
/// A mistake for each file that can't be read, and all mistakes within the others.
pub(crate) fn read_inputs(config: &GatewayConfig) -> Result<GraphqlInputs, Vec<Diagnostic>> {
    let mut diagnostics = Diagnostics::default();
    let remotes = read_remote_services(config, &mut diagnostics);
    let mut routes = Vec::new();
    for (route, graphql) in config.graphql_routes() {
        match read_route_files(config, route, graphql) {
            Ok(files) => routes.push(files),
            Err(mistakes) => diagnostics.extend_unique(mistakes),
        }
    }
    diagnostics.into_result(GraphqlInputs { remotes, routes })
}

/// Builds the GraphQL routes of a config without a gateway around them. Services aren't called: a route whose
/// schema has to be fetched has none yet.
///
/// # Errors
/// All mistakes in the routes, the services and their documents.
pub fn build_inspectable(config: &GatewayConfig) -> Result<Vec<InspectableGraphqlRoute>, Vec<Diagnostic>> {
    let source = &config.source;
    let services = ServiceSet::load(&config.services, source.folder());
    let services = services.map_err(|problems| source.resolve("/services", problems))?;
    let (documents, read, schemas) =
        (openapi_documents::read_documents(config)?, Arc::new(read_inputs(config)?), Arc::default());
    let (documents, schemas, offload) = (&documents, &schemas, &start_offload_pool(config)?);
    let shared = SharedGraphqlState { source, services: &services, documents, schemas, offload };
    let (mut all, mut diagnostics) = (Vec::new(), Diagnostics::default());
    for (route, graphql) in config.graphql_routes() {
        match read.build_route(route, graphql, &shared) {
            Ok(graphql) => {
                let path = config.routes.get(route).map(|route| route.path.clone()).unwrap_or_default();
                all.push(InspectableGraphqlRoute { path, graphql, route, inputs: Arc::clone(&read) });
            }
            Err(mistakes) => diagnostics.extend_unique(mistakes),
        }
    }
    diagnostics.into_result(all)
}

/// Like [`build_inspectable`], and fetches schemas from services.
///
/// # Errors
/// The mistakes of [`build_inspectable`], and a schema that can't be fetched.
pub async fn fetch_inspectable(
    config: &GatewayConfig,
) -> Result<Vec<InspectableGraphqlRoute>, Vec<Diagnostic>> {
    let (all, mut diagnostics) = (build_inspectable(config)?, Diagnostics::default());
    for ready in &all {
        if let Err(unsettled) = ready.graphql.fetch_schemas().await {
            diagnostics.extend_unique(ready.inputs.settle_mistakes(&config.source, ready.route, unsettled));
        }
    }
    diagnostics.into_result(all)
}

/// Logs the schemas that omit parts of their services' responses.
pub(crate) fn log_findings(path: &str, graphql: &GraphqlRoute) {
    let lacks = graphql.warnings().len();
    if lacks > 0 {
        tracing::warn!(
            route = path,
            lacks,
            "the schema omits parts of the services' responses; `orfa check` lists them"
        );
    }
}

impl GraphqlInputs {
    /// Builds the handler of a route.
    ///
    /// # Errors
    /// All mistakes in its schema.
    pub(crate) fn build_route(
        &self,
        route: usize,
        config: &GraphqlConfig,
        shared: &SharedGraphqlState<'_>,
    ) -> Result<GraphqlRoute, Vec<Diagnostic>> {
        let SharedGraphqlState { source, services, documents, schemas, offload } = *shared;
        let files = self.routes.iter().find(|files| files.route == route);
        let context = GraphqlRouteContext {
            services,
            documents,
            remotes: &self.remotes,
            links: files.and_then(|files| files.links.as_ref()).map(|(links, _)| links.clone()),
            supergraph: files.and_then(|files| files.supergraph.clone()),
            document_files: files.map(|files| files.document_files.clone()).unwrap_or_default(),
            schemas,
            offload,
        };
        GraphqlRoute::new(config, context).map_err(|diagnostics| self.resolve(source, route, diagnostics))
    }

    /// Resolves the locations of diagnostics about a route's schema to positions in the files.
    fn resolve(
        &self,
        source: &FieldPositions,
        route: usize,
        diagnostics: Vec<Diagnostic>,
    ) -> Vec<Diagnostic> {
        let files = self.routes.iter().find(|files| files.route == route);
        let links = files.and_then(|files| files.links.as_ref()).map(|(_, links)| links);
        let base = format!("/routes/{route}/graphql");
        let resolve = |diagnostic: Diagnostic| match (&diagnostic.location, links) {
            (DiagnosticLocation::Pointer { document: SourceDocument::Links, pointer }, Some(links)) => {
                let location = SourceDocument::Checked.at(pointer);
                links.resolve("", [Diagnostic { location, ..diagnostic }])
            }
            (DiagnosticLocation::Pointer { document: SourceDocument::Links, pointer }, None) => {
                let message = format!("{pointer}: {}", diagnostic.message);
                source.resolve(&base, [Diagnostic { location: "".into(), message, ..diagnostic }])
            }
            _ => source.resolve(&base, [diagnostic]),
        };
        let mut found: Vec<Diagnostic> = diagnostics.into_iter().flat_map(resolve).collect();
        found.sort_by_cached_key(|it| (it.location.file().to_owned(), it.location.line_and_column()));
        found
    }

    fn settle_mistakes(
        &self,
        source: &FieldPositions,
        route: usize,
        unsettled: graphql::SchemaUnavailable,
    ) -> Vec<Diagnostic> {
        match unsettled {
            graphql::SchemaUnavailable::Mistakes(wrong) => self.resolve(source, route, wrong),
            graphql::SchemaUnavailable::Service(name, why) => {
                let pointer = format!("{}/graphql", append_step("/services", &name));
                let message = format!("the schema of the service `{name}` can't be fetched: {why}");
                let hint = "start it, enable introspection, or set the file of its schema under `schema`";
                vec![source.mistake(&pointer, message, Some(hint.to_owned()))]
            }
        }
    }
}

/// The services that provide GraphQL, with the text of their schemas.
fn read_remote_services(config: &GatewayConfig, diagnostics: &mut Diagnostics) -> RemoteServices {
    let mut remotes = BTreeMap::new();
    for (name, service) in &config.services {
        let Some(graphql) = &service.graphql else { continue };
        let schema = graphql.schema.as_ref().and_then(|schema| {
            let pointer = format!("{}/graphql/schema", append_step("/services", name));
            let hint = "name a file in GraphQL's schema definition language, relative to the config; or leave it out";
            let text = read_text_file(config, schema.as_ref(), &pointer, "schema", hint);
            text.map_err(|mistakes| diagnostics.extend(mistakes)).ok()
        });
        remotes.insert(name.clone(), RemoteService { config: graphql.clone(), schema });
    }
    remotes
}

fn read_route_files(
    config: &GatewayConfig,
    route: usize,
    graphql: &GraphqlConfig,
) -> Result<GraphqlRouteFiles, Vec<Diagnostic>> {
    let folder = config.source.folder();
    let pointer = format!("/routes/{route}/graphql");
    let links = graphql.links.as_ref().map(|file| {
        let whole = folder.join(file);
        let text = read_file(&whole).map_err(|error| {
            let message = format!("the links {} can't be read: {error}", file.display());
            let hint = "name a file in YAML, relative to the config".to_owned();
            vec![config.source.mistake(&format!("{pointer}/links"), message, Some(hint))]
        })?;
        companion_files::read_companion(&text, &whole, &[])
    });
    let supergraph = graphql.supergraph.as_ref().map(|file| {
        let hint = "name a supergraph, relative to the config";
        let text = read_text_file(config, file, &format!("{pointer}/supergraph"), "supergraph", hint);
        Ok::<_, Vec<Diagnostic>>((file.display().to_string().into(), text?))
    });
    let files = graphql.documents().map(|pattern| {
        read_document_files(folder, pattern).map_err(|message| {
            let hint = "name files by a pattern, relative to the config: `./documents/*.graphql`".to_owned();
            vec![config.source.mistake(&format!("{pointer}/documents"), message, Some(hint))]
        })
    });
    Ok(GraphqlRouteFiles {
        route,
        links: links.transpose()?,
        supergraph: supergraph.transpose()?,
        document_files: files.transpose()?.unwrap_or_default(),
    })
}

fn read_text_file(
    config: &GatewayConfig,
    file: &Path,
    pointer: &str,
    what: &str,
    hint: &str,
) -> Result<Arc<str>, Vec<Diagnostic>> {
    let text = read_long_file(&config.source.folder().join(file));
    text.map(Arc::from).map_err(|error| {
        let message = format!("the {what} {} can't be read: {error}", file.display());
        vec![config.source.mistake(pointer, message, Some(hint.to_owned()))]
    })
}

/// The operator's documents. Each has a unique name.
fn read_document_files(folder: &Path, pattern: &str) -> Result<Vec<DocumentFile>, String> {
    let mut files: Vec<DocumentFile> = Vec::new();
    for file in matching_files(folder, pattern)? {
        let shown = file.strip_prefix(folder).unwrap_or(&file).display().to_string();
        let text =
            read_file(&file).map_err(|error| format!("the document {shown} can't be read: {error}"))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        if let Some(other) = files.iter().find(|document_file| *document_file.name == *name) {
            return Err(format!("the documents {} and {shown} have the same name", other.file));
        }
        files.push(DocumentFile { file: shown.into(), name: name.into(), text: text.into() });
    }
    Ok(files)
}
