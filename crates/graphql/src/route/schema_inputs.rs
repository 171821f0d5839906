//! The inputs of a route's schema, and the schema built from them once all of them are available.

use std::collections::BTreeMap;
use std::sync::Arc;

use diagnostics::{Diagnostic, DiagnosticLocation, Diagnostics};
use services::{GraphqlServiceConfig, ServiceSet};

use super::remote_schemas::{IntrospectedService, RemoteSchemas};
use crate::compose::{ServiceSchema, compose, read_supergraph};
use crate::config::GraphqlLimits;
use crate::plan::QueryPlanner;
use crate::schema::diagnostic::SchemaErrorKind;
use crate::schema::{self, SchemaDeclarations, SchemaDescription, SchemaSource};
use crate::serve::DocumentFile;
use crate::subgraph::{Subgraph, SubgraphBindings, SubgraphProtocol};

/// The OpenAPI documents of the services, by service name.
pub type ServiceDocuments = BTreeMap<String, Arc<openapi::OpenApiDocument>>;

/// A GraphQL service: its configuration, and the text of its schema if the configuration names one.
#[derive(Clone, Debug)]
pub struct RemoteService {
    /// The service's configuration.
    pub config: GraphqlServiceConfig,
    /// The text of its schema.
    pub schema: Option<Arc<str>>,
}

/// The GraphQL services, by name.
pub type RemoteServices = BTreeMap<String, RemoteService>;

/// The inputs of a schema.
pub(crate) struct SchemaInputs {
    pub(crate) types_origin: TypesOrigin,
    pub(crate) links: SchemaDeclarations,
    pub(crate) document_files: Vec<DocumentFile>,
    pub(crate) limits: GraphqlLimits,
    /// Whether the schema includes the services' mutations.
    pub(crate) mutations: bool,
}

/// The origin of the types.
pub(crate) enum TypesOrigin {
    /// These services, in this order.
    Services(Vec<(Box<str>, ServiceTypesOrigin)>),
    /// A supergraph that was composed elsewhere: the file's name, its text, and the services that it refers
    /// to.
    Supergraph(Box<str>, Arc<str>, RemoteServices),
}

/// The origin of a service's types.
pub(crate) enum ServiceTypesOrigin {
    OpenApi(Arc<openapi::OpenApiDocument>),
    Sdl(IntrospectedService, Arc<str>),
    Introspected(IntrospectedService),
}

/// A schema that is ready to answer requests.
pub(crate) struct ReadySchema {
    pub(crate) planner: QueryPlanner,
    /// The parts that could not be mapped.
    pub(crate) warnings: Vec<Diagnostic>,
}

impl SchemaInputs {
    /// Returns the names of the services that the route calls.
    pub(crate) fn services(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match &self.types_origin {
            TypesOrigin::Services(services) => Box::new(services.iter().map(|(name, _)| &**name)),
            TypesOrigin::Supergraph(_, _, remotes) => Box::new(remotes.keys().map(String::as_str)),
        }
    }

    /// Returns the services whose schemas have to be fetched by introspection.
    pub(crate) fn introspected_services(&self) -> impl Iterator<Item = &IntrospectedService> {
        let services: &[_] = match &self.types_origin {
            TypesOrigin::Services(services) => services,
            TypesOrigin::Supergraph(..) => &[],
        };
        services.iter().filter_map(|(_, origin)| match origin {
            ServiceTypesOrigin::Introspected(remote) => Some(remote),
            _ => None,
        })
    }

    /// Builds the schema. Returns `None` while the schema of a service is missing.
    ///
    /// # Errors
    /// All mistakes in the schema.
    pub(crate) fn build_schema(
        &self,
        schemas: &RemoteSchemas,
    ) -> Result<Option<ReadySchema>, Vec<Diagnostic>> {
        let (supergraph, subgraphs, findings) = match &self.types_origin {
            TypesOrigin::Supergraph(file, text, remotes) => {
                (text.to_string(), read_subgraphs(file, text, remotes)?, Vec::new())
            }
            TypesOrigin::Services(services) => {
                let asked: Vec<Option<Arc<str>>> = services
                    .iter()
                    .map(|(_, origin)| match origin {
                        ServiceTypesOrigin::Introspected(remote) => schemas.get(remote),
                        _ => None,
                    })
                    .collect();
                let sources = services.iter().zip(&asked).map(|((name, origin), asked)| {
                    Some(SchemaSource {
                        name: name.as_ref().into(),
                        description: origin.schema_description(asked.as_deref())?,
                    })
                });
                let Some(sources) = sources.collect::<Option<Vec<SchemaSource<'_>>>>() else {
                    return Ok(None);
                };
                let (subgraphs, findings) = schema::build_subgraphs(&sources, &self.links)?;
                (compose_subgraphs(&subgraphs)?, subgraphs, findings)
            }
        };
        let planner = QueryPlanner::new(&supergraph, subgraphs, &self.limits, self.mutations)
            .map_err(|why| self.planner_rejection(why))?;
        let ready = ReadySchema { planner, warnings: findings };
        ready.check_documents(&self.document_files)?;
        Ok(Some(ready))
    }

    /// Reports a supergraph that the planner rejects. A supergraph composed elsewhere may be of an
    /// unsupported kind; one composed here should never be rejected.
    fn planner_rejection(&self, why: String) -> Vec<Diagnostic> {
        let mut mistakes = Diagnostics::default();
        let at = match &self.types_origin {
            TypesOrigin::Supergraph(file, ..) => DiagnosticLocation::in_file(&**file, 0, 0),
            TypesOrigin::Services(_) => "/services".into(),
        };
        mistakes.add(SchemaErrorKind::Supergraph, at, format!("the planner rejects it: {why}"), "");
        mistakes.into_vec()
    }
}

/// Composes the services' schemas into one supergraph.
fn compose_subgraphs(subgraphs: &[Subgraph]) -> Result<String, Vec<Diagnostic>> {
    let parts: Vec<ServiceSchema<'_>> =
        subgraphs.iter().map(|part| ServiceSchema { name: &part.name, sdl: &part.sdl }).collect();
    let supergraph = compose(&parts).map_err(|errors| locate_errors(errors, &"/services".into()))?;
    Ok(supergraph.sdl)
}

impl ServiceTypesOrigin {
    fn schema_description<'a>(&'a self, asked: Option<&'a str>) -> Option<SchemaDescription<'a>> {
        let graphql = |remote: &'a IntrospectedService, text| SchemaDescription::Graphql {
            path: (&*remote.path).into(),
            text,
            is_federated: remote.is_federated,
        };
        match self {
            Self::OpenApi(document) => Some(SchemaDescription::OpenApi(document)),
            Self::Sdl(remote, text) => Some(graphql(remote, text)),
            Self::Introspected(remote) => Some(graphql(remote, asked?)),
        }
    }
}

impl ReadySchema {
    /// Checks that each of the operator's documents can be planned.
    fn check_documents(&self, files: &[DocumentFile]) -> Result<(), Vec<Diagnostic>> {
        let mut mistakes = Diagnostics::default();
        for document in files {
            for name in document.operations() {
                let errors = self.planner.plan(&document.text, name.as_deref()).err();
                for error in errors.iter().flat_map(|errors| errors.iter()) {
                    let (line, column) = error.locations.first().copied().unwrap_or_default();
                    let (line, column) = (line as usize, column as usize);
                    let at = DiagnosticLocation::in_file(&*document.file, line, column);
                    mistakes.add(SchemaErrorKind::Document, at, error.message.clone(), "");
                }
            }
        }
        mistakes.into_result(())
    }
}

/// Returns the subgraphs of a supergraph: it lists their names, and the config has their addresses.
fn read_subgraphs(
    file: &str,
    text: &str,
    remotes: &RemoteServices,
) -> Result<Vec<Subgraph>, Vec<Diagnostic>> {
    let at = || DiagnosticLocation::in_file(file, 0, 0);
    let supergraph = read_supergraph(text).map_err(|errors| locate_errors(errors, &at()))?;
    let (mut subgraphs, mut mistakes) = (Vec::new(), Diagnostics::default());
    for name in supergraph.services {
        let Some((_, remote)) = remotes.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)) else {
            let message = format!("the subgraph `{name}` is not a GraphQL service in the config");
            let hint = format!("write it under `services`: `{name}: {{ url: ..., graphql: {{}} }}`");
            mistakes.add(SchemaErrorKind::Supergraph, at(), message, hint);
            continue;
        };
        let (path, bindings) = (remote.config.path.as_str().into(), Arc::new(SubgraphBindings::default()));
        let kind = SubgraphProtocol::Remote { path, bindings, is_federated: true };
        subgraphs.push(Subgraph { name, sdl: String::new(), kind });
    }
    mistakes.into_result(subgraphs)
}

/// Locates composition errors, either in a file or at a place in the config.
fn locate_errors(errors: Vec<Diagnostic>, at: &DiagnosticLocation) -> Vec<Diagnostic> {
    let locate = |error: Diagnostic| {
        let (line, column) = error.location.line_and_column();
        let location = match at {
            DiagnosticLocation::Source(at) => DiagnosticLocation::in_file(&at.file, line, column),
            other => other.clone(),
        };
        Diagnostic { location, ..error }
    };
    errors.into_iter().map(locate).collect()
}

/// Returns the origins of the schemas of a route's services.
pub(crate) fn schema_origins(
    names: &[String],
    services: &ServiceSet,
    documents: &ServiceDocuments,
    remotes: &RemoteServices,
) -> Result<Vec<(Box<str>, ServiceTypesOrigin)>, Vec<Diagnostic>> {
    let (mut origins, mut mistakes) = (Vec::new(), Diagnostics::default());
    for (number, name) in names.iter().enumerate() {
        let at = DiagnosticLocation::from(format!("/services/{number}"));
        let Some(service) = services.get(name) else {
            mistakes.add(
                SchemaErrorKind::Service,
                at,
                format!("there is no service `{name}`"),
                "write it under `services:`",
            );
            continue;
        };
        let of = |name: &str| service.name().eq_ignore_ascii_case(name);
        let document = documents.iter().find(|(name, _)| of(name)).map(|(_, document)| document);
        let remote = remotes.iter().find(|(name, _)| of(name)).map(|(_, remote)| remote);
        let origin = match (remote, document) {
            (Some(remote), _) => {
                let RemoteService { config, schema } = remote;
                let (service, path) = ((&**service.name()).into(), config.path.as_str().into());
                let remote = IntrospectedService { service, path, is_federated: config.federated };
                match schema {
                    Some(text) => ServiceTypesOrigin::Sdl(remote, Arc::clone(text)),
                    None => ServiceTypesOrigin::Introspected(remote),
                }
            }
            (None, Some(document)) => ServiceTypesOrigin::OpenApi(Arc::clone(document)),
            (None, None) => {
                let message = format!("the service `{name}` has no API description");
                let hint = "name its OpenAPI document under `openapi`, or write `graphql: {}` if it is a GraphQL service";
                mistakes.add(SchemaErrorKind::Service, at, message, hint);
                continue;
            }
        };
        origins.push(((&**service.name()).into(), origin));
    }
    mistakes.into_result(origins)
}
