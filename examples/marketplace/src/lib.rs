//! A freelance marketplace: three small example services for the gateway, each with its own database.
//!
//! *profile* has buyers and freelancers, *catalog* the job postings of the buyers, *order* the freelancers'
//! orders with payment and review. The scenario and the numbers of rows (315, 1000, 1509) are those of the
//! study that compared REST with GraphQL on it. The services have no special support for a gateway: they have
//! lists, details, filters and bulk calls as a company would have built them for its own pages.
//!
//! Each service is a table of routes (`profile.rs`, `catalog.rs`, `order.rs`) over shared modules: `http.rs`
//! defines routes, `router.rs` runs them, `parameters.rs` parses parameters, `select.rs` builds SQL,
//! `database.rs` has the connections, `seed.rs` generates the rows, `problem.rs` has the errors, and
//! `graphql.rs` exposes the same handlers by GraphQL.

mod catalog;
mod data;
mod database;
mod graphql;
mod http;
mod order;
mod parameters;
mod problem;
mod profile;
mod router;
mod seed;
mod select;

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use crate::data::DatabaseFolder;
pub use crate::database::DatabaseError;
pub use crate::http::Route;

/// A service of the marketplace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarketplaceService {
    /// Buyers, freelancers and notices to them.
    Profile,
    /// Job postings.
    Catalog,
    /// Orders with their payments and reviews.
    Order,
}

/// All three services in this process, on free loopback ports. They end when this is dropped.
#[derive(Debug)]
pub struct Marketplace {
    addresses: [SocketAddr; 3],
    _services: JoinSet<Result<(), DatabaseError>>,
}

impl MarketplaceService {
    /// Every service, in the order of their ports.
    pub const ALL: [Self; 3] = [Self::Profile, Self::Catalog, Self::Order];

    /// The name in URLs, file names and the gateway's config.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Catalog => "catalog",
            Self::Order => "order",
        }
    }

    /// The default port.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::Profile => 3001,
            Self::Catalog => 3002,
            Self::Order => 3003,
        }
    }

    /// All routes of the service.
    #[must_use]
    pub fn routes(self) -> &'static [Route] {
        match self {
            Self::Profile => profile::ROUTES,
            Self::Catalog => catalog::ROUTES,
            Self::Order => order::ROUTES,
        }
    }

    /// The OpenAPI document, in YAML.
    #[must_use]
    pub fn openapi(self) -> &'static str {
        match self {
            Self::Profile => include_str!("../openapi/profile.yaml"),
            Self::Catalog => include_str!("../openapi/catalog.yaml"),
            Self::Order => include_str!("../openapi/order.yaml"),
        }
    }

    /// The GraphQL schema of `POST /graphql`.
    #[must_use]
    pub fn schema(self) -> &'static str {
        match self {
            Self::Profile => include_str!("../graphql/profile.graphql"),
            Self::Catalog => include_str!("../graphql/catalog.graphql"),
            Self::Order => include_str!("../graphql/order.graphql"),
        }
    }

    fn graphql(self) -> graphql::Graphql {
        let fields = match self {
            Self::Profile => profile::FIELDS,
            Self::Catalog => catalog::FIELDS,
            Self::Order => order::FIELDS,
        };
        graphql::Graphql::new(self.schema(), fields)
    }

    fn seed(self) -> database::Seed {
        match self {
            Self::Profile => profile::seed,
            Self::Catalog => catalog::seed,
            Self::Order => order::seed,
        }
    }
}

/// Creates the router of a service, for tests without a port. Creates and seeds the database if it doesn't
/// exist.
pub fn router(service: MarketplaceService, data: &DatabaseFolder) -> Result<Router, DatabaseError> {
    let database = database::Database::open(data, service.name(), service.seed())?;
    Ok(router::router(service.routes(), service.graphql(), database))
}

/// Serves on `listener` until the future is dropped.
pub async fn serve(
    service: MarketplaceService,
    listener: TcpListener,
    data: DatabaseFolder,
) -> Result<(), DatabaseError> {
    let opened = tokio::task::spawn_blocking(move || router(service, &data)).await;
    let router = opened.map_err(|source| DatabaseError::Listen { source: source.into() })??;
    // A response is one small write, which Nagle's algorithm would only delay.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router).await.map_err(|source| DatabaseError::Listen { source })
}

impl Marketplace {
    /// Starts all three services and returns when they accept requests.
    pub async fn start(data: DatabaseFolder) -> Result<Self, DatabaseError> {
        let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); 3];
        let mut services = JoinSet::new();
        for (service, address) in MarketplaceService::ALL.into_iter().zip(&mut addresses) {
            let bound = TcpListener::bind(*address).await;
            let listener = bound.map_err(|source| DatabaseError::Listen { source })?;
            *address = listener.local_addr().map_err(|source| DatabaseError::Listen { source })?;
            services.spawn(serve(service, listener, data.clone()));
        }
        Ok(Self { addresses, _services: services })
    }

    /// The address of a service.
    #[must_use]
    pub fn address(&self, service: MarketplaceService) -> SocketAddr {
        let [profile, catalog, order] = self.addresses;
        match service {
            MarketplaceService::Profile => profile,
            MarketplaceService::Catalog => catalog,
            MarketplaceService::Order => order,
        }
    }

    /// The base URL of a service, such as `http://127.0.0.1:40123`.
    #[must_use]
    pub fn url(&self, service: MarketplaceService) -> String {
        format!("http://{}", self.address(service))
    }
}
