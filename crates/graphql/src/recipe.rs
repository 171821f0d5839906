//! What a route's schema is made of, and the schema once all of it is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use services::{GraphqlServiceConfig, Services};

use crate::compose::{CompositionError, Part, compose, read as read_supergraph};
use crate::config::GraphqlLimits;
use crate::mistake::{At, Finding, Kind as Wrong, Mistake, Mistakes};
use crate::plan::Planner;
use crate::schema::{self, Links, Says, Source};
use crate::schemas::{Remote, Schemas};
use crate::serve::DocumentFile;
use crate::subgraph::{Bindings, Kind, Subgraph};

/// The services' OpenAPI documents, by their names.
pub type Documents = BTreeMap<String, Arc<openapi::Document>>;

/// A GraphQL service: what the config says of it, and the text of its schema, where it names one.
#[derive(Clone, Debug)]
pub struct RemoteService {
    /// What the config says.
    pub config: GraphqlServiceConfig,
    /// Its schema.
    pub schema: Option<Arc<str>>,
}

/// The services that speak GraphQL, by their names.
pub type RemoteServices = BTreeMap<String, RemoteService>;

/// What a schema is made of.
pub(crate) struct Recipe {
    pub(crate) from: From,
    pub(crate) links: Links,
    pub(crate) listed: Vec<DocumentFile>,
    pub(crate) limits: GraphqlLimits,
    /// Whether the services' changes are part of it.
    pub(crate) mutations: bool,
}

/// Where types come from.
pub(crate) enum From {
    /// These services, in this order.
    Services(Vec<(Box<str>, Origin)>),
    /// A supergraph that was composed elsewhere, by the file's name and text.
    Supergraph(Box<str>, Arc<str>, RemoteServices),
}

/// Where a service's types come from.
pub(crate) enum Origin {
    OpenApi(Arc<openapi::Document>),
    Sdl(Remote, Arc<str>),
    Asked(Remote),
}

/// A schema that answers.
pub(crate) struct Ready {
    pub(crate) planner: Planner,
    /// What could not be mapped.
    pub(crate) findings: Vec<Finding>,
}

impl Recipe {
    /// The services that are asked, by their names.
    pub(crate) fn services(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match &self.from {
            From::Services(services) => Box::new(services.iter().map(|(name, _)| &**name)),
            From::Supergraph(_, _, remotes) => Box::new(remotes.keys().map(String::as_str)),
        }
    }

    /// The services that have to be asked for their schemas.
    pub(crate) fn remotes(&self) -> impl Iterator<Item = &Remote> {
        let services: &[_] = match &self.from {
            From::Services(services) => services,
            From::Supergraph(..) => &[],
        };
        services.iter().filter_map(|(_, origin)| match origin {
            Origin::Asked(remote) => Some(remote),
            _ => None,
        })
    }

    /// The schema; nothing while a service has not said its own.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub(crate) fn make(&self, known: &Schemas) -> Result<Option<Ready>, Vec<Mistake>> {
        let (supergraph, subgraphs, findings) = match &self.from {
            From::Supergraph(file, text, remotes) => {
                (text.to_string(), subgraphs_of(file, text, remotes)?, Vec::new())
            }
            From::Services(services) => {
                let asked: Vec<Option<Arc<str>>> = services
                    .iter()
                    .map(|(_, origin)| match origin {
                        Origin::Asked(remote) => known.get(remote),
                        _ => None,
                    })
                    .collect();
                let sources = services.iter().zip(&asked).map(|((name, origin), asked)| {
                    Some(Source { name: name.as_ref().into(), says: origin.says(asked.as_deref())? })
                });
                let Some(sources) = sources.collect::<Option<Vec<Source<'_>>>>() else { return Ok(None) };
                let (subgraphs, findings) = schema::subgraphs(&sources, &self.links)?;
                (composed(&subgraphs)?, subgraphs, findings)
            }
        };
        let planner = Planner::new(&supergraph, subgraphs, &self.limits, self.mutations)
            .map_err(|why| self.unplanned(why))?;
        let ready = Ready { planner, findings };
        ready.check(&self.listed)?;
        Ok(Some(ready))
    }

    /// A supergraph that the planner does not take: a ready one may be of another kind, ours never should.
    fn unplanned(&self, why: String) -> Vec<Mistake> {
        let mut mistakes = Mistakes::default();
        let at = match &self.from {
            From::Supergraph(file, ..) => At::Text { file: file.clone(), line: 0, column: 0 },
            From::Services(_) => At::Route("/services".to_owned()),
        };
        mistakes.add(Wrong::Supergraph, at, format!("nothing can be planned by it: {why}"), "");
        mistakes.into_vec()
    }
}

/// The services' schemas as one.
fn composed(subgraphs: &[Subgraph]) -> Result<String, Vec<Mistake>> {
    let parts: Vec<Part<'_>> =
        subgraphs.iter().map(|part| Part { name: &part.name, sdl: &part.sdl }).collect();
    let supergraph = compose(&parts).map_err(|errors| told(errors, &At::Route("/services".to_owned())))?;
    Ok(supergraph.sdl)
}

impl Origin {
    fn says<'a>(&'a self, asked: Option<&'a str>) -> Option<Says<'a>> {
        let graphql = |remote: &'a Remote, text| Says::Graphql {
            path: (&*remote.path).into(),
            text,
            is_federated: remote.is_federated,
        };
        match self {
            Self::OpenApi(document) => Some(Says::OpenApi(document)),
            Self::Sdl(remote, text) => Some(graphql(remote, text)),
            Self::Asked(remote) => Some(graphql(remote, asked?)),
        }
    }
}

impl Ready {
    /// Whether every document of the operator's can be answered.
    fn check(&self, listed: &[DocumentFile]) -> Result<(), Vec<Mistake>> {
        let mut mistakes = Mistakes::default();
        for document in listed {
            for name in document.operations() {
                let errors = self.planner.plan(&document.text, name.as_deref()).err();
                for error in errors.iter().flat_map(|errors| errors.iter()) {
                    let (line, column) = error.locations.first().copied().unwrap_or_default();
                    let (line, column) = (line as usize, column as usize);
                    let at = At::Text { file: document.file.clone(), line, column };
                    mistakes.add(Wrong::Document, at, error.message.clone(), "");
                }
            }
        }
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes.into_vec()) }
    }
}

/// The subgraphs of a supergraph: it says itself which there are, and the config where.
fn subgraphs_of(file: &str, text: &str, remotes: &RemoteServices) -> Result<Vec<Subgraph>, Vec<Mistake>> {
    let at = || At::Text { file: file.into(), line: 0, column: 0 };
    let supergraph = read_supergraph(text).map_err(|errors| told(errors, &at()))?;
    let (mut subgraphs, mut mistakes) = (Vec::new(), Mistakes::default());
    for name in supergraph.services {
        let Some((_, remote)) = remotes.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)) else {
            let message = format!("there is no service `{name}` that speaks GraphQL, and it is a subgraph");
            let hint = format!("write it under `services`: `{name}: {{ url: ..., graphql: {{}} }}`");
            mistakes.add(Wrong::Supergraph, at(), message, hint);
            continue;
        };
        let (path, bindings) = (remote.config.path.as_str().into(), Arc::new(Bindings::default()));
        let kind = Kind::Remote { path, bindings, is_federated: true };
        subgraphs.push(Subgraph { name, sdl: String::new(), kind });
    }
    if mistakes.is_empty() { Ok(subgraphs) } else { Err(mistakes.into_vec()) }
}

/// What keeps schemas from being one, as mistakes at a place.
fn told(errors: Vec<CompositionError>, at: &At) -> Vec<Mistake> {
    let mistake = |error: CompositionError| {
        let CompositionError { code, message, hint, place: (line, column), .. } = error;
        let at = match at {
            At::Text { file, .. } => At::Text { file: file.clone(), line, column },
            other => other.clone(),
        };
        Mistake { at, message, hint, code: code.code() }
    };
    errors.into_iter().map(mistake).collect()
}

/// What services of the config say of themselves, for a route that names them.
pub(crate) fn origins(
    names: &[String],
    services: &Services,
    documents: &Documents,
    remotes: &RemoteServices,
) -> Result<Vec<(Box<str>, Origin)>, Vec<Mistake>> {
    let (mut origins, mut mistakes) = (Vec::new(), Mistakes::default());
    for (number, name) in names.iter().enumerate() {
        let at = At::Route(format!("/services/{number}"));
        let Some(service) = services.get(name) else {
            mistakes.add(
                Wrong::Service,
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
                let remote = Remote { service, path, is_federated: config.federated };
                match schema {
                    Some(text) => Origin::Sdl(remote, Arc::clone(text)),
                    None => Origin::Asked(remote),
                }
            }
            (None, Some(document)) => Origin::OpenApi(Arc::clone(document)),
            (None, None) => {
                let message = format!("nobody knows what the service `{name}` answers");
                let hint =
                    "name its OpenAPI document under `openapi`, or say `graphql: {}` if it speaks GraphQL";
                mistakes.add(Wrong::Service, at, message, hint);
                continue;
            }
        };
        origins.push(((&**service.name()).into(), origin));
    }
    if mistakes.is_empty() { Ok(origins) } else { Err(mistakes.into_vec()) }
}
