//! Tests of the rate limits, at explicit times.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn rate(requests: &str, burst: Option<u32>) -> RateLimit {
    RateLimit::new(&RateConfig { requests: Some(requests.parse().unwrap()), burst, ..RateConfig::default() })
}

fn anonymous_owner(address: impl Into<IpAddr>) -> AccountOwner {
    AccountOwner::from_caller(&CallerId::Anonymous, address.into())
}

fn named_owner(name: &str) -> AccountOwner {
    AccountOwner::from_caller(&CallerId::Named(name.into()), Ipv4Addr::LOCALHOST.into())
}

proptest! {
    /// In any span of time at most the burst and the requests earned in it are accepted, and a client that
    /// stays within this is never refused.
    #[test]
    fn accepts_at_most_burst_and_rate_in_any_span(
        count in 1_u64..200, burst in 1_u32..50, steps in prop::collection::vec(0_u64..200, 1..400),
    ) {
        let start = Instant::now();
        let accounts = AccountTable::new(start);
        let rate = rate(&format!("{count}/s"), Some(burst));
        let (mut now, mut taken) = (start, Vec::new());
        for step in steps {
            now += Duration::from_millis(step);
            if accounts.charge_request(&named_owner("a"), &rate, now).is_ok() {
                taken.push(now);
            }
        }
        for (index, from) in taken.iter().enumerate() {
            for (further, to) in taken.iter().enumerate().skip(index) {
                let most = f64::from(burst) + (*to - *from).as_secs_f64() * count as f64 + 1e-6;
                prop_assert!((further - index + 1) as f64 <= most);
            }
        }
    }

    #[test]
    fn accepts_a_retry_after_the_reported_wait(count in 1_u64..1000, burst in 1_u32..50, asked in 1..200_u32) {
        let mut now = Instant::now();
        let accounts = AccountTable::new(now);
        let rate = rate(&format!("{count}/m"), Some(burst));
        for _ in 0..asked {
            if let Err(over) = accounts.charge_request(&named_owner("a"), &rate, now) {
                let RateLimitExceeded::Requests(wait) = over else { panic!("{over:?}") };
                now += wait;
                prop_assert!(accounts.charge_request(&named_owner("a"), &rate, now).is_ok());
            }
        }
    }
}

#[test]
fn callers_addresses_and_networks_have_separate_accounts() {
    let now = Instant::now();
    let accounts = AccountTable::new(now);
    let rate = rate("1/h", None);
    let take = |owner: &AccountOwner| accounts.charge_request(owner, &rate, now).is_ok();
    assert!(take(&named_owner("a")) && take(&named_owner("b")) && !take(&named_owner("a")));
    assert!(
        take(&AccountOwner::from_caller(&CallerId::Subject("a".into()), Ipv4Addr::LOCALHOST.into())),
        "not the config's `a`"
    );
    let v4 = Ipv4Addr::new(192, 0, 2, 1);
    assert!(take(&anonymous_owner(v4)) && take(&anonymous_owner(Ipv4Addr::new(192, 0, 2, 2))));
    assert!(!take(&anonymous_owner(v4.to_ipv6_mapped())), "the same address in another form");
    let v6 = |network, host| anonymous_owner(Ipv6Addr::new(0x2001, 0xdb8, 0, network, host, 0, 0, 1));
    assert!(take(&v6(1, 1)) && !take(&v6(1, 2)) && take(&v6(2, 1)));
}

/// An anonymous client in one of the networks of a block.
fn owner_in_block(block: u16, network: u16) -> AccountOwner {
    anonymous_owner(Ipv6Addr::new(0x2001, 0xdb8, block, network, 0, 0, 0, 1))
}

#[test]
fn a_block_has_sixteen_times_the_rates_of_a_network() {
    let now = Instant::now();
    let accounts = AccountTable::new(now);
    let requests = rate("1/h", None);
    let is_admitted =
        |block, network| accounts.charge_request(&owner_in_block(block, network), &requests, now).is_ok();
    assert_eq!((0..100).filter(|network| is_admitted(1, *network)).count(), 16);
    assert!(is_admitted(2, 0), "another block");
    assert!(!is_admitted(2, 0), "a network has no more than without a block");

    let at_once = RateLimit::new(&RateConfig { max_in_flight: Some(2), ..RateConfig::default() });
    let hold =
        |network| accounts.charge_request(&owner_in_block(3, network), &at_once, now).map(|(held, _)| held);
    let permits: Vec<_> = (0..100).filter_map(|network| hold(network).ok()).collect();
    assert_eq!(permits.len(), 32);
    assert_eq!(hold(200).unwrap_err(), RateLimitExceeded::InFlight(32));
    drop(permits);
    assert!(hold(200).is_ok(), "both permits are released");
}

#[test]
fn a_block_pays_for_the_cpu_time_of_its_networks() {
    let now = Instant::now();
    let accounts = AccountTable::new(now);
    let cpu = Some("1ms/h".parse().unwrap());
    let rate = RateLimit::new(&RateConfig { cpu, ..RateConfig::default() });
    let (_, bill) = accounts.charge_request(&owner_in_block(1, 1), &rate, now).unwrap();
    CpuAccounting::charge(&*bill.unwrap(), Duration::from_millis(50));
    assert!(matches!(
        accounts.charge_request(&owner_in_block(1, 2), &rate, now),
        Err(RateLimitExceeded::Cpu(_))
    ));
    assert!(accounts.charge_request(&owner_in_block(2, 1), &rate, now).is_ok());
}

#[test]
fn requests_above_the_limit_of_a_network_are_not_charged_to_its_block() {
    let now = Instant::now();
    let accounts = AccountTable::new(now);
    let rate = rate("1/h", None);
    let admitted = (0..100).filter(|_| accounts.charge_request(&owner_in_block(1, 1), &rate, now).is_ok());
    assert_eq!(admitted.count(), 1);
    assert!(accounts.charge_request(&owner_in_block(1, 2), &rate, now).is_ok());
}

#[test]
fn requests_above_the_limit_of_a_block_are_not_charged_to_the_network() {
    let now = Instant::now();
    let accounts = AccountTable::new(now);
    let rate = rate("1/h", None);
    let take = |network, now| accounts.charge_request(&owner_in_block(1, network), &rate, now).map(drop);
    for network in 0..16 {
        take(network, now).unwrap();
    }
    let Err(RateLimitExceeded::Requests(wait)) = take(16, now) else { panic!("the block has requests left") };
    take(16, now + wait).unwrap();
}

#[test]
fn a_caller_in_cpu_debt_waits_until_it_is_earned() {
    let start = Instant::now();
    let accounts = AccountTable::new(start);
    let cpu = Some("500ms/s".parse().unwrap());
    let rate = RateLimit::new(&RateConfig { cpu, ..RateConfig::default() });
    let owner = named_owner("a");
    let account = accounts.account_for(&owner, 0);
    account.charge_cpu(nanos(Duration::from_millis(1500)) * 2, 0);
    let after =
        |millis| accounts.charge_request(&owner, &rate, start + Duration::from_millis(millis)).map(drop);
    // Three seconds' worth was used, and at most one is saved up.
    assert!(matches!(after(0), Err(RateLimitExceeded::Cpu(wait)) if wait.as_millis() == 2000));
    assert!(after(1999).is_err());
    assert!(after(2001).is_ok());
}

#[test]
fn charges_a_run_to_its_caller() {
    let accounts = AccountTable::new(Instant::now());
    let cpu = Some("1ms/h".parse().unwrap());
    let rate = RateLimit::new(&RateConfig { cpu, ..RateConfig::default() });
    let (_, bill) = accounts.charge_request(&named_owner("a"), &rate, Instant::now()).unwrap();
    CpuAccounting::charge(&*bill.unwrap(), Duration::from_millis(50));
    assert!(matches!(
        accounts.charge_request(&named_owner("a"), &rate, Instant::now()),
        Err(RateLimitExceeded::Cpu(_))
    ));
    assert!(accounts.charge_request(&named_owner("b"), &rate, Instant::now()).is_ok());
}

#[test]
fn releases_concurrency_permits() {
    let now = Instant::now();
    let accounts = AccountTable::new(now);
    let rate = RateLimit::new(&RateConfig { max_in_flight: Some(2), ..RateConfig::default() });
    let take = || accounts.charge_request(&named_owner("a"), &rate, now).map(|(held, _)| held);
    let (first, _second) = (take().unwrap(), take().unwrap());
    assert_eq!(take().unwrap_err(), RateLimitExceeded::InFlight(2));
    drop(first);
    assert!(take().is_ok());
}

#[test]
fn a_refused_request_releases_its_concurrency_permit() {
    let now = Instant::now();
    let accounts = AccountTable::new(now);
    let requests = Some("1/h".parse().unwrap());
    let rate = RateLimit::new(&RateConfig { max_in_flight: Some(1), requests, ..RateConfig::default() });
    drop(accounts.charge_request(&named_owner("a"), &rate, now));
    for _ in 0..3 {
        assert!(matches!(
            accounts.charge_request(&named_owner("a"), &rate, now),
            Err(RateLimitExceeded::Requests(_))
        ));
    }
}

#[test]
fn bounds_accounts_and_forgets_heavy_users_last() {
    let start = Instant::now();
    let accounts = AccountTable::new(start);
    let rate = rate("1/s", Some(5));
    let greedy = anonymous_owner(Ipv4Addr::new(10, 0, 0, 1));
    while accounts.charge_request(&greedy, &rate, start).is_ok() {}
    for address in 0..300_000_u32 {
        let now = start + Duration::from_micros(u64::from(address));
        let _ =
            accounts.charge_request(&anonymous_owner(Ipv4Addr::from_bits(0x0b00_0000 + address)), &rate, now);
    }
    assert!(accounts.len() <= MAX_ACCOUNTS);
    assert!(
        accounts.charge_request(&greedy, &rate, start + Duration::from_millis(400)).is_err(),
        "it was forgotten"
    );
}
