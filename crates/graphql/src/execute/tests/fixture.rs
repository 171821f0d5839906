//! Simulated services: a table of JSON texts by path for REST services, and a log of the requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use graphql_tools::static_graphql::schema::{Definition, TypeDefinition};
use json::{JsonDocument, JsonNode, JsonTree};
use serde_json::Value;

use super::resolver::TestResolver;
use super::simulated_services::SimulatedServices;
use super::subgraph::TestSubgraph;
use crate::execute::step_executor::StepRequest;
use crate::execute::{AnswerRules, CoercedVariables, StepExecutor};
use crate::plan::data::{PlanCall, PlanStep, SubgraphDocument};
use crate::plan::{QueryPlan, QueryPlanner};
use crate::schema::{SchemaDescription, SchemaSource, build_subgraphs};
use crate::{
    BatchStrategy, BoundCall, EntityBinding, FetchOutcome, FetchedValues, GraphqlLimits, ItemMatch,
    LinkedField, SchemaDeclarations, ServiceSchema, SourceError, Subgraph, SubgraphBindings,
    SubgraphProtocol, TypeBinding, ValueLocation, compose, read_supergraph,
};

/// Services and their responses.
pub(super) struct ExecutionFixture {
    pub(super) planner: QueryPlanner,
    answers: BTreeMap<String, String>,
    /// The data of GraphQL services, by name.
    graphs: Value,
    /// The interfaces and unions of each type.
    kinds: Value,
    /// The simulated subgraphs with shared data.
    simulated: Option<SimulatedServices>,
    requests: Mutex<Vec<String>>,
    /// The maximum response size in bytes.
    pub(super) max_bytes: usize,
}

impl ExecutionFixture {
    /// Creates services from OpenAPI documents and links, with responses by `service/path`.
    pub(super) fn with_rest_services(
        services: &[(&str, &str)],
        links: &str,
        answers: &[(&str, &str)],
    ) -> Self {
        let documents: Vec<(Arc<str>, openapi::OpenApiDocument)> = services
            .iter()
            .map(|(name, text)| {
                ((*name).into(), openapi::OpenApiDocument::parse(text).expect("an OpenAPI document"))
            })
            .collect();
        let described: Vec<SchemaSource<'_>> = documents
            .iter()
            .map(|(name, document)| SchemaSource {
                name: Arc::clone(name),
                description: SchemaDescription::OpenApi(document),
            })
            .collect();
        let links: SchemaDeclarations = serde_json::from_str(links).expect("links");
        let (subgraphs, _) = build_subgraphs(&described, &links).expect("subgraphs");
        Self::from_subgraphs(subgraphs, answers)
    }

    /// Creates subgraphs from their SDL and data.
    pub(super) fn with_subgraphs(services: &[(&str, String)], graphs: Value) -> Self {
        let subgraph = |(name, sdl): &(&str, String)| Subgraph {
            name: (*name).into(),
            sdl: sdl.clone(),
            kind: SubgraphProtocol::Remote {
                path: "/graphql".into(),
                bindings: Arc::default(),
                is_federated: true,
            },
        };
        Self { graphs, ..Self::from_subgraphs(services.iter().map(subgraph).collect(), &[]) }
    }

    /// Creates a GraphQL service `shop` that is not a federated subgraph, with links and data.
    pub(super) fn with_graphql_service(sdl: &str, links: &str, graph: &Value) -> Self {
        let says = SchemaDescription::Graphql { path: "/graphql".into(), text: sdl, is_federated: false };
        let links: SchemaDeclarations = serde_json::from_str(links).expect("links");
        let shop = SchemaSource { name: "shop".into(), description: says };
        let (subgraphs, _) = build_subgraphs(&[shop], &links).expect("subgraphs");
        Self { graphs: serde_json::json!({ "shop": graph }), ..Self::from_subgraphs(subgraphs, &[]) }
    }

    /// Creates a service `shop` with its own names for everything: `Order` is its `T`, `number` its `no`,
    /// `OPEN` its `open`. `Order.next` is a link to the service itself.
    pub(super) fn with_renamed_service(graph: Value) -> Self {
        let sdl = r#"extend schema @link(url: "https://specs.apollo.dev/federation/v2.3", import: ["@key"])
          type Query { orders(state: OrderState): [Thing] } union Thing = Order | U type U { x: Int }
          type Order { number: Int after: Int state: OrderState next: Order } enum OrderState { OPEN }"#;
        let words = |words: &[(&str, &str)]| {
            words
                .iter()
                .map(|(name, own)| ((*name).into(), (*own).into()))
                .collect::<HashMap<Box<str>, Box<str>>>()
        };
        let ask = BoundCall::Field { name: "find".into(), arguments: Vec::new() };
        let link =
            LinkedField { needed_fields: vec!["after".into()], strategy: BatchStrategy::PerObject(ask) };
        let entity =
            EntityBinding { links: HashMap::from([("next".into(), link)]), ..EntityBinding::default() };
        let binding = |name: Option<&str>, fields: &[(&str, &str)], values: &[(&str, &str)]| TypeBinding {
            name: name.map(Into::into),
            fields: words(fields),
            values: words(values),
            ..TypeBinding::default()
        };
        let bindings = SubgraphBindings {
            types: HashMap::from([
                ("Order".into(), binding(Some("T"), &[("number", "no"), ("after", "next")], &[])),
                ("OrderState".into(), binding(Some("State"), &[], &[("OPEN", "open")])),
                ("Query".into(), binding(None, &[("orders", "list")], &[])),
            ]),
            entities: HashMap::from([("Order".into(), entity)]),
            ..SubgraphBindings::default()
        };
        let (path, bindings) = ("/graphql".into(), Arc::new(bindings));
        let kind = SubgraphProtocol::Remote { path, bindings, is_federated: false };
        let rig =
            Self::from_subgraphs(vec![Subgraph { name: "shop".into(), sdl: sdl.to_owned(), kind }], &[]);
        Self { graphs: serde_json::json!({ "shop": graph }), ..rig }
    }

    /// Creates the services of a supergraph from shared data.
    pub(super) fn with_supergraph(supergraph: &str, data: Value) -> Self {
        let services = read_supergraph(supergraph).expect("a supergraph").services;
        let subgraph = |name| Subgraph {
            name,
            sdl: String::new(),
            kind: SubgraphProtocol::Remote {
                path: "/graphql".into(),
                bindings: Arc::default(),
                is_federated: true,
            },
        };
        let subgraphs = services.into_iter().map(subgraph).collect();
        let planner =
            QueryPlanner::new(supergraph, subgraphs, &GraphqlLimits::default(), true).expect("a planner");
        let services = TestSubgraph::from_supergraph(supergraph);
        let played =
            SimulatedServices { data, services, additions: Mutex::default(), violations: Mutex::default() };
        Self { simulated: Some(played), ..Self::with_planner(planner, BTreeMap::new(), Value::Null) }
    }

    fn with_planner(planner: QueryPlanner, answers: BTreeMap<String, String>, kinds: Value) -> Self {
        let (requests, max_bytes) = (Mutex::default(), 16 << 20);
        Self { planner, answers, graphs: Value::Null, kinds, simulated: None, requests, max_bytes }
    }

    /// Resets the state that mutations have changed.
    pub(super) fn reset_mutations(&self) {
        if let Some(played) = &self.simulated {
            *played.additions.lock().unwrap() = 0;
        }
    }

    /// Returns and clears the invalid requests to services.
    pub(super) fn take_violations(&self) -> Vec<String> {
        let played = self.simulated.as_ref();
        played.map(|played| std::mem::take(&mut *played.violations.lock().unwrap())).unwrap_or_default()
    }

    pub(super) fn from_subgraphs(subgraphs: Vec<Subgraph>, answers: &[(&str, &str)]) -> Self {
        let parts: Vec<ServiceSchema<'_>> = subgraphs
            .iter()
            .map(|subgraph| ServiceSchema { name: &subgraph.name, sdl: &subgraph.sdl })
            .collect();
        let supergraph = compose(&parts).expect("a supergraph");
        let planner = QueryPlanner::new(&supergraph.sdl, subgraphs, &GraphqlLimits::default(), true)
            .expect("a planner");
        let answers = answers.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let mut kinds = serde_json::Map::new();
        for definition in &planner.schema().definitions {
            let Definition::TypeDefinition(definition) = definition else { continue };
            let (kinds_of, names) = match definition {
                TypeDefinition::Object(object) => (object.name.clone(), object.implements_interfaces.clone()),
                TypeDefinition::Union(union) => {
                    for member in &union.types {
                        let known = kinds.entry(member.clone()).or_insert_with(|| Value::Array(Vec::new()));
                        known.as_array_mut().expect("a list").push(union.name.clone().into());
                    }
                    continue;
                }
                _ => continue,
            };
            let known = kinds.entry(kinds_of).or_insert_with(|| Value::Array(Vec::new()));
            known.as_array_mut().expect("a list").extend(names.into_iter().map(Value::from));
        }
        Self::with_planner(planner, answers, kinds.into())
    }

    pub(super) async fn query(&self, document: &str) -> String {
        self.query_with_variables(document, "{}").await
    }

    /// Returns the complete response to a document.
    pub(super) async fn query_with_variables(&self, document: &str, variables: &str) -> String {
        let plan = match self.planner.plan(document, None) {
            Ok(plan) => plan,
            Err(errors) => {
                return format!(
                    "{:?}",
                    errors.iter().map(|error| error.to_json().to_string()).collect::<Vec<_>>()
                );
            }
        };
        let variables = match CoercedVariables::coerce(&plan, Bytes::copy_from_slice(variables.as_bytes())) {
            Ok(variables) => variables,
            Err(errors) => {
                let errors: Vec<_> = errors.iter().map(crate::GraphqlError::to_json).collect();
                return serde_json::json!({ "errors": errors }).to_string();
            }
        };
        let mut text = Vec::new();
        self.execute_plan(&plan, variables).await.write(&mut text);
        String::from_utf8(text).expect("UTF-8")
    }

    /// Returns the response to a document as the executor creates it.
    pub(super) async fn query_tree(&self, document: &str) -> JsonTree {
        let plan = self.planner.plan(document, None).expect("a plan");
        let variables = CoercedVariables::coerce(&plan, "{}".into()).expect("defaults");
        self.execute_plan(&plan, variables).await
    }

    async fn execute_plan(&self, plan: &QueryPlan, variables: CoercedVariables) -> JsonTree {
        let rules =
            AnswerRules { max_bytes: self.max_bytes, exposes_schema: true, introspection_values: Vec::new() };
        let answer = super::super::run(plan, self.planner.schema(), variables.into(), self, &rules).await;
        super::repeated_objects::check_repetitions(&answer.tree);
        answer.tree
    }

    /// Returns and clears the log of requests.
    pub(super) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    /// Returns and clears the log of requests, sorted.
    pub(super) fn take_sorted_requests(&self) -> Vec<String> {
        let mut asked = self.take_requests();
        asked.sort();
        asked
    }

    fn respond(&self, line: String) -> Result<&str, SourceError> {
        self.requests.lock().unwrap().push(line.clone());
        match self.answers.get(&line) {
            Some(text) => Ok(text),
            None => Err(SourceError {
                message: format!("no response for {line}"),
                code: "upstream-status",
                service: line.split('/').next().unwrap_or_default().into(),
                status: Some(500),
                reported_errors: Vec::new(),
            }),
        }
    }

    /// Returns a GraphQL service's response.
    fn execute_document(&self, step: &PlanStep, document: &SubgraphDocument, variables: Value) -> Value {
        self.requests.lock().unwrap().push(format!("{}{} {variables}", step.service, document.path));
        if let Some(played) = &self.simulated {
            return played.execute(&step.service, &document.text, &variables);
        }
        let data = &self.graphs[&*step.service];
        let parsed = graphql_tools::parser::parse_query(&document.text).expect("a document").into_static();
        let (kinds, errors) = (&self.kinds, Vec::new());
        TestResolver { data, variables: &variables, kinds, document: parsed, errors }.execute()
    }

    fn fetch_document(
        &self,
        step: &PlanStep,
        document: &SubgraphDocument,
        asked: &StepRequest,
    ) -> FetchedValues {
        let response = self.execute_document(step, document, variables_json(asked));
        let mut fetched = FetchedValues::default();
        let place = add_value(&mut fetched, &response["data"]);
        let found = match reported_error(step, &response, &[]) {
            Some(error) => {
                fetched.errors.push(error);
                FetchOutcome::Partial(place, 0)
            }
            None => FetchOutcome::One(place),
        };
        fetched.outcomes.push(found);
        fetched
    }

    fn fetch_entities(
        &self,
        step: &PlanStep,
        document: &SubgraphDocument,
        aliases: &[(Box<str>, Box<str>)],
        asked: &StepRequest,
    ) -> FetchedValues {
        let mut variables = variables_json(asked);
        for ((_, variable), known) in aliases.iter().zip(&asked.representations) {
            let known = known.iter().map(|text| serde_json::from_slice::<Value>(text).expect("JSON"));
            variables[&**variable] = known.collect();
        }
        let response = self.execute_document(step, document, variables);
        let mut fetched = FetchedValues::default();
        for (alias, _) in aliases {
            for (number, entity) in response["data"][&**alias].as_array().into_iter().flatten().enumerate() {
                let place = add_value(&mut fetched, entity);
                let found = match reported_error(step, &response, &[(**alias).into(), number.into()]) {
                    _ if entity.is_null() => FetchOutcome::Null,
                    Some(error) => {
                        fetched.errors.push(error);
                        FetchOutcome::Partial(place, fetched.errors.len() as u32 - 1)
                    }
                    None => FetchOutcome::One(place),
                };
                fetched.outcomes.push(found);
            }
        }
        fetched
    }

    fn fetch_keyed(&self, step: &PlanStep, how: &BatchStrategy, asked: &StepRequest) -> FetchedValues {
        let nodes = asked.keys.nodes();
        let rows: Vec<HashMap<&str, String>> = nodes
            .chunks(step.needed_fields().len().max(1))
            .map(|row| {
                let text = |node: &json::JsonNode<'_>| String::from_utf8_lossy(node.text()).into_owned();
                step.needed_fields().iter().map(|need| &**need).zip(row.iter().map(text)).collect()
            })
            .collect();
        let mut fetched = FetchedValues::default();
        match how {
            BatchStrategy::PerObject(ask) => {
                for row in &rows {
                    let found = match self.respond(request_line(step, ask, row)) {
                        Ok("null") => FetchOutcome::Null,
                        Ok(text) => {
                            let place = add_text(&mut fetched, text);
                            let document = Arc::clone(&fetched.documents[place.document as usize]);
                            match object_error(document.root()) {
                                None => FetchOutcome::One(place),
                                Some(error) => {
                                    fetched.errors.push(error);
                                    FetchOutcome::Partial(place, fetched.errors.len() as u32 - 1)
                                }
                            }
                        }
                        Err(error) => add_failure(&mut fetched, error),
                    };
                    fetched.outcomes.push(found);
                }
            }
            BatchStrategy::WholeList(ask, joined) | BatchStrategy::KeyBatches(ask, joined) => {
                let all: Vec<String> = rows.iter().map(|row| row[&*joined.key].clone()).collect();
                let keys = HashMap::from([(&*joined.key, all.join(","))]);
                match self.respond(request_line(step, ask, &keys)) {
                    Ok(list) => join_items(&mut fetched, list, joined, &all),
                    Err(error) => {
                        let found = add_failure(&mut fetched, error);
                        fetched.outcomes = vec![found; rows.len()];
                    }
                }
            }
        }
        fetched
    }
}

fn variables_json(asked: &StepRequest) -> Value {
    let variable =
        |(name, text): &(Box<str>, Bytes)| (name.to_string(), serde_json::from_slice(text).expect("JSON"));
    Value::Object(asked.variables.iter().map(variable).collect())
}

/// Returns the errors of a response below a path, with their paths relative to it.
fn reported_error(step: &PlanStep, response: &Value, path: &[Value]) -> Option<SourceError> {
    let below = |error: &Value| {
        let rest = error["path"].as_array()?.strip_prefix(path)?.to_vec();
        Some(serde_json::json!({ "message": error["message"], "path": rest }))
    };
    let told: Vec<Value> = response["errors"].as_array()?.iter().filter_map(below).collect();
    let (message, service) = ("reported by the service".to_owned(), Arc::clone(&step.service));
    let error =
        SourceError { message, code: "upstream-errors", service, status: None, reported_errors: told };
    (!error.reported_errors.is_empty()).then_some(error)
}

/// Returns the error in an object's member `__error`.
fn object_error(object: JsonNode<'_>) -> Option<SourceError> {
    let told = vec![serde_json::from_slice(object.member(b"__error")?.text()).expect("JSON")];
    let (message, service) = ("reported by the service".to_owned(), "service".into());
    Some(SourceError { message, code: "upstream-errors", service, status: None, reported_errors: told })
}

/// Returns the request line: `service/path?parameters`.
fn request_line(step: &PlanStep, ask: &BoundCall, keys: &HashMap<&str, String>) -> String {
    let BoundCall::Rest(operation) = ask else { return format!("{}/?", step.service) };
    let mut path = operation.path.to_string();
    let mut query = Vec::new();
    for parameter in &operation.parameters {
        let crate::subgraph::ParameterSource::Key(key) = &parameter.source else { continue };
        let value = keys.get(&**key).cloned().unwrap_or_default();
        let place = format!("{{{}}}", parameter.name);
        match path.contains(&place) {
            true => path = path.replace(&place, &value),
            false => query.push(format!("{}={value}", parameter.name)),
        }
    }
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    format!("{}{path}{query}", step.service)
}

fn add_value(fetched: &mut FetchedValues, value: &Value) -> ValueLocation {
    add_text(fetched, &value.to_string())
}

fn add_text(fetched: &mut FetchedValues, text: &str) -> ValueLocation {
    fetched.documents.push(Arc::new(JsonDocument::new(text.to_owned().into()).expect("JSON")));
    let document = fetched.documents.len() - 1;
    ValueLocation { document: document as u32, node_id: fetched.documents[document].root().node_id() }
}

fn add_failure(fetched: &mut FetchedValues, error: SourceError) -> FetchOutcome {
    fetched.errors.push(error);
    FetchOutcome::Failed(fetched.errors.len() as u32 - 1)
}

fn join_items(fetched: &mut FetchedValues, list: &str, joined: &ItemMatch, keys: &[String]) {
    let place = add_text(fetched, list);
    let document = Arc::clone(&fetched.documents[place.document as usize]);
    for key in keys {
        let items = document.root().items().filter(|item| {
            item.member(joined.item.as_bytes()).is_some_and(|found| found.text() == key.as_bytes())
        });
        let items: Vec<JsonNode<'_>> = items.collect();
        let at = |item: &JsonNode<'_>| ValueLocation { document: place.document, node_id: item.node_id() };
        for item in &items {
            let Some(error) = object_error(*item) else { continue };
            fetched.item_errors.insert(at(item), fetched.errors.len() as u32);
            fetched.errors.push(error);
        }
        let places: Vec<ValueLocation> = items.iter().map(at).collect();
        fetched.outcomes.push(match (joined.is_many, places.first()) {
            (true, _) => FetchOutcome::Many(places),
            (false, Some(place)) => FetchOutcome::One(*place),
            (false, None) => FetchOutcome::Null,
        });
    }
}

impl StepExecutor for ExecutionFixture {
    fn fetch<'a>(&'a self, step: &'a PlanStep, asked: StepRequest) -> BoxFuture<'a, FetchedValues> {
        let fetched = match &step.call {
            PlanCall::Operation(operation, _) => {
                let mut path = operation.path.to_string();
                let arguments = asked.arguments.clone().unwrap_or_else(|| Bytes::from_static(b"{}"));
                let arguments: Value = serde_json::from_slice(&arguments).expect("arguments");
                let mut rest = Vec::new();
                for (name, value) in arguments.as_object().expect("an object") {
                    let place = format!("{{{name}}}");
                    match path.contains(&place) {
                        true => path = path.replace(&place, &value.to_string()),
                        false => rest.push(format!("{name}={value}")),
                    }
                }
                let method =
                    if operation.method == http::Method::GET { "" } else { operation.method.as_str() };
                let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
                let mut fetched = FetchedValues::default();
                let found = match self.respond(format!("{method}{}{path}{query}", step.service)) {
                    Ok(text) => FetchOutcome::One(add_text(&mut fetched, text)),
                    Err(error) => add_failure(&mut fetched, error),
                };
                fetched.outcomes.push(found);
                fetched
            }
            PlanCall::Keys(how, _) => self.fetch_keyed(step, how, &asked),
            PlanCall::Document(document) => self.fetch_document(step, document, &asked),
            PlanCall::Entities(document, aliases) => self.fetch_entities(step, document, aliases, &asked),
            PlanCall::Linked { .. } => FetchedValues::default(),
        };
        Box::pin(async move { fetched })
    }

    fn prefetch<'a>(&'a self, _: &'a PlanStep, _: StepRequest) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}
