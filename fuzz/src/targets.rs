//! The targets of `make fuzz`, with their tests and limits.

/// A target that libFuzzer can run.
#[derive(Debug)]
pub struct FuzzTarget {
    /// The target's name, also the name of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// The crate of the test.
    pub package: &'static str,
    /// The path of the test.
    pub test: &'static str,
    /// The number of seconds after which an input counts as a finding.
    pub timeout: u32,
    /// The maximum allocation in MB. A larger one counts as a finding.
    pub malloc_mb: u32,
    /// The maximum length of an input in bytes.
    pub length: usize,
}

/// The maximum resident memory in MB. A larger size counts as a finding. It includes the sanitizer's
/// [`QUARANTINE_MB`].
pub const RSS_MB: u32 = 2048;
/// The amount of freed memory in MB that the address sanitizer retains to detect its use.
pub const QUARANTINE_MB: u32 = 64;

const fn fuzz_target(name: &'static str, package: &'static str, test: &'static str) -> FuzzTarget {
    FuzzTarget { name, package, test, timeout: 5, malloc_mb: 64, length: 4096 }
}

/// All targets, those with generated inputs first.
pub const TARGETS: &[FuzzTarget] = &[
    fuzz_target("graphql_documents", "graphql", "plan::fuzz::plans_documents_within_limits_or_rejects_them"),
    fuzz_target(
        "graphql_answers",
        "graphql",
        "plan::fuzz::any_service_responses_yield_a_json_response_within_the_limit",
    ),
    fuzz_target(
        "openapi_requests",
        "graphql",
        "fetch::rest::fuzz::requests_of_any_document_match_its_declarations",
    ),
    fuzz_target(
        "aggregate_answers",
        "aggregate",
        "tests::fuzz::any_upstream_responses_give_a_bounded_response_or_a_problem",
    ),
    fuzz_target(
        "worker_frames",
        "script-runtime",
        "workers::fuzz::arbitrary_frames_reach_their_runs_in_order_or_end_the_connection",
    ),
    fuzz_target("http2_frames", "gateway", "server::connection::fuzz::follows_the_protocol_for_any_frames"),
    fuzz_target(
        "client_http1",
        "gateway",
        "server::http1::tests::fuzz::never_panics_and_does_not_depend_on_the_split",
    ),
    fuzz_target("credentials", "gateway", "tests::fuzz::never_authenticates_without_the_secret"),
    fuzz_target("forwarded_headers", "gateway", "tests::fuzz::ignores_forwarding_headers_of_untrusted_peers"),
    fuzz_target(
        "upstream_http1",
        "services",
        "transport::http1::tests::fuzz::decodes_a_response_in_any_pieces",
    ),
    fuzz_target(
        "request_headers",
        "services",
        "headers::fuzz::headers_from_outside_are_checked_and_stripped",
    ),
    fuzz_target("call_targets", "services", "path::fuzz::a_target_stays_below_its_service"),
    fuzz_target(
        "graphql_responses",
        "graphql",
        "fetch::remote::fuzz::any_response_gives_each_target_a_result_with_valid_references",
    ),
    fuzz_target(
        "state_changes",
        "script-runtime",
        "state::fuzz::an_accepted_change_set_yields_a_value_and_a_refused_one_has_no_effect",
    ),
    fuzz_target("json_documents", "json", "document::fuzz::agrees_with_serde_json_and_never_panics"),
    fuzz_target("json_tokens", "json", "document::fuzz::all_implementations_find_the_same_tokens"),
    fuzz_target(
        "dedup_decoder",
        "dedup",
        "fuzz::decodes_arbitrary_input_to_json_within_the_cap_without_panics",
    ),
    fuzz_target("dedup_round_trip", "dedup", "fuzz::encoded_text_decodes_to_the_original"),
    fuzz_target("query_requests", "query", "tests::fuzz::parses_a_request_or_blames_the_client"),
    fuzz_target("query_modules", "query", "tests::fuzz::checks_a_damaged_module_without_panic"),
    fuzz_target("typescript", "query", "tests::fuzz::strips_types_without_moving_tokens"),
    fuzz_target("filter_headers", "filter", "tests::fuzz::parsed_header_lists_round_trip"),
];
