//! Authorisation: a table with a row for each caller or group (`config/rights.rs`), and the rate limits of
//! callers (`limits/rate_limits.rs`).
//!
//! A caller's row is the one with its name, or else the first in the file's order with the name of one of its
//! groups, or else `others`. Requests without credentials use the row `anonymous`. Without a table,
//! everything is allowed; with a table, a caller without a row is denied everything.
//!
//! Patterns for routes are matched against the config's routes when the table is built, never against the
//! paths of requests, so no spelling of a path bypasses them.

mod refusal;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use handler::CallerLimits;
use http::Method;
use services::path::PathGlob;
use services::{CallRights, CallerId, CpuAccounting};

use super::authn::Principal;
use crate::config::rights::{ANONYMOUS, OTHERS_ROW, covers};
use crate::config::{AuthRule, GatewayConfig, RowConfig};
use crate::limits::rate_limits::{AccountOwner, AccountTable, ConcurrencyPermit, RateLimit};
pub(crate) use refusal::AuthorizationRefusal;

/// The table of rights.
pub(crate) struct AuthorizationTable {
    rows: HashMap<Box<str>, AuthorizationRow>,
    /// The names of callers, which can't be names of groups.
    callers: HashSet<Box<str>>,
    /// Whether the config has a table. Without one, everything is allowed.
    is_configured: bool,
    /// The routes that require a caller, and those that are explicitly open to anonymous requests.
    auth_required_routes: HashSet<Box<str>>,
    anonymous_routes: HashSet<Box<str>>,
    accounts: Arc<AccountTable>,
}

/// The rights and limits of a caller.
struct AuthorizationRow {
    /// The position in the file.
    order: usize,
    routes: Option<HashSet<Box<str>>>,
    rights: Option<Arc<CallRights>>,
    limits: Option<Arc<CallerLimits>>,
    rate: Option<RateLimit>,
}

/// The rights and limits of a request, and the permits that it has until it completes.
#[derive(Default)]
pub(crate) struct RequestGrant {
    pub(crate) rights: Option<Arc<CallRights>>,
    pub(crate) limits: Option<Arc<CallerLimits>>,
    pub(crate) payer: Option<Arc<dyn CpuAccounting>>,
    /// For each entry of the catalogue, whether the caller may see it; `None` for other handlers.
    pub(crate) visible_entries: Option<Arc<[bool]>>,
    pub(crate) concurrency_permit: Option<ConcurrencyPermit>,
}

/// The reason a request was not permitted.
#[derive(Debug)]
pub(crate) enum AuthzError {
    /// The request needs credentials.
    Unauthenticated,
    Forbidden(AuthorizationRefusal),
}

impl AuthorizationTable {
    /// Builds the table from a config, with the rate limit state of `earlier`.
    pub(crate) fn new(config: &GatewayConfig, earlier: Option<&Self>) -> Self {
        let rows = config.rights.iter().enumerate();
        let rows = rows
            .map(|(order, (name, row))| (name.as_str().into(), AuthorizationRow::new(order, row, config)));
        let ruled = |rule: fn(&GatewayConfig, Option<AuthRule>) -> bool| {
            let routes = config.routes.iter().filter(move |route| rule(config, route.auth));
            routes.map(|route| route.path.as_str().into()).collect()
        };
        let accounts = earlier.map(|earlier| Arc::clone(&earlier.accounts));
        Self {
            rows: rows.collect(),
            callers: config.callers.keys().map(|name| name.as_str().into()).collect(),
            is_configured: !config.rights.is_empty(),
            auth_required_routes: ruled(|config, rule| {
                effective_auth_rule(config, rule) == AuthRule::Required
            }),
            anonymous_routes: ruled(|_, rule| rule == Some(AuthRule::Optional)),
            accounts: accounts.unwrap_or_default(),
        }
    }

    /// Authorises a caller for a route, and charges it for the request.
    ///
    /// # Errors
    /// Fails if the caller is anonymous but must not be, has no right to the route, or has reached a rate
    /// limit.
    pub(crate) fn authorize(
        &self,
        principal: &Principal,
        route: &str,
        address: IpAddr,
        now: Instant,
    ) -> Result<RequestGrant, AuthzError> {
        if principal.caller == CallerId::Anonymous && self.auth_required_routes.contains(route) {
            return Err(AuthzError::Unauthenticated);
        }
        let Some(row) = self.find_row(principal) else { return self.authorize_without_row(principal, route) };
        if row.routes.as_ref().is_some_and(|routes| !routes.contains(route)) {
            return Err(match principal.caller {
                CallerId::Anonymous => AuthzError::Unauthenticated,
                _ => AuthzError::Forbidden(AuthorizationRefusal::Route(describe_caller(&principal.caller))),
            });
        }
        let grant = self.charge_request(principal, address, now).map_err(AuthzError::Forbidden)?;
        Ok(RequestGrant { rights: row.rights.clone(), limits: row.limits.clone(), ..grant })
    }

    /// Charges a caller for a request without checking its right to a route. The permit contains no rights.
    ///
    /// # Errors
    /// Fails if the caller has reached a rate limit.
    pub(crate) fn charge_request(
        &self,
        principal: &Principal,
        address: IpAddr,
        now: Instant,
    ) -> Result<RequestGrant, AuthorizationRefusal> {
        let Some(rate) = self.find_row(principal).and_then(|row| row.rate.as_ref()) else {
            return Ok(RequestGrant::default());
        };
        let taken =
            self.accounts.charge_request(&AccountOwner::from_caller(&principal.caller, address), rate, now);
        let (permit, bill) = taken.map_err(AuthorizationRefusal::Rate)?;
        Ok(RequestGrant {
            concurrency_permit: permit,
            payer: bill.map(|bill| bill as Arc<dyn CpuAccounting>),
            ..RequestGrant::default()
        })
    }

    /// Returns whether a caller has the right to use a route. Charges nothing. The caller's row is found once
    /// for any number of routes, since a token may have a thousand groups.
    pub(crate) fn route_access(&self, principal: &Principal) -> impl Fn(&str) -> bool {
        let row = self.find_row(principal);
        move |route| {
            if principal.caller == CallerId::Anonymous && self.auth_required_routes.contains(route) {
                return false;
            }
            match row {
                Some(row) => row.routes.as_ref().is_none_or(|routes| routes.contains(route)),
                None => self.authorize_without_row(principal, route).is_ok(),
            }
        }
    }

    fn find_row(&self, principal: &Principal) -> Option<&AuthorizationRow> {
        let authorization_row = match &principal.caller {
            CallerId::Anonymous => return self.rows.get(ANONYMOUS),
            CallerId::Named(name) => self.rows.get(&**name),
            CallerId::Subject(_) => None,
        };
        let groups = principal.groups.iter().filter(|group| self.is_group(group));
        let of_group = || groups.filter_map(|group| self.rows.get(&**group)).min_by_key(|row| row.order);
        authorization_row.or_else(of_group).or_else(|| self.rows.get(OTHERS_ROW))
    }

    /// Whether a name is a group's. A token may claim a group called `others`, or with a caller's name; such
    /// groups are ignored.
    fn is_group(&self, name: &str) -> bool {
        name != ANONYMOUS && name != OTHERS_ROW && !self.callers.contains(name)
    }

    fn authorize_without_row(&self, principal: &Principal, route: &str) -> Result<RequestGrant, AuthzError> {
        match principal.caller {
            _ if !self.is_configured => Ok(RequestGrant::default()),
            CallerId::Anonymous if self.anonymous_routes.contains(route) => Ok(RequestGrant::default()),
            CallerId::Anonymous => Err(AuthzError::Unauthenticated),
            _ => {
                Err(AuthzError::Forbidden(AuthorizationRefusal::NoRights(describe_caller(&principal.caller))))
            }
        }
    }
}

/// Returns a route's rule for anonymous requests. By default they are refused if the config has any callers
/// and no row `anonymous`.
fn effective_auth_rule(config: &GatewayConfig, route: Option<AuthRule>) -> AuthRule {
    let knows_callers = !config.callers.is_empty() || config.auth.jwt.is_some();
    let implied = match knows_callers && !config.rights.contains_key(ANONYMOUS) {
        true => AuthRule::Required,
        false => AuthRule::Optional,
    };
    route.unwrap_or(implied)
}

fn describe_caller(caller: &CallerId) -> String {
    caller.name().map_or_else(|| "a caller without a name".to_owned(), |name| format!("the caller `{name}`"))
}

impl AuthorizationRow {
    fn new(order: usize, config: &RowConfig, all: &GatewayConfig) -> Self {
        let routes = config.routes.as_ref().map(|patterns| {
            let globs: Vec<PathGlob> =
                patterns.iter().filter_map(|pattern| PathGlob::parse(pattern).ok()).collect();
            let paths = all.routes.iter().map(|route| route.path.as_str());
            paths.filter(|path| globs.iter().any(|glob| covers(glob, path))).map(Box::from).collect()
        });
        let services = config.services.as_ref();
        let methods = config.methods.as_ref();
        let rights = (services.is_some() || methods.is_some()).then(|| {
            let services =
                services.map(|names| names.iter().map(|name| name.to_ascii_lowercase().into()).collect());
            let methods = methods.map(|names| {
                names.iter().filter_map(|name| Method::from_bytes(name.as_bytes()).ok()).collect()
            });
            Arc::new(CallRights { services, methods })
        });
        let limits = (config.limits != CallerLimits::default()).then(|| Arc::new(config.limits));
        Self { order, routes, rights, limits, rate: config.rate.as_ref().map(RateLimit::new) }
    }
}
