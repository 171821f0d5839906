//! One request: its parts are called as soon as what they need is there, all others at the same time.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{Method, StatusCode};
use json::{Document, Kind, Node};
use services::calls::at_once;
use services::{Calls, Duration, Request};
use tokio::time::{timeout, timeout_at};

use crate::input::Values;
use crate::plan::{Fallback, Over, Part, Plan, is_safe};
use crate::problem::{AggregateError, Failure, Reason};
use crate::render::{Item, Renderer, Stop};
use crate::stream::{self, Begun, Held};
use crate::template::{BodyTemplate, Source, slots};
use crate::value::{Body, Fan, Value, array, targets};

/// A request under way.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) inputs: Values,
    /// The client's body, where it is looked at.
    pub(crate) body: Option<Document>,
    pub(crate) calls: Calls,
    /// Whether the answer's body is not wanted.
    pub(crate) is_head: bool,
    values: Vec<OnceLock<Value>>,
}

/// A part that is over: its value, and why that is not what it should be.
type Done = Result<(Value, Option<Failure>), AggregateError>;

impl<'a> Run<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        inputs: Values,
        body: Option<Document>,
        calls: Calls,
        is_head: bool,
    ) -> Self {
        let values = plan.parts.iter().map(|_| OnceLock::new()).collect();
        Self { plan, inputs, body, calls, is_head, values }
    }

    /// The value of a part that is over.
    pub(crate) fn value(&self, part: usize) -> Option<&Value> {
        self.values.get(part)?.get()
    }

    /// Calls all parts, and says which failed that may.
    ///
    /// # Errors
    /// The first that may not fail and did: calls under way are given up.
    pub(crate) async fn all(&self) -> Result<Vec<Failure>, AggregateError> {
        let parts = &self.plan.parts;
        let mut waits: Vec<usize> = parts.iter().map(|part| part.needs.len()).collect();
        let ready = (0..parts.len()).filter(|part| waits[*part] == 0);
        let mut under_way: FuturesUnordered<_> = ready.map(|part| self.part(part)).collect();
        let mut failures = Vec::new();
        while let Some((done, result)) = under_way.next().await {
            let (value, failure) = result?;
            failures.extend(failure.map(|failure| (done, failure)));
            let _ = self.values[done].set(value);
            for (number, part) in parts.iter().enumerate() {
                if part.needs.contains(&done) {
                    waits[number] -= 1;
                    if waits[number] == 0 {
                        under_way.push(self.part(number));
                    }
                }
            }
        }
        failures.sort_by_key(|(part, _)| *part);
        Ok(failures.into_iter().map(|(_, failure)| failure).collect())
    }

    async fn part(&self, number: usize) -> (usize, Done) {
        let part = &self.plan.parts[number];
        let work = async {
            match &part.each {
                None => Ok((self.single(part).await?, None)),
                Some(each) => self.each(part, &each.over).await,
            }
        };
        // The deadline holds for what is called in no service's time, too: places in a line, all calls of an `each`.
        let deadline = self.calls.call().budget.deadline;
        let work = timeout_at(deadline.into(), work);
        let limit = part.timeout.unwrap_or(std::time::Duration::MAX);
        let late = || Err(Stop::Part(Reason::Time(Duration(limit.min(self.plan.limits.deadline.0)))));
        let result =
            timeout(limit, work).await.map_or_else(|_| late(), |done| done.unwrap_or_else(|_| late()));
        let over = match result {
            Ok((value, failure)) => Ok((value, failure)),
            Err(Stop::Request(error)) => Err(error),
            Err(Stop::Part(reason)) => {
                let failure = failure(part, reason);
                match fallback(part) {
                    Some(body) => Ok((Value::One(body), Some(failure))),
                    None => Err(failure.into()),
                }
            }
        };
        (number, over)
    }

    async fn single(&self, part: &'a Part) -> Result<Value, Stop> {
        let mut requests = Renderer { run: self, part, item: None }.requests()?;
        Ok(Value::One(match (requests.pop(), requests.is_empty()) {
            (None, _) => Body::literal("[]"),
            (Some(request), true) if part.streams && !self.is_head => return self.begun(part, request).await,
            (Some(request), true) => self.call(part, request).await?,
            (Some(last), false) => {
                requests.push(last);
                let calls = requests.into_iter().map(|request| self.call(part, request));
                let bodies = at_once(calls, self.plan.parallel).await?;
                if bodies.iter().any(|body| body.root().kind() != Kind::Array) {
                    return Err(Reason::BatchNotArray.into());
                }
                Body::read(array(bodies.iter().flat_map(|body| body.root().items()).map(Node::text)))
            }
        }))
    }

    /// Makes a call whose answer may be handed on while it comes.
    async fn begun(&self, part: &Part, request: Request) -> Result<Value, Stop> {
        let begun = stream::begin(self.calls.services(), self.calls.call(), part, request).await?;
        Ok(match begun {
            Begun::Whole(answer) => Value::One(read(part, answer)?),
            Begun::Long(long) => Value::Long(Held::new(long), Body::literal("null")),
        })
    }

    async fn each(&self, part: &'a Part, over: &'a Over) -> Result<(Value, Option<Failure>), Stop> {
        let items = self.items(over)?;
        let is_alike = is_safe(&part.method) && !looks_at_items_beside_the_url(part);
        let mut requests: Vec<Request> = Vec::new();
        let mut known: HashMap<http::uri::PathAndQuery, usize> = HashMap::new();
        let (mut of_item, mut wrong) = (Vec::with_capacity(items.len()), None::<Failure>);
        for (number, item) in items.into_iter().enumerate() {
            let request = match item {
                None => Ok(None),
                Some(item) => {
                    Renderer { run: self, part, item: Some(item) }.requests().map(|mut all| all.pop())
                }
            };
            of_item.push(match request {
                Ok(None) => None,
                Ok(Some(request)) => {
                    let next = requests.len();
                    let place = match is_alike {
                        true => *known.entry(request.path_and_query.clone()).or_insert(next),
                        false => next,
                    };
                    if place == next {
                        requests.push(request);
                    }
                    Some(place)
                }
                Err(Stop::Part(reason)) if !part.is_required() => {
                    wrong.get_or_insert_with(|| failure(part, reason)).items.push(number);
                    None
                }
                Err(stop) => return Err(stop),
            });
        }
        let most = self.plan.limits.fan_out;
        if requests.len() > most as usize {
            return Err(Reason::FanOut(requests.len(), most).into());
        }
        let calls = requests.into_iter().map(|request| async {
            match self.call(part, request).await {
                Ok(body) => Ok(Ok(body)),
                Err(reason) if part.is_required() => Err(reason),
                Err(reason) => Ok(Err(reason)),
            }
        });
        let answers = at_once(calls, self.plan.parallel).await?;
        let reason = answers
            .iter()
            .enumerate()
            .find_map(|(place, answer)| Some((place, answer.as_ref().err()?.clone())));
        if let Some((_, reason)) = reason {
            let failed = |place: &Option<usize>| {
                place.is_some_and(|place| answers.get(place).is_none_or(Result::is_err))
            };
            let items =
                of_item.iter().enumerate().filter(|(_, place)| failed(place)).map(|(number, _)| number);
            wrong.get_or_insert_with(|| failure(part, reason)).items.extend(items);
        }
        let instead = fallback(part).unwrap_or_else(|| Body::literal("null"));
        let answers = answers.into_iter().map(|answer| answer.unwrap_or_else(|_| instead.clone())).collect();
        Ok((Value::Each(Fan::new(answers, of_item)), wrong))
    }

    /// What an `each` is called for; `None` for `null`, which nothing is called for.
    fn items(&'a self, over: &'a Over) -> Result<Vec<Option<Item<'a>>>, Stop> {
        let (part, path) = match over {
            Over::Part(part, path) => (*part, path),
            Over::Input(input) => {
                let value = self.inputs.get(*input).and_then(Option::as_ref);
                let items =
                    value.into_iter().flat_map(|value| value.texts.iter().map(|text| (text, value.is_bare)));
                return Ok(items.map(|(text, is_bare)| Some(Item::Text(text, is_bare))).collect());
            }
        };
        let name = &self.plan.parts[part].name;
        let not_array = |kind: &'static str| Stop::from(Reason::EachNotArray(format!("$.{name}"), kind));
        let Some(value) = self.value(part) else { return Ok(Vec::new()) };
        let (mut wrong, mut items) = (None, Vec::new());
        let visited = path.visit(value.root(), &mut |node| match node.kind() {
            Kind::Array | Kind::Null => {}
            kind => wrong = Some(kind),
        });
        visited.map_err(|not| not_array(not.0.map_or("nothing", Kind::name)))?;
        if let Some(kind) = wrong.filter(|_| !path.steps().ends_with(&[json::Step::Each])) {
            return Err(not_array(kind.name()));
        }
        let add = &mut |node: Node<'a>| items.push((node.kind() != Kind::Null).then_some(Item::Node(node)));
        targets(value.root(), path, add).map_err(|not| not_array(not.0.map_or("nothing", Kind::name)))?;
        Ok(items)
    }

    /// Makes a call, and finds the part's value in the answer.
    async fn call(&self, part: &Part, request: Request) -> Result<Body, Reason> {
        let answer = self.calls.send(&part.service, request).await.map_err(Reason::Call)?;
        read(part, answer)
    }
}

/// Finds the part's value in an answer.
fn read(part: &Part, answer: services::Response) -> Result<Body, Reason> {
    if !answer.status.is_success() {
        return Err(Reason::Status(answer.status));
    }
    let is_empty = matches!(answer.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
    if part.method == Method::HEAD || (is_empty && answer.body.is_empty()) {
        return Ok(Body::literal("null"));
    }
    if answer.body.is_empty() {
        return Err(Reason::NoBody);
    }
    let document = Document::new(answer.body).map_err(Reason::NotJson)?;
    let start = match document.root().pointer(&part.at) {
        Ok(Some(node)) => node.start(),
        _ => return Err(Reason::NothingAt(part.at.clone())),
    };
    Ok(Body::at(document, start))
}

/// A part's value if it fails; `None` if it may not.
fn fallback(part: &Part) -> Option<Body> {
    match &part.fallback {
        Fallback::Required => None,
        Fallback::Null => Some(Body::literal("null")),
        Fallback::Default(document) => Some(Body::whole(Arc::clone(document))),
    }
}

pub(crate) fn failure(part: &Part, reason: Reason) -> Failure {
    Failure {
        part: Arc::clone(&part.name),
        service: Arc::clone(part.service.name()),
        reason,
        items: Vec::new(),
    }
}

/// Whether its calls for two items may differ in more than the URL.
fn looks_at_items_beside_the_url(part: &Part) -> bool {
    let headers = part.headers.iter().flat_map(|(_, template)| slots(template));
    let mut beside = headers.chain(part.body.iter().flat_map(BodyTemplate::slots));
    beside.any(|slot| matches!(slot.source, Source::Each(_)))
}
