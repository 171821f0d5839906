//! The lookup of routes by path. The table is built once; a lookup allocates nothing.

use std::sync::Arc;

use services::path;

use crate::config::RouteLimitsConfig;
use crate::handlers::RouteHandler;
use crate::http_semantics::cors::AllowedOrigins;
use crate::http_semantics::encode::EncodingConfigState;
use crate::http_semantics::request_refusal::RequestRefusal;
use crate::telemetry::metrics::RouteMetrics;

/// All routes, by path.
pub(crate) struct RouteTable {
    table: matchit::Router<Arc<RouteEntry>>,
    all: Vec<Arc<RouteEntry>>,
    default_origins: AllowedOrigins,
}

/// A route with its handler and rules.
pub(crate) struct RouteEntry {
    /// The path as the config contains it.
    pub(crate) path: Arc<str>,
    pub(crate) origins: AllowedOrigins,
    pub(crate) limits: RouteLimitsConfig,
    pub(crate) encoding: EncodingConfigState,
    pub(crate) handler: RouteHandler,
    /// The filters for its requests and responses, if there are any.
    pub(crate) filters: Option<Arc<filter::FilterChain>>,
    /// The metrics of its requests.
    pub(crate) metrics: Arc<RouteMetrics>,
}

impl RouteEntry {
    /// The maximum number of bytes of a request's body that are held before the response begins. Proxies
    /// without filters that read it hold none.
    pub(crate) fn max_held_body(&self) -> u64 {
        match (&self.handler, &self.filters) {
            (RouteHandler::Proxy(_), filters) => filters.as_ref().map_or(0, |chain| chain.request_buffer()),
            (RouteHandler::Catalogue(_), _) => 0,
            _ => self.limits.request_body.0,
        }
    }
}

/// An error for two paths that are equivalent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RouteConflict(#[from] matchit::InsertError);

impl RouteTable {
    /// Builds the table. `elsewhere` is the cross-origin rule for paths without a route. If two paths
    /// conflict, returns the index of the second.
    pub(crate) fn new(
        routes: Vec<RouteEntry>,
        catalogues: Vec<RouteEntry>,
        origins: AllowedOrigins,
    ) -> Result<Self, (usize, RouteConflict)> {
        let routes: Vec<Arc<RouteEntry>> = routes.into_iter().map(Arc::new).collect();
        let all = routes.clone();
        let mut table = matchit::Router::new();
        for (index, route) in routes.iter().enumerate() {
            table.insert(route_pattern(route), Arc::clone(route)).map_err(|clash| (index, clash.into()))?;
        }
        // A wildcard of the table does not match an empty rest, but `/shop/` matches `/shop/*` as well,
        // unless it is a route of its own.
        for route in routes {
            // A query route also serves its stored programs and its types below its path, where the config
            // has no other route.
            if let RouteHandler::Query(query) = &route.handler {
                let below = if query.has_stored() { format!("{}/*", route.path) } else { query.types_path() };
                let _ = table.insert(path_pattern(&below), Arc::clone(&route));
            }
            if let Some(folder) = route.path.strip_suffix('*').filter(|folder| folder.ends_with('/')) {
                let _ = table.insert(escape_literal(folder), Arc::clone(&route));
            }
        }
        // The config's own routes take precedence, including those with a wildcard.
        for catalogue in catalogues {
            if table.at(&catalogue.path).is_err() {
                let _ = table.insert(escape_literal(&catalogue.path), Arc::new(catalogue));
            }
        }
        Ok(Self { table, all, default_origins: origins })
    }

    /// Starts the background work: timers of filters, workers of scripts, and fetches of the schemas of
    /// GraphQL services.
    pub(crate) fn start(&self) {
        for route in &self.all {
            route.filters.iter().for_each(|chain| chain.start());
            route.handler.start();
        }
    }

    /// Iterates over the scripts, each with its route.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = (&RouteEntry, &script_runtime::ScriptRoute)> {
        self.all.iter().filter_map(|route| match &route.handler {
            RouteHandler::Script(script) => Some((&**route, &**script)),
            _ => None,
        })
    }

    /// Iterates over the GraphQL routes, each with its path.
    pub(crate) fn graphqls(&self) -> impl Iterator<Item = (&str, &graphql::GraphqlRoute)> {
        self.all.iter().filter_map(|route| match &route.handler {
            RouteHandler::Graphql(graphql) => Some((&*route.path, &**graphql)),
            _ => None,
        })
    }

    /// Returns the route for a path that every server would interpret in the same way. Otherwise a service
    /// behind one route could receive a path that another route's rules apply to.
    ///
    /// # Errors
    /// Refuses a path that a server could interpret differently, or that belongs to another route once it is
    /// decoded.
    pub(crate) fn find_unambiguous(&self, path: &str) -> Result<Option<&Arc<RouteEntry>>, RequestRefusal> {
        let route_entry = self.find(path);
        let Some(reading) = path::lenient_path(path)? else { return Ok(route_entry) };
        match (route_entry, self.find(&reading)) {
            (Some(found), Some(other)) if !Arc::ptr_eq(found, other) => Err(RequestRefusal::PathAmbiguous),
            (Some(_), None) => Err(RequestRefusal::PathAmbiguous),
            _ => Ok(route_entry),
        }
    }

    /// Returns the route for a path.
    pub(crate) fn find(&self, path: &str) -> Option<&Arc<RouteEntry>> {
        self.table.at(path).ok().map(|found| found.value)
    }

    /// The cross-origin rule for paths without a route.
    pub(crate) fn default_origins(&self) -> &AllowedOrigins {
        &self.default_origins
    }
}

/// The pattern of a route's path. On aggregate routes, braces are parameters.
fn route_pattern(route: &RouteEntry) -> String {
    match &route.handler {
        RouteHandler::Aggregate(_) => {
            path::normalize_target(&route.path).unwrap_or_else(|| route.path.to_string())
        }
        _ => path_pattern(&route.path),
    }
}

fn path_pattern(path: &str) -> String {
    match path.strip_suffix("/*") {
        Some(before) => format!("{}/{{*rest}}", escape_literal(before)),
        None => escape_literal(path),
    }
}

/// Returns a path in normal form, as requests have it. Doubles braces, which are the table's wildcards.
fn escape_literal(path: &str) -> String {
    let normal = path::normalize_target(path);
    normal.as_deref().unwrap_or(path).replace('{', "{{").replace('}', "}}")
}
