//! The targets of `make fuzz`: where each stands, and its ceilings.

/// A target that libFuzzer can run.
#[derive(Debug)]
pub struct Target {
    /// Its name, which its folder in `fuzz/corpus` has, too.
    pub name: &'static str,
    /// The crate that it is a test of.
    pub package: &'static str,
    /// The test.
    pub test: &'static str,
    /// Seconds after which an input counts as a finding.
    pub timeout: u32,
    /// The largest allocation, in MB, above which an input counts as a finding.
    pub malloc_mb: u32,
    /// The longest input, in bytes.
    pub length: usize,
}

/// The resident memory, in MB, above which an input counts as a finding: of it, what the sanitizer keeps of freed memory is
/// [`QUARANTINE_MB`].
pub const RSS_MB: u32 = 2048;
/// The freed memory that the address sanitizer keeps to notice its use.
pub const QUARANTINE_MB: u32 = 64;

const fn target(name: &'static str, package: &'static str, test: &'static str) -> Target {
    Target { name, package, test, timeout: 5, malloc_mb: 64, length: 4096 }
}

/// Every target, those whose inputs are generated first.
pub const TARGETS: &[Target] = &[
    target(
        "graphql_documents",
        "graphql",
        "plan::fuzz::documents_are_planned_within_their_limits_or_refused",
    ),
    target(
        "graphql_answers",
        "graphql",
        "plan::fuzz::any_answers_of_services_make_an_answer_of_json_within_its_limit",
    ),
    target("openapi_requests", "graphql", "rest::fuzz::requests_of_any_document_call_what_it_declares"),
    target(
        "aggregate_answers",
        "aggregate",
        "fuzz::any_answers_of_services_make_an_answer_within_its_limits_or_a_problem",
    ),
    target(
        "worker_frames",
        "script-runtime",
        "workers::fuzz::any_frames_reach_their_runs_in_order_or_end_the_connection",
    ),
    target(
        "http2_frames",
        "gateway",
        "server::connection::fuzz::any_frames_are_answered_by_the_rules_of_http2",
    ),
    target(
        "client_http1",
        "gateway",
        "server::http1::tests::fuzz::nothing_of_what_comes_makes_it_panic_or_depends_on_its_pieces",
    ),
    target("credentials", "gateway", "fuzz::nobody_is_somebody_without_the_secret"),
    target("forwarded_headers", "gateway", "fuzz::whoever_is_not_trusted_speaks_for_nobody"),
    target(
        "upstream_http1",
        "services",
        "transport::http1::tests::fuzz::an_answer_is_the_same_in_any_pieces_or_none",
    ),
    target("request_headers", "services", "fuzz::headers_from_outside_are_checked_and_stripped"),
    target("call_targets", "services", "fuzz::a_target_stays_below_its_service"),
    target(
        "graphql_responses",
        "graphql",
        "remote::fuzz::any_response_leaves_each_target_something_and_refers_to_what_is_there",
    ),
    target(
        "state_changes",
        "script-runtime",
        "state::fuzz::a_change_set_that_is_taken_gives_a_value_and_one_that_is_refused_leaves_it_alone",
    ),
    target("json_documents", "json", "fuzz::json_is_judged_as_by_another_reader_and_walked_without_panic"),
    target("json_tokens", "json", "fuzz::any_machine_finds_the_same_tokens"),
    target("dedup_decoder", "dedup", "fuzz::whatever_is_decoded_is_json_within_its_cap_and_nothing_panics"),
    target("dedup_round_trip", "dedup", "fuzz::whatever_is_encoded_comes_back"),
    target("query_requests", "query", "fuzz::a_request_is_understood_or_refused_by_the_clients_fault"),
    target("query_modules", "query", "fuzz::a_damaged_module_is_checked_without_panic"),
    target("typescript", "query", "fuzz::types_are_stripped_or_refused_and_places_stay"),
    target("filter_headers", "filter", "fuzz::a_list_of_headers_is_read_or_refused_and_reads_back_the_same"),
];
