//! GraphQL behind a gateway: a route over services (`route.rs`) and over real subgraphs (`federated.rs`).
//! `gateway.rs` starts the gateway and its services.

mod federated;
mod gateway;
mod route;

pub(crate) use gateway::GraphqlGateway;
