//! From a path to a route. The table is built once; looking a path up allocates nothing.

use std::sync::Arc;

use crate::config::LimitsConfig;
use services::path;

use crate::cors::Origins;
use crate::encode::Encoding;
use crate::metrics::RouteMetrics;
use crate::refusal::Refusal;
use crate::way::Way;

/// Every route, by path.
pub(crate) struct Routes {
    table: matchit::Router<Arc<Route>>,
    all: Vec<Arc<Route>>,
    elsewhere: Origins,
}

/// A route, ready to answer.
pub(crate) struct Route {
    /// The path as the config has it.
    pub(crate) path: Arc<str>,
    pub(crate) origins: Origins,
    pub(crate) limits: LimitsConfig,
    pub(crate) encoding: Encoding,
    pub(crate) way: Way,
    /// What its requests and answers go through; `None` where there is nothing.
    pub(crate) filters: Option<Arc<filter::Chain>>,
    /// What its requests are counted in.
    pub(crate) metrics: Arc<RouteMetrics>,
}

/// Two paths that mean the same.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Clash(#[from] matchit::InsertError);

impl Routes {
    /// The table, and who may read that a path has no route. Where two paths clash, the index of the second.
    pub(crate) fn new(
        routes: Vec<Route>,
        catalogues: Vec<Route>,
        elsewhere: Origins,
    ) -> Result<Self, (usize, Clash)> {
        let routes: Vec<Arc<Route>> = routes.into_iter().map(Arc::new).collect();
        let all = routes.clone();
        let mut table = matchit::Router::new();
        for (index, route) in routes.iter().enumerate() {
            table.insert(pattern_of(route), Arc::clone(route)).map_err(|clash| (index, clash.into()))?;
        }
        // A wildcard of the table matches no empty rest, but `/shop/` is below `/shop/*` too, unless
        // it is a route of its own.
        for route in routes {
            // Below a query route are its stored programs and its types, where the config has no other route.
            if let Way::Query(query) = &route.way {
                let below = if query.has_stored() { format!("{}/*", route.path) } else { query.types() };
                let _ = table.insert(pattern(&below), Arc::clone(&route));
            }
            if let Some(folder) = route.path.strip_suffix('*').filter(|folder| folder.ends_with('/')) {
                let _ = table.insert(literal(folder), Arc::clone(&route));
            }
        }
        // The config's own routes go first, those with a wildcard too.
        for catalogue in catalogues {
            if table.at(&catalogue.path).is_err() {
                let _ = table.insert(literal(&catalogue.path), Arc::new(catalogue));
            }
        }
        Ok(Self { table, all, elsewhere })
    }

    /// Begins what goes on beside requests: filters have timers, scripts have workers, GraphQL services are asked for
    /// their schemas.
    pub(crate) fn start(&self) {
        for route in &self.all {
            route.filters.iter().for_each(|chain| chain.start());
            route.way.start();
        }
    }

    /// The scripts among them, each with its route.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = (&Route, &script_runtime::Script)> {
        self.all.iter().filter_map(|route| match &route.way {
            Way::Script(script) => Some((&**route, &**script)),
            _ => None,
        })
    }

    /// The GraphQL routes among them, each with its path.
    pub(crate) fn graphqls(&self) -> impl Iterator<Item = (&str, &graphql::Graphql)> {
        self.all.iter().filter_map(|route| match &route.way {
            Way::Graphql(graphql) => Some((&*route.path, &**graphql)),
            _ => None,
        })
    }

    /// The route that answers this path, where everybody reads it in the same way: a service behind one
    /// route must not see a path that another route's rules are meant for.
    ///
    /// # Errors
    /// A path that a server could read differently, or that is another route's once it is decoded.
    pub(crate) fn find_surely(&self, path: &str) -> Result<Option<&Arc<Route>>, Refusal> {
        let found = self.find(path);
        let Some(reading) = path::reading(path)? else { return Ok(found) };
        match (found, self.find(&reading)) {
            (Some(found), Some(other)) if !Arc::ptr_eq(found, other) => Err(Refusal::PathAmbiguous),
            (Some(_), None) => Err(Refusal::PathAmbiguous),
            _ => Ok(found),
        }
    }

    /// The route that answers this path.
    pub(crate) fn find(&self, path: &str) -> Option<&Arc<Route>> {
        self.table.at(path).ok().map(|found| found.value)
    }

    /// Those that may read what is answered where no route is.
    pub(crate) fn elsewhere(&self) -> &Origins {
        &self.elsewhere
    }
}

/// The pattern of a route's path. Where an aggregate answers, braces name a part of it.
fn pattern_of(route: &Route) -> String {
    match &route.way {
        Way::Aggregate(_) => path::normal_form(&route.path).unwrap_or_else(|| route.path.to_string()),
        _ => pattern(&route.path),
    }
}

fn pattern(path: &str) -> String {
    match path.strip_suffix("/*") {
        Some(before) => format!("{}/{{*rest}}", literal(before)),
        None => literal(path),
    }
}

/// A path as requests have it, in normal form. Braces are the table's own wildcards and have to be doubled.
fn literal(path: &str) -> String {
    let normal = path::normal_form(path);
    normal.as_deref().unwrap_or(path).replace('{', "{{").replace('}', "}}")
}
