//! A part that is called for each item of an array: equal calls once, several for an item whose list is long.

use std::collections::HashMap;
use std::ops::Range;

use http::uri::PathAndQuery;
use json::{Kind, Node, Step};
use services::Request;
use services::calls::at_once;

use super::{Run, failure, fallback};
use crate::plan::{Over, Part, is_safe};
use crate::problem::{Failure, Reason};
use crate::render::{Item, Renderer, Stop};
use crate::template::{BodyTemplate, Source, slots};
use crate::value::{Body, Fan, Value, joined, targets};

/// The calls of all items.
struct Calls {
    /// Whether two items with the same URL have the same call.
    are_alike: bool,
    requests: Vec<Request>,
    known: HashMap<PathAndQuery, usize>,
    /// The numbers of each item's requests, one item's behind the other's.
    numbers: Vec<usize>,
}

impl Calls {
    /// Which of the numbers are those of an item with these requests.
    fn add(&mut self, requests: Vec<Request>) -> Range<usize> {
        let start = self.numbers.len();
        for request in requests {
            let next = self.requests.len();
            let number = match self.are_alike {
                true => *self.known.entry(request.path_and_query.clone()).or_insert(next),
                false => next,
            };
            if number == next {
                self.requests.push(request);
            }
            self.numbers.push(number);
        }
        start..self.numbers.len()
    }
}

impl<'a> Run<'a> {
    pub(super) async fn each(
        &self,
        part: &'a Part,
        over: &'a Over,
    ) -> Result<(Value, Option<Failure>), Stop> {
        let items = self.items(over)?;
        let mut calls = Calls {
            are_alike: is_safe(&part.method) && !looks_at_items_beside_the_url(part),
            requests: Vec::new(),
            known: HashMap::new(),
            numbers: Vec::with_capacity(items.len()),
        };
        let (mut of_item, mut wrong) = (Vec::with_capacity(items.len()), None::<Failure>);
        for (number, item) in items.into_iter().enumerate() {
            let Some(item) = item else {
                of_item.push(None);
                continue;
            };
            of_item.push(match (Renderer { known: self.known, part, item: Some(item) }).requests() {
                Ok(requests) => Some(calls.add(requests)),
                Err(Stop::Part(reason)) if !part.is_required() => {
                    wrong.get_or_insert_with(|| failure(part, reason)).items.push(number);
                    None
                }
                Err(stop) => return Err(stop),
            });
        }
        let most = self.known.plan.limits.fan_out;
        if calls.requests.len() > most as usize {
            return Err(Reason::FanOut(calls.requests.len(), most).into());
        }
        let made = calls.requests.into_iter().map(|request| async {
            match self.call(part, request).await {
                Err(reason) if part.is_required() => Err(reason),
                answer => Ok(answer),
            }
        });
        let mut answers =
            Answers { made: at_once(made, self.known.plan.parallel).await?, joined: HashMap::new() };
        let instead = fallback(part).unwrap_or_else(|| Body::literal("null"));
        let mut found = Vec::with_capacity(of_item.len());
        for (item, numbers) in of_item.into_iter().enumerate() {
            let numbers = numbers.and_then(|numbers| calls.numbers.get(numbers));
            let place = numbers.map(|numbers| answers.of(numbers));
            if let Some(Err(reason)) = place.and_then(|place| answers.made.get(place)) {
                if part.is_required() {
                    return Err(reason.clone().into());
                }
                wrong.get_or_insert_with(|| failure(part, reason.clone())).items.push(item);
            }
            found.push(place);
        }
        if let Some(wrong) = &mut wrong {
            wrong.items.sort_unstable();
        }
        let answers = answers.made.into_iter().map(|answer| answer.unwrap_or_else(|_| instead.clone()));
        Ok((Value::Each(Fan::new(answers.collect(), found)), wrong))
    }

    /// What an `each` is called for; `None` for `null`, which nothing is called for.
    fn items(&'a self, over: &'a Over) -> Result<Vec<Option<Item<'a>>>, Stop> {
        let (part, path) = match over {
            Over::Part(part, path) => (*part, path),
            Over::Input(input) => {
                let value = self.known.inputs.get(*input).and_then(Option::as_ref);
                let items =
                    value.into_iter().flat_map(|value| value.texts.iter().map(|text| (text, value.is_bare)));
                return Ok(items.map(|(text, is_bare)| Some(Item::Text(text, is_bare))).collect());
            }
        };
        let name = &self.known.plan.parts[part].name;
        let not_array = |kind: &'static str| Stop::from(Reason::EachNotArray(format!("$.{name}"), kind));
        let Some(value) = self.known.value(part) else { return Ok(Vec::new()) };
        let (mut wrong, mut items) = (None, Vec::new());
        let visited = path.visit(value.root(), &mut |node| match node.kind() {
            Kind::Array | Kind::Null => {}
            kind => wrong = Some(kind),
        });
        visited.map_err(|not| not_array(not.0.map_or("nothing", Kind::name)))?;
        if let Some(kind) = wrong.filter(|_| !path.steps().ends_with(&[Step::Each])) {
            return Err(not_array(kind.name()));
        }
        let add = &mut |node: Node<'a>| items.push((node.kind() != Kind::Null).then_some(Item::Node(node)));
        targets(value.root(), path, add).map_err(|not| not_array(not.0.map_or("nothing", Kind::name)))?;
        Ok(items)
    }
}

/// What the calls brought, and behind it what was made of that for items with several calls, or none.
struct Answers {
    made: Vec<Result<Body, Reason>>,
    joined: HashMap<Vec<usize>, usize>,
}

impl Answers {
    /// The place of the answer of an item with these calls.
    fn of(&mut self, numbers: &[usize]) -> usize {
        if let [only] = numbers {
            return *only;
        }
        if let Some(place) = self.joined.get(numbers) {
            return *place;
        }
        let bodies = numbers.iter().filter_map(|number| self.made.get(*number).cloned());
        let answer = bodies.collect::<Result<Vec<Body>, Reason>>().and_then(|bodies| joined(&bodies));
        self.made.push(answer);
        self.joined.insert(numbers.to_vec(), self.made.len() - 1);
        self.made.len() - 1
    }
}

/// Whether its calls for two items may differ in more than the URL.
fn looks_at_items_beside_the_url(part: &Part) -> bool {
    let headers = part.headers.iter().flat_map(|(_, template)| slots(template));
    let mut beside = headers.chain(part.body.iter().flat_map(BodyTemplate::slots));
    beside.any(|slot| matches!(slot.source, Source::Each(_)))
}
