//! A record of the clients' requests and answers, and a checker that compares it with the final state.
//!
//! Each request has a number when it is sent and another when its answer has arrived, both from one clock. A
//! request whose second number is smaller than the first number of another ended before that one began. An
//! acknowledged write must be present exactly once; any other write at most once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;

/// A request and its result.
#[derive(Clone, Debug)]
pub(super) enum LedgerEvent {
    /// An increment of the counter, with the new value if it was acknowledged.
    Incremented(Option<u64>),
    /// An entry was appended to the list.
    Appended { id: u64, is_acknowledged: bool },
    /// A resource with this name was created.
    Created { id: u64, is_acknowledged: bool },
    /// The counter was read.
    Read(u64),
    /// The list was read.
    Listed(Vec<u64>),
}

/// The final state.
#[derive(Debug, Default)]
pub(super) struct FinalState {
    pub(super) counter: u64,
    pub(super) list: Vec<u64>,
    pub(super) resources: BTreeSet<u64>,
}

/// All events of all clients.
#[derive(Debug, Default)]
pub(super) struct EventLedger(Mutex<LedgerEntries>);

#[derive(Debug, Default)]
struct LedgerEntries {
    clock: u64,
    events: Vec<(Range<u64>, LedgerEvent)>,
}

impl EventLedger {
    /// Advances the clock and returns the time.
    pub(super) fn now(&self) -> u64 {
        let mut entries = self.0.lock().expect("no panic");
        entries.clock += 1;
        entries.clock
    }

    /// Records an event that was sent at `sent` and ends now.
    pub(super) fn record(&self, sent: u64, event: LedgerEvent) {
        let over = self.now();
        self.0.lock().expect("no panic").events.push((sent..over, event));
    }

    /// Returns the number of acknowledged writes.
    pub(super) fn acknowledged_count(&self) -> usize {
        self.0.lock().expect("no panic").events.iter().filter(|(_, event)| event.is_acknowledged()).count()
    }

    /// Returns the resources that clients tried to create.
    pub(super) fn attempted_resources(&self) -> BTreeSet<u64> {
        let entries = self.0.lock().expect("no panic");
        let made = entries.events.iter().filter_map(|(_, event)| match event {
            LedgerEvent::Created { id, .. } => Some(*id),
            _ => None,
        });
        made.collect()
    }

    /// Returns every contradiction between the events and the final state.
    pub(super) fn contradictions(&self, left: &FinalState) -> Vec<String> {
        let entries = self.0.lock().expect("no panic");
        let mut found = check_counter(&entries.events, left.counter);
        found.extend(check_list(&entries.events, &left.list));
        found.extend(check_resources(&entries.events, &left.resources));
        found
    }
}

impl LedgerEvent {
    fn is_acknowledged(&self) -> bool {
        matches!(
            self,
            Self::Incremented(Some(_))
                | Self::Appended { is_acknowledged: true, .. }
                | Self::Created { is_acknowledged: true, .. }
        )
    }
}

type TimedEvent = (Range<u64>, LedgerEvent);

/// Checks that acknowledged increments have distinct values, that none exceeds the final value, and that
/// later reads never see less.
fn check_counter(events: &[TimedEvent], left: u64) -> Vec<String> {
    let mut found = Vec::new();
    let raised = events.iter().filter_map(|(when, event)| match event {
        LedgerEvent::Incremented(value) => Some((when, *value)),
        _ => None,
    });
    let sent = raised.clone().count() as u64;
    let told: Vec<_> = raised.filter_map(|(when, value)| Some((when.clone(), value?))).collect();
    let mut once = BTreeSet::new();
    found.extend(
        told.iter()
            .filter(|(_, value)| !once.insert(*value))
            .map(|(_, value)| format!("two increments were acknowledged with {value}")),
    );
    if left > sent {
        found.push(format!("{sent} increments were sent, but the counter is {left}"));
    }
    let read = events.iter().filter_map(|(when, event)| match event {
        LedgerEvent::Read(value) => Some((when.clone(), *value)),
        _ => None,
    });
    let seen: Vec<_> = told.iter().cloned().chain(read).collect();
    found.extend(
        seen.iter()
            .filter(|(_, value)| *value > left)
            .map(|(when, value)| format!("{value} was seen at {when:?}, but the counter is {left}")),
    );
    found.extend(decreased_values(seen));
    found
}

/// Checks that every acknowledged entry is present once, that no other entry is present, and that every list
/// that was read is a prefix of the final list.
fn check_list(events: &[TimedEvent], left: &[u64]) -> Vec<String> {
    let (mut sent, mut told) = (BTreeSet::new(), BTreeMap::new());
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for (when, event) in events {
        match event {
            LedgerEvent::Appended { id, is_acknowledged } => {
                sent.insert(*id);
                if *is_acknowledged {
                    told.insert(*id, when.clone());
                }
            }
            LedgerEvent::Listed(list) => {
                seen.push((when.clone(), list.len() as u64));
                if !left.starts_with(list) {
                    found.push(format!("the list read at {when:?} is not a prefix of the final list"));
                }
            }
            _ => {}
        }
    }
    let mut there = BTreeSet::new();
    found.extend(left.iter().filter(|id| !there.insert(**id)).map(|id| format!("entry {id} is there twice")));
    found.extend(there.difference(&sent).map(|id| format!("entry {id} was never sent")));
    let lost = told.iter().filter(|(id, _)| !there.contains(id));
    found.extend(lost.map(|(id, when)| format!("entry {id}, acknowledged at {when:?}, is lost")));
    // The position of an entry is the length of the list when the entry was appended.
    let places = left.iter().enumerate();
    seen.extend(places.filter_map(|(index, id)| Some((told.get(id)?.clone(), index as u64 + 1))));
    found.extend(decreased_values(seen));
    found
}

fn check_resources(events: &[TimedEvent], left: &BTreeSet<u64>) -> Vec<String> {
    let lost = events.iter().filter_map(|(when, event)| match event {
        LedgerEvent::Created { id, is_acknowledged: true } if !left.contains(id) => {
            Some(format!("resource {id}, acknowledged at {when:?}, is lost"))
        }
        _ => None,
    });
    lost.collect()
}

/// Returns the values that are less than one that was acknowledged before their request was sent.
fn decreased_values(mut seen: Vec<(Range<u64>, u64)>) -> Vec<String> {
    seen.sort_by_key(|(when, _)| when.start);
    let mut over: Vec<_> = seen.clone();
    over.sort_by_key(|(when, _)| when.end);
    let mut over = over.into_iter().peekable();
    let mut most = 0;
    let mut found = Vec::new();
    for (when, value) in seen {
        while let Some((_, earlier)) = over.next_if(|(earlier, _)| earlier.end < when.start) {
            most = most.max(earlier);
        }
        if value < most {
            found.push(format!("at {when:?} {value} was seen, after {most}"));
        }
    }
    found
}

/// Returns a ledger of these events, one after the other.
fn sequential_ledger(events: &[LedgerEvent]) -> EventLedger {
    let ledger = EventLedger::default();
    for event in events {
        let sent = ledger.now();
        ledger.record(sent, event.clone());
    }
    ledger
}

fn find_contradictions(events: &[LedgerEvent], left: &FinalState) -> Vec<String> {
    sequential_ledger(events).contradictions(left)
}

#[test]
fn accepts_writes_that_are_present_once() {
    let events = [
        LedgerEvent::Incremented(Some(1)),
        LedgerEvent::Incremented(None),
        LedgerEvent::Incremented(Some(3)),
        LedgerEvent::Read(3),
        LedgerEvent::Appended { id: 7, is_acknowledged: true },
        LedgerEvent::Appended { id: 8, is_acknowledged: false },
        LedgerEvent::Listed(vec![7]),
        LedgerEvent::Created { id: 9, is_acknowledged: true },
        LedgerEvent::Created { id: 10, is_acknowledged: false },
    ];
    let left = FinalState { counter: 3, list: vec![7], resources: [9].into() };
    assert_eq!(find_contradictions(&events, &left), [""; 0]);
}

#[test]
fn reports_lost_duplicate_and_decreasing_values() {
    let append = |id| LedgerEvent::Appended { id, is_acknowledged: true };
    let of_list = |list: &[u64]| FinalState { list: list.to_vec(), ..FinalState::default() };
    let of_counter = |counter| FinalState { counter, ..FinalState::default() };
    for (events, left, said) in [
        (vec![LedgerEvent::Incremented(Some(1))], of_counter(0), "the counter is 0"),
        (vec![LedgerEvent::Incremented(Some(1))], of_counter(2), "1 increments were sent"),
        (
            vec![LedgerEvent::Incremented(Some(1)), LedgerEvent::Incremented(Some(1))],
            of_counter(2),
            "two increments",
        ),
        (
            vec![LedgerEvent::Incremented(Some(1)), LedgerEvent::Incremented(Some(2)), LedgerEvent::Read(1)],
            of_counter(2),
            "1 was seen, after 2",
        ),
        (vec![LedgerEvent::Read(5)], of_counter(0), "5 was seen"),
        (vec![append(1)], of_list(&[]), "entry 1, acknowledged at 1..2, is lost"),
        (vec![append(1)], of_list(&[1, 1]), "there twice"),
        (vec![append(1)], of_list(&[1, 2]), "was never sent"),
        (vec![append(1), append(2)], of_list(&[2, 1]), "1 was seen, after 2"),
        (vec![append(1), LedgerEvent::Listed(vec![])], of_list(&[1]), "0 was seen, after 1"),
        (vec![append(1), LedgerEvent::Listed(vec![2])], of_list(&[1]), "not a prefix"),
        (vec![LedgerEvent::Created { id: 1, is_acknowledged: true }], FinalState::default(), "resource 1"),
    ] {
        let found = find_contradictions(&events, &left);
        assert!(found.iter().any(|found| found.contains(said)), "{events:?}: {found:?}");
    }
}

#[test]
fn accepts_concurrent_requests_in_any_order() {
    let ledger = EventLedger::default();
    let sent = [ledger.now(), ledger.now()];
    ledger.record(sent[0], LedgerEvent::Incremented(Some(2)));
    ledger.record(sent[1], LedgerEvent::Incremented(Some(1)));
    assert_eq!(ledger.contradictions(&FinalState { counter: 2, ..FinalState::default() }), [""; 0]);
}
