//! Fuzzing of documents against generated schemas, with generated service responses: see `fuzz/src/lib.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use ::fuzz::ByteChoices;
use ::fuzz::generate::graphql::{self as generate, GeneratedRequest};
use ::fuzz::generate::json::{self, KnownMemberNames};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Response;
use services::transport::RequestEndpoint;
use services::{
    RequestCall, ServiceConfig, ServiceSet, ServiceTransport, StreamedServiceBody, TransportError,
};

use super::*;
use crate::execute::{self, AnswerRules, CoercedVariables};
use crate::fetch::call_context::{RouteServices, SourceLimits};
use crate::{ServiceSchema, SubgraphBindings, SubgraphProtocol, compose};

/// The number of input bytes that determine the schema, unless it is one of the schemas shared by most
/// inputs: creating a planner takes longer than most plans.
const SCHEMA_BYTES: usize = 48;
/// The number of shared schemas, and the number of cached planners for other schemas.
const SHARED_SCHEMAS: u8 = 24;
const MAX_CACHED_PLANNERS: usize = 32;
/// The planning timeout: longer than any document takes.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// The stack size of the pool's threads, which check and plan documents.
const STACK_BYTES: usize = 16 << 20;
/// The maximum size of the errors of one document in bytes.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// A schema and its planner.
struct FuzzedSchema {
    schema: generate::FuzzSchema,
    planner: Option<QueryPlanner>,
}

/// The planners of the most recent schemas.
#[derive(Default)]
struct PlannerCache(Mutex<VecDeque<(Vec<u8>, Arc<FuzzedSchema>)>>);

impl PlannerCache {
    /// Returns the schema determined by an input, and the rest of the input.
    fn split_input<'b>(&self, bytes: &'b [u8]) -> (Arc<FuzzedSchema>, &'b [u8]) {
        let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
        match first % (SHARED_SCHEMAS + SHARED_SCHEMAS / 8) {
            shared @ ..SHARED_SCHEMAS => (self.get_or_create(&shared_schema_bytes(shared)), rest),
            _ => {
                let (own, rest) = rest.split_at(rest.len().min(SCHEMA_BYTES));
                (self.get_or_create(own), rest)
            }
        }
    }

    fn get_or_create(&self, bytes: &[u8]) -> Arc<FuzzedSchema> {
        let mut kept = self.0.lock().unwrap();
        if let Some(at) = kept.iter().position(|(key, _)| key == bytes) {
            let entry = kept.remove(at).expect("it was found there");
            kept.push_front(entry);
        } else {
            let schema = generate::schema(&mut ByteChoices::new(bytes));
            let planner = new_planner(&schema);
            kept.push_front((bytes.to_vec(), Arc::new(FuzzedSchema { schema, planner })));
            kept.truncate(usize::from(SHARED_SCHEMAS) + MAX_CACHED_PLANNERS);
        }
        Arc::clone(&kept[0].1)
    }
}

/// The bytes of a shared schema: a sequence of Knuth's linear generator.
fn shared_schema_bytes(number: u8) -> Vec<u8> {
    let mut state = u64::from(number);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..256).map(|_| next()).collect()
}

/// Creates a planner for a schema, or returns `None` if the schema does not compose.
fn new_planner(schema: &generate::FuzzSchema) -> Option<QueryPlanner> {
    let subgraph = |(name, sdl): &(String, String)| Subgraph {
        name: name.as_str().into(),
        sdl: sdl.clone(),
        kind: SubgraphProtocol::Remote {
            path: "/graphql".into(),
            bindings: Arc::<SubgraphBindings>::default(),
            is_federated: true,
        },
    };
    let subgraphs: Vec<Subgraph> = schema.services.iter().map(subgraph).collect();
    let parts: Vec<ServiceSchema<'_>> =
        subgraphs.iter().map(|part| ServiceSchema { name: &part.name, sdl: &part.sdl }).collect();
    let supergraph = compose(&parts).ok()?;
    let planner = QueryPlanner::new(&supergraph.sdl, subgraphs, &GraphqlLimits::default(), true);
    Some(
        planner.unwrap_or_else(|error| {
            panic!("the composed schema can't be planned: {error}\n{}", supergraph.sdl)
        }),
    )
}

/// Plans a request, if possible.
fn plan_request(planner: &QueryPlanner, request: &GeneratedRequest) -> Option<Arc<QueryPlan>> {
    let (text, name) = (&*request.document, request.operation.as_deref());
    let checked = match planner.check_document(text, name, u64::MAX) {
        Ok(checked) => checked.expect("the number of selections is unlimited"),
        Err(errors) => {
            assert_short_errors(&errors, text);
            return None;
        }
    };
    let normalized = normalize_operation(&planner.hive.supergraph, &checked.document, name);
    if let Ok(normalized) = normalized {
        let made = count_nodes(&normalized.operation.selection_set);
        assert!(checked.work.nodes >= made, "{} nodes estimated, {made} created: {text}", checked.work.nodes);
    }
    // The fuzzer checks the time.
    match planner.plan_checked(&checked, &CancellationToken::with_timeout(LONG_TIMEOUT)) {
        Ok(plan) => Some(plan),
        Err(errors) => {
            assert_short_errors(&errors, text);
            let is_ours = errors.iter().any(|error| error.code == GraphqlErrorKind::Plan.code());
            assert!(
                !is_ours,
                "the checked document can't be planned: {}: {text}",
                failure_reason(planner, &checked)
            );
            None
        }
    }
}

/// The reason why a document can't be planned.
fn failure_reason(planner: &QueryPlanner, checked: &CheckedDocument) -> String {
    let operation =
        DocumentOperation::from_document(&checked.document, checked.name.as_deref()).expect("an operation");
    let fragments = FragmentIndex::new(&checked.document).expect("fragments");
    let keys = ResponseKeys::from_document(&checked.document, &planner.reserved_names);
    let token = CancellationToken::with_timeout(PLANNING_TIMEOUT);
    planner
        .lower_operation(&operation, &fragments, &keys, &token)
        .err()
        .map_or_else(String::new, |LoweringError(reason)| reason)
}

fn count_nodes(set: &hive_router_query_planner::ast::selection_set::SelectionSet) -> u64 {
    let below = |item: &hive_router_query_planner::ast::selection_item::SelectionItem| {
        item.selections().map_or(0, |items| {
            count_nodes(&hive_router_query_planner::ast::selection_set::SelectionSet { items: items.clone() })
        })
    };
    set.items.iter().map(|item| 1 + below(item)).sum()
}

/// Asserts that there are errors, and that their total length is limited.
fn assert_short_errors(errors: &[GraphqlError], text: &str) {
    let length: usize = errors.iter().map(|error| error.to_json().to_string().len()).sum();
    assert!(
        !errors.is_empty() && length < MAX_ERROR_BYTES,
        "{} errors of {length} bytes: {text}",
        errors.len()
    );
}

/// Runs a test on a thread with the stack size of the pool: without optimizations, a document of the maximum
/// depth takes more than the 2 MiB of a test's thread.
fn run_on_pool_stack(test: fn()) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(test).unwrap();
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn plans_documents_within_limits_or_rejects_them() {
    run_on_pool_stack(fuzz_documents);
}

fn fuzz_documents() {
    let planners = PlannerCache::default();
    ::fuzz::run("graphql_documents", &[], |bytes| {
        let (schema, rest) = planners.split_input(bytes);
        let Some(planner) = &schema.planner else { return };
        let mut choices = ByteChoices::new(rest);
        let generated_request = generate::request(&mut choices, &schema.schema);
        let Some(plan) = plan_request(planner, &generated_request) else { return };
        let _ = plan.explain().to_string();
        let _ = CoercedVariables::coerce(&plan, generated_request.variables.into());
        assert!(planner.cache.bytes() <= PLAN_CACHE_BYTES);
    });
}

/// A transport that answers every call with the next of these texts.
struct HostileTransport(Mutex<VecDeque<(u16, String)>>);

impl ServiceTransport for HostileTransport {
    fn send(
        &self,
        _: &RequestEndpoint,
        _: http::Request<StreamedServiceBody>,
    ) -> BoxFuture<'static, Result<Response<StreamedServiceBody>, TransportError>> {
        let (status, text) = self.0.lock().unwrap().pop_front().unwrap_or((200, "{\"data\":{}}".to_owned()));
        let response = Response::builder().status(status).body(services::body::full(text));
        std::future::ready(Ok(response.unwrap())).boxed()
    }
}

/// Generates service responses: mostly GraphQL responses with arbitrary values.
fn generate_responses(choices: &mut ByteChoices<'_>) -> VecDeque<(u16, String)> {
    let names = KnownMemberNames(&[
        "q0",
        "q1",
        "q2",
        "q3",
        "m0",
        "id",
        "f0",
        "f1",
        "f2",
        "next",
        "x",
        "xy",
        "__typename",
        "_entities",
        "_e0",
        "_e1",
        "data",
        "errors",
        "message",
        "path",
        "extensions",
    ]);
    let answer = |choices: &mut ByteChoices<'_>| {
        let status = choices.pick(&[200, 200, 200, 200, 500, 204, 400]);
        if choices.one_in(4) {
            return (status, json::text(choices, names));
        }
        let mut data = String::new();
        json::write_value(choices, names, 5, &mut data);
        let text = match choices.number_below(3) {
            0 => format!("{{\"data\":{{\"_entities\":{data}}}}}"),
            1 => {
                let mut errors = String::new();
                json::write_value(choices, names, 3, &mut errors);
                format!("{{\"data\":{data},\"errors\":[{errors}]}}")
            }
            _ => format!("{{\"data\":{data}}}"),
        };
        (status, text)
    };
    (0..1 + choices.number_below(6)).map(|_| answer(choices)).collect()
}

#[test]
fn any_service_responses_yield_a_json_response_within_the_limit() {
    run_on_pool_stack(fuzz_responses);
}

fn fuzz_responses() {
    let planners = PlannerCache::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    ::fuzz::run("graphql_answers", &[], |bytes| {
        let (schema, rest) = planners.split_input(bytes);
        let Some(planner) = &schema.planner else { return };
        let mut choices = ByteChoices::new(rest);
        let answers = generate_responses(&mut choices);
        let generated_request = generate::request(&mut choices, &schema.schema);
        let Some(plan) = plan_request(planner, &generated_request) else { return };
        let given = if choices.one_in(2) { generated_request.variables } else { "{}".to_owned() };
        let Ok(variables) = CoercedVariables::coerce(&plan, given.into()) else { return };
        let config = schema.schema.services.iter();
        let config: BTreeMap<String, ServiceConfig> =
            config.map(|(name, _)| (name.clone(), ServiceConfig::with_url("http://127.0.0.1:1"))).collect();
        let services =
            ServiceSet::new(&config).unwrap().with_transport(Arc::new(HostileTransport(Mutex::new(answers))));
        let limits = SourceLimits { calls: 50, concurrency: 4, upstream_bytes: 1 << 24 };
        let context = RouteServices::new(services, limits, false).call_context(RequestCall::unlimited());
        let rules = AnswerRules {
            max_bytes: MAX_RESPONSE_BYTES,
            exposes_schema: true,
            introspection_values: Vec::new(),
        };
        let run = execute::run(&plan, planner.schema(), Arc::new(variables), &context, &rules);
        let mut text = Vec::new();
        runtime.block_on(run).tree.write(&mut text);
        let text = bytes::Bytes::from(text);
        assert!(text.len() <= MAX_RESPONSE_BYTES, "{} bytes", text.len());
        let read = ::json::JsonDocument::new(text.clone()).unwrap_or_else(|error| {
            panic!("{error}: {}\nof {}", String::from_utf8_lossy(&text), generated_request.document)
        });
        assert!(read.root().member(b"data").is_some(), "no data: {}", String::from_utf8_lossy(&text));
    });
}
