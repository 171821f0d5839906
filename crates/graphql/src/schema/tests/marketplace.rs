//! The marketplace's three services as one schema.

use graphql_tools::parser::parse_query;
use hive_router_query_planner::ast::normalization::normalize_operation;
use hive_router_query_planner::graph::PlannerOverrideContext;
use hive_router_query_planner::planner::{Planner, QueryPlannerOptions};
use hive_router_query_planner::utils::cancellation::CancellationToken;
use hive_router_query_planner::utils::parsing::safe_parse_schema;

use super::{build_test_subgraphs, concatenated_sdl, service_bindings, warning_texts};
use crate::compose::{ServiceSchema, compose};
use crate::subgraph::{BatchStrategy, BoundCall, OperationKind, ParameterSource};

const PROFILE: &str = include_str!("../../../../../examples/marketplace/openapi/profile.yaml");
const CATALOG: &str = include_str!("../../../../../examples/marketplace/openapi/catalog.yaml");
const ORDER: &str = include_str!("../../../../../examples/marketplace/openapi/order.yaml");

const SERVICES: [(&str, &str); 3] = [("profile", PROFILE), ("catalog", CATALOG), ("order", ORDER)];

const LINKS: &str = r#"
links:
  Buyer.catalogs: { get: catalog/catalogs, on: id = buyer_id }
  Buyer.rating: { get: "order/buyers/{id}/rating" }
  Order.catalog: { get: "catalog/catalogs?ids={catalog_id}", on: catalog_id = id, one: true }
  Order.freelancer: { get: "profile/freelancers?ids={freelancer_id}", on: freelancer_id = id, one: true }
types:
  Buyer: { rename: Customer, fields: { phone: { hide: true }, name: { rename: fullName, description: First and last. } } }
  Query: { fields: { listBuyers: { rename: buyers } } }
"#;

#[test]
fn maps_the_marketplace_to_three_subgraphs() {
    let (subgraphs, findings) = build_test_subgraphs(&SERVICES, LINKS).expect("no mistake");
    insta::assert_snapshot!(concatenated_sdl(&subgraphs));
    insta::assert_snapshot!("marketplace_findings", warning_texts(&findings).join("\n"));
}

#[test]
fn links_use_as_few_calls_as_possible() {
    let (subgraphs, _) = build_test_subgraphs(&SERVICES, LINKS).expect("no mistake");
    let link = |service: &str, of: &str, field: &str| {
        service_bindings(&subgraphs, service).entities[of].links[field].clone()
    };
    let catalogs = link("catalog", "Customer", "catalogs");
    assert_eq!(&*catalogs.needed_fields, [Box::from("id")]);
    let BatchStrategy::WholeList(BoundCall::Rest(asked), joined) = catalogs.strategy else {
        panic!("{catalogs:?}")
    };
    assert_eq!(
        (&*asked.path, &*joined.key, &*joined.item, joined.is_many),
        ("/catalogs", "id", "buyer_id", true)
    );

    let catalog = link("catalog", "Order", "catalog");
    let BatchStrategy::KeyBatches(BoundCall::Rest(asked), joined) = catalog.strategy else {
        panic!("{catalog:?}")
    };
    let ids = asked.parameters.iter().find(|it| &*it.name == "ids").expect("ids");
    assert!(matches!(&ids.source, ParameterSource::Key(key) if &**key == "catalog_id"));
    assert_eq!((&*joined.key, &*joined.item, joined.is_many), ("catalog_id", "id", false));

    let rating = link("order", "Customer", "rating");
    let BatchStrategy::PerObject(BoundCall::Rest(asked)) = rating.strategy else { panic!("{rating:?}") };
    assert_eq!(&*asked.path, "/buyers/{id}/rating");
}

#[test]
fn requests_renamed_fields_by_their_original_names() {
    let (subgraphs, _) = build_test_subgraphs(&SERVICES, LINKS).expect("no mistake");
    let profile = service_bindings(&subgraphs, "profile");
    assert_eq!(&*profile.roots[&(OperationKind::Query, "buyers".into())].path, "/buyers");
    assert_eq!(&*profile.types["Customer"].fields["fullName"], "name");
    assert!(
        !subgraphs[0]
            .sdl
            .contains("phone: String!\n  city: String!\n  country: String!\n  about: String!\n  joined"),
        "hidden"
    );
}

/// The services that a query calls, in the order of the plan.
fn called_services(query: &str) -> Vec<String> {
    let (subgraphs, _) = build_test_subgraphs(&SERVICES, LINKS).expect("no mistake");
    let parts: Vec<ServiceSchema<'_>> =
        subgraphs.iter().map(|it| ServiceSchema { name: &it.name, sdl: &it.sdl }).collect();
    let supergraph = compose(&parts).expect("a supergraph").sdl;
    let schema = safe_parse_schema(&supergraph).expect("SDL");
    let planner = Planner::new_from_supergraph(&schema, QueryPlannerOptions::default()).expect("a planner");
    let query = parse_query(query).expect("a query").into_static();
    let query = normalize_operation(&planner.supergraph, &query, None).expect("a query of this schema");
    let context = PlannerOverrideContext::from_percentage(0.0);
    let plan = planner.plan_from_normalized_operation(&query.operation, context, &CancellationToken::new());
    let plan = plan.expect("a plan").to_string();
    plan.split("service: \"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

#[test]
fn calls_each_service_once() {
    assert_eq!(called_services("{ buyers { fullName catalogs { title } } }"), ["profile", "catalog"]);
    let orders = "{ listOrders(limit: 50) { id catalog { id title price } freelancer { id name } } }";
    let mut orders = called_services(orders);
    orders.sort();
    assert_eq!(orders, ["catalog", "order", "profile"]);
    assert_eq!(called_services("{ getBuyer(id: 7) { rating { stars } } }"), ["profile", "order"]);
}
