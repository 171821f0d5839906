//! Tests of the selection of rows, and of the rights in them.

use std::net::Ipv4Addr;
use std::path::Path;

use super::*;
use crate::config::read_text;

const CONFIG: &str = "
services: { catalog: { url: 'http://c' }, order: { url: 'http://o' } }
auth: { jwt: { issuer: 'https://login.example', audience: shop } }
callers:
  shop: { certificate: shop, groups: [partners] }
  robot: { certificate: robot, groups: [partners, slow] }
  guest: { certificate: guest }
rights:
  anonymous: { routes: [/catalog/*] }
  slow: { services: [catalog], methods: [GET] }
  partners: { services: [catalog, Order] }
  shop: { limits: { calls: 7 } }
  others: { routes: ['/**'], services: [catalog] }
routes:
  - { path: '/catalog/*', proxy: catalog }
  - { path: /query, query: { services: [catalog, order] } }
  - { path: /closed, proxy: order, auth: required }
  - { path: /catalog, proxy: catalog }
";

fn table(text: &str) -> AuthorizationTable {
    AuthorizationTable::new(&read_text(text, Path::new("orfa.yaml")).unwrap(), None)
}

fn principal(caller: CallerId, groups: &[&str]) -> Principal {
    Principal { caller, groups: groups.iter().map(|group| Arc::from(*group)).collect() }
}

fn named_principal(name: &str, groups: &[&str]) -> Principal {
    principal(CallerId::Named(name.into()), groups)
}

fn token_principal(groups: &[&str]) -> Principal {
    principal(CallerId::Subject("ann".into()), groups)
}

fn authorize(table: &AuthorizationTable, principal: &Principal, route: &str) -> Result<RequestGrant, String> {
    let permit = table.authorize(principal, route, Ipv4Addr::LOCALHOST.into(), Instant::now());
    permit.map_err(|not| match not {
        AuthzError::Unauthenticated => "401".to_owned(),
        AuthzError::Forbidden(denied) => services::ToProblem::code(&denied).to_owned(),
    })
}

fn permitted_services(table: &AuthorizationTable, principal: &Principal) -> Vec<String> {
    let rights = authorize(table, principal, "/query").unwrap().rights;
    let services = rights.and_then(|rights| rights.services.clone());
    services.into_iter().flatten().map(String::from).collect()
}

#[test]
fn selects_the_callers_row_then_its_first_groups_then_others() {
    let table = table(CONFIG);
    let shop = authorize(&table, &named_principal("shop", &["partners"]), "/query").unwrap();
    assert!(shop.rights.is_none() && shop.limits.unwrap().calls == Some(7));
    assert_eq!(
        permitted_services(&table, &named_principal("robot", &["partners", "slow"])),
        ["catalog"],
        "`slow` is first"
    );
    assert_eq!(permitted_services(&table, &token_principal(&["partners"])), ["catalog", "order"]);
    assert_eq!(permitted_services(&table, &named_principal("guest", &[])), ["catalog"]);
    assert_eq!(permitted_services(&table, &token_principal(&[])), ["catalog"]);
}

#[test]
fn a_tokens_groups_can_not_select_reserved_or_callers_rows() {
    let table = table(CONFIG);
    for group in ["shop", "anonymous", "others"] {
        assert_eq!(permitted_services(&table, &token_principal(&[group])), ["catalog"], "{group}");
    }
    let like = principal(CallerId::Subject("shop".into()), &[]);
    assert!(authorize(&table, &like, "/query").unwrap().limits.is_none());
}

#[test]
fn asks_anonymous_clients_for_credentials_and_refuses_others() {
    let authorization_table = table(CONFIG);
    let nobody = Principal::default();
    assert!(authorize(&authorization_table, &nobody, "/catalog/*").is_ok());
    for route in ["/query", "/closed", "/catalog"] {
        assert_eq!(authorize(&authorization_table, &nobody, route).err().unwrap(), "401", "{route}");
    }
    let narrow = table(&CONFIG.replace("['/**']", "[/query]"));
    assert_eq!(
        authorize(&narrow, &named_principal("guest", &[]), "/closed").err().unwrap(),
        "route-forbidden"
    );
    let without =
        table(&CONFIG.replace("  others: { routes: ['/**'], services: [catalog] }\n", "  guest: {}\n"));
    assert_eq!(authorize(&without, &token_principal(&[]), "/query").err().unwrap(), "caller-forbidden");
}

#[test]
fn requires_credentials_once_callers_are_configured() {
    let base = "services: { c: { url: 'http://c' } }\nroutes:\n  - { path: /a, proxy: c }\n  - { path: /b, proxy: c, auth: optional }\n";
    let authorization_table = table(base);
    assert!(authorize(&authorization_table, &Principal::default(), "/a").is_ok());
    let closed = table(&format!("{base}callers: {{ shop: {{ certificate: shop }} }}"));
    assert_eq!(authorize(&closed, &Principal::default(), "/a").err().unwrap(), "401");
    assert!(authorize(&closed, &Principal::default(), "/b").is_ok());
    assert!(authorize(&closed, &named_principal("shop", &[]), "/a").is_ok());
}

#[test]
fn a_new_table_keeps_the_accounts() {
    let config = |rate: &str| {
        let text = format!("routes: []\nrights: {{ anonymous: {{ rate: {{ requests: {rate} }} }} }}");
        read_text(&text, Path::new("orfa.yaml")).unwrap()
    };
    let first = AuthorizationTable::new(&config("1/h"), None);
    assert!(authorize(&first, &Principal::default(), "/").is_ok());
    let second = AuthorizationTable::new(&config("2/h, max_in_flight: 5"), Some(&first));
    assert_eq!(authorize(&second, &Principal::default(), "/").err().unwrap(), "rate-requests");
}
