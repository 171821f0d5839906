//! Which row is whose, and what it opens.

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

fn table(text: &str) -> Table {
    Table::new(&read_text(text, Path::new("orfa.yaml")).unwrap(), None)
}

fn who(caller: Caller, groups: &[&str]) -> Who {
    Who { caller, groups: groups.iter().map(|group| Arc::from(*group)).collect() }
}

fn named(name: &str, groups: &[&str]) -> Who {
    who(Caller::Named(name.into()), groups)
}

fn subject(groups: &[&str]) -> Who {
    who(Caller::Subject("ann".into()), groups)
}

fn permit(table: &Table, who: &Who, route: &str) -> Result<Permit, String> {
    let permit = table.permit(who, route, Ipv4Addr::LOCALHOST.into(), Instant::now());
    permit.map_err(|not| match not {
        Not::Identified => "401".to_owned(),
        Not::Permitted(denied) => services::Problem::code(&denied).to_owned(),
    })
}

fn services(table: &Table, who: &Who) -> Vec<String> {
    let rights = permit(table, who, "/query").unwrap().rights;
    let services = rights.and_then(|rights| rights.services.clone());
    services.into_iter().flatten().map(String::from).collect()
}

#[test]
fn the_row_is_ones_own_or_the_first_of_ones_groups_or_that_of_all_others() {
    let table = table(CONFIG);
    let shop = permit(&table, &named("shop", &["partners"]), "/query").unwrap();
    assert!(shop.rights.is_none() && shop.limits.unwrap().calls == Some(7));
    assert_eq!(services(&table, &named("robot", &["partners", "slow"])), ["catalog"], "`slow` stands first");
    assert_eq!(services(&table, &subject(&["partners"])), ["catalog", "order"]);
    assert_eq!(services(&table, &named("guest", &[])), ["catalog"]);
    assert_eq!(services(&table, &subject(&[])), ["catalog"]);
}

#[test]
fn a_token_can_not_choose_the_row_of_somebody_else() {
    let table = table(CONFIG);
    for group in ["shop", "anonymous", "others"] {
        assert_eq!(services(&table, &subject(&[group])), ["catalog"], "{group}");
    }
    let like = who(Caller::Subject("shop".into()), &[]);
    assert!(permit(&table, &like, "/query").unwrap().limits.is_none());
}

#[test]
fn who_has_no_name_is_asked_for_it_and_who_has_one_is_refused() {
    let whole = table(CONFIG);
    let nobody = Who::default();
    assert!(permit(&whole, &nobody, "/catalog/*").is_ok());
    for route in ["/query", "/closed", "/catalog"] {
        assert_eq!(permit(&whole, &nobody, route).err().unwrap(), "401", "{route}");
    }
    let narrow = table(&CONFIG.replace("['/**']", "[/query]"));
    assert_eq!(permit(&narrow, &named("guest", &[]), "/closed").err().unwrap(), "route-forbidden");
    let without =
        table(&CONFIG.replace("  others: { routes: ['/**'], services: [catalog] }\n", "  guest: {}\n"));
    assert_eq!(permit(&without, &subject(&[]), "/query").err().unwrap(), "caller-forbidden");
}

#[test]
fn once_callers_are_known_nobody_else_is_meant_unless_it_is_said() {
    let base = "services: { c: { url: 'http://c' } }\nroutes:\n  - { path: /a, proxy: c }\n  - { path: /b, proxy: c, auth: optional }\n";
    let open = table(base);
    assert!(permit(&open, &Who::default(), "/a").is_ok());
    let closed = table(&format!("{base}callers: {{ shop: {{ certificate: shop }} }}"));
    assert_eq!(permit(&closed, &Who::default(), "/a").err().unwrap(), "401");
    assert!(permit(&closed, &Who::default(), "/b").is_ok());
    assert!(permit(&closed, &named("shop", &[]), "/a").is_ok());
}

#[test]
fn another_table_knows_what_was_taken_before() {
    let config = |rate: &str| {
        let text = format!("routes: []\nrights: {{ anonymous: {{ rate: {{ requests: {rate} }} }} }}");
        read_text(&text, Path::new("orfa.yaml")).unwrap()
    };
    let first = Table::new(&config("1/h"), None);
    assert!(permit(&first, &Who::default(), "/").is_ok());
    let second = Table::new(&config("2/h, at_once: 5"), Some(&first));
    assert_eq!(permit(&second, &Who::default(), "/").err().unwrap(), "rate-requests");
}
