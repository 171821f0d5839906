//! What clients sent, what they were told, and whether the state that is left agrees.
//!
//! Each request has a number when it is sent and one when its answer has come, all from one clock, so that one is known
//! to have been over before another began. What was acknowledged has to be there once; what was not may be there once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;

/// What was asked, and what came of it.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The counter was raised, to this.
    Raised(Option<u64>),
    /// This was put at the end of the list.
    Appended { id: u64, is_acknowledged: bool },
    /// A resource of this name was made.
    Made { id: u64, is_acknowledged: bool },
    /// The counter was read.
    Read(u64),
    /// The list was read.
    Listed(Vec<u64>),
}

/// The state in the end.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) counter: u64,
    pub(super) list: Vec<u64>,
    pub(super) resources: BTreeSet<u64>,
}

/// All that clients have seen.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    clock: u64,
    events: Vec<(Range<u64>, Event)>,
}

impl Ledger {
    /// The time, which goes on.
    pub(super) fn now(&self) -> u64 {
        let mut entries = self.0.lock().expect("no panic");
        entries.clock += 1;
        entries.clock
    }

    /// What was sent then is over now.
    pub(super) fn note(&self, sent: u64, event: Event) {
        let over = self.now();
        self.0.lock().expect("no panic").events.push((sent..over, event));
    }

    /// How much was acknowledged.
    pub(super) fn acknowledged(&self) -> usize {
        self.0.lock().expect("no panic").events.iter().filter(|(_, event)| event.is_acknowledged()).count()
    }

    /// The resources that clients wanted made.
    pub(super) fn made(&self) -> BTreeSet<u64> {
        let entries = self.0.lock().expect("no panic");
        let made = entries.events.iter().filter_map(|(_, event)| match event {
            Event::Made { id, .. } => Some(*id),
            _ => None,
        });
        made.collect()
    }

    /// What the clients were told that is not so.
    pub(super) fn contradictions(&self, left: &Left) -> Vec<String> {
        let entries = self.0.lock().expect("no panic");
        let mut found = counter(&entries.events, left.counter);
        found.extend(list(&entries.events, &left.list));
        found.extend(resources(&entries.events, &left.resources));
        found
    }
}

impl Event {
    fn is_acknowledged(&self) -> bool {
        matches!(
            self,
            Self::Raised(Some(_))
                | Self::Appended { is_acknowledged: true, .. }
                | Self::Made { is_acknowledged: true, .. }
        )
    }
}

type Timed = (Range<u64>, Event);

/// Every acknowledged increment is a number of its own, up to the last; and whoever looks later sees no less.
fn counter(events: &[Timed], left: u64) -> Vec<String> {
    let mut found = Vec::new();
    let raised = events.iter().filter_map(|(when, event)| match event {
        Event::Raised(value) => Some((when, *value)),
        _ => None,
    });
    let sent = raised.clone().count() as u64;
    let told: Vec<_> = raised.filter_map(|(when, value)| Some((when.clone(), value?))).collect();
    let mut once = BTreeSet::new();
    found.extend(
        told.iter()
            .filter(|(_, value)| !once.insert(*value))
            .map(|(_, value)| format!("two increments were told that they made it {value}")),
    );
    if left > sent {
        found.push(format!("{sent} increments were sent, and the counter is {left}"));
    }
    let read = events.iter().filter_map(|(when, event)| match event {
        Event::Read(value) => Some((when.clone(), *value)),
        _ => None,
    });
    let seen: Vec<_> = told.iter().cloned().chain(read).collect();
    found.extend(
        seen.iter()
            .filter(|(_, value)| *value > left)
            .map(|(when, value)| format!("{value} was seen at {when:?}, and the counter is {left}")),
    );
    found.extend(backwards(seen));
    found
}

/// Every acknowledged entry is there, none twice, none that nobody sent; and every list that was read is its beginning.
fn list(events: &[Timed], left: &[u64]) -> Vec<String> {
    let (mut sent, mut told) = (BTreeSet::new(), BTreeMap::new());
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for (when, event) in events {
        match event {
            Event::Appended { id, is_acknowledged } => {
                sent.insert(*id);
                if *is_acknowledged {
                    told.insert(*id, when.clone());
                }
            }
            Event::Listed(list) => {
                seen.push((when.clone(), list.len() as u64));
                if !left.starts_with(list) {
                    found.push(format!(
                        "at {when:?} a list was read that is not the beginning of the last one"
                    ));
                }
            }
            _ => {}
        }
    }
    let mut there = BTreeSet::new();
    found.extend(left.iter().filter(|id| !there.insert(**id)).map(|id| format!("entry {id} is there twice")));
    found.extend(there.difference(&sent).map(|id| format!("nobody sent entry {id}")));
    let lost = told.iter().filter(|(id, _)| !there.contains(id));
    found.extend(lost.map(|(id, when)| format!("entry {id}, acknowledged at {when:?}, is lost")));
    // Where an entry stands says how long the list was when it was put there.
    let places = left.iter().enumerate();
    seen.extend(places.filter_map(|(index, id)| Some((told.get(id)?.clone(), index as u64 + 1))));
    found.extend(backwards(seen));
    found
}

fn resources(events: &[Timed], left: &BTreeSet<u64>) -> Vec<String> {
    let lost = events.iter().filter_map(|(when, event)| match event {
        Event::Made { id, is_acknowledged: true } if !left.contains(id) => {
            Some(format!("resource {id}, acknowledged at {when:?}, is lost"))
        }
        _ => None,
    });
    lost.collect()
}

/// Values that are less than one that was told before they were asked for.
fn backwards(mut seen: Vec<(Range<u64>, u64)>) -> Vec<String> {
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

/// The ledger of these events, each over before the next begins.
fn ledger(events: &[Event]) -> Ledger {
    let ledger = Ledger::default();
    for event in events {
        let sent = ledger.now();
        ledger.note(sent, event.clone());
    }
    ledger
}

fn told(events: &[Event], left: &Left) -> Vec<String> {
    ledger(events).contradictions(left)
}

#[test]
fn what_is_there_once_is_no_contradiction() {
    let events = [
        Event::Raised(Some(1)),
        Event::Raised(None),
        Event::Raised(Some(3)),
        Event::Read(3),
        Event::Appended { id: 7, is_acknowledged: true },
        Event::Appended { id: 8, is_acknowledged: false },
        Event::Listed(vec![7]),
        Event::Made { id: 9, is_acknowledged: true },
        Event::Made { id: 10, is_acknowledged: false },
    ];
    let left = Left { counter: 3, list: vec![7], resources: [9].into() };
    assert_eq!(told(&events, &left), [""; 0]);
}

#[test]
fn what_is_lost_or_there_twice_or_goes_backwards_is_one() {
    let append = |id| Event::Appended { id, is_acknowledged: true };
    let of_list = |list: &[u64]| Left { list: list.to_vec(), ..Left::default() };
    let of_counter = |counter| Left { counter, ..Left::default() };
    for (events, left, said) in [
        (vec![Event::Raised(Some(1))], of_counter(0), "the counter is 0"),
        (vec![Event::Raised(Some(1))], of_counter(2), "1 increments were sent"),
        (vec![Event::Raised(Some(1)), Event::Raised(Some(1))], of_counter(2), "two increments"),
        (
            vec![Event::Raised(Some(1)), Event::Raised(Some(2)), Event::Read(1)],
            of_counter(2),
            "1 was seen, after 2",
        ),
        (vec![Event::Read(5)], of_counter(0), "5 was seen"),
        (vec![append(1)], of_list(&[]), "entry 1, acknowledged at 1..2, is lost"),
        (vec![append(1)], of_list(&[1, 1]), "there twice"),
        (vec![append(1)], of_list(&[1, 2]), "nobody sent"),
        (vec![append(1), append(2)], of_list(&[2, 1]), "1 was seen, after 2"),
        (vec![append(1), Event::Listed(vec![])], of_list(&[1]), "0 was seen, after 1"),
        (vec![append(1), Event::Listed(vec![2])], of_list(&[1]), "not the beginning"),
        (vec![Event::Made { id: 1, is_acknowledged: true }], Left::default(), "resource 1"),
    ] {
        let found = told(&events, &left);
        assert!(found.iter().any(|found| found.contains(said)), "{events:?}: {found:?}");
    }
}

#[test]
fn what_is_under_way_at_once_may_come_in_any_order() {
    let ledger = Ledger::default();
    let sent = [ledger.now(), ledger.now()];
    ledger.note(sent[0], Event::Raised(Some(2)));
    ledger.note(sent[1], Event::Raised(Some(1)));
    assert_eq!(ledger.contradictions(&Left { counter: 2, ..Left::default() }), [""; 0]);
}
