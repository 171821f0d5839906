//! Texts with mistakes: everything that is said of them.

use super::*;

/// One test for each text with what is printed of it.
macro_rules! told {
    ($($name:ident: $source:expr;)*) => {$(
        #[test]
        fn $name() {
            let said = told($source.as_ref());
            assert!(!said.is_empty(), "nothing is said of it");
            insta::assert_snapshot!(said);
        }
    )*};
}

told! {
    listing_7_as_printed_names_the_block_that_is_open: include_str!("../../../tests/listings/7-as-printed.sjs");
    a_block_that_is_left_open_is_found_by_its_indentation:
        "service a {\n  res '/a' on GET {\n    if (query.a) {\n      respond 1\n    respond 2\n  }\n}\n";
    a_bracket_of_another_kind_says_which_is_open: handler("var x = (3 + }");
    a_bracket_too_many_closes_nothing: "service a {\n  res '/a' on GET { respond 1 } }\n}\n";
    a_parenthesis_is_left_open_at_the_end: "const a = f(1,\n";
    strings_that_never_end_are_told_one_by_one: handler("var a = 'x\n    var b = \"y\n    respond `z`");
    a_template_never_ends: handler("respond `a ${b} c");
    a_comment_never_ends: "service a { }\n/* what";
    a_regular_expression_never_ends: handler("respond /a[/]b\n");

    a_service_has_a_name: "service {\n}\n";
    a_services_name_is_a_name: "service 'shop' {\n}\n";
    a_service_has_braces: "service shop\nres '/a' on GET { respond 1 }\n";
    a_service_does_not_stand_in_a_service: "service a {\n  service b {\n  }\n}\n";
    a_service_does_not_stand_in_a_block: "if (true) {\n  service b { }\n}\n";
    two_services_have_two_names: "service a { }\nservice a { }\n";

    a_resource_needs_a_path: "service a {\n  res on GET { respond 1 }\n  res { on GET { respond 2 } }\n}\n";
    a_resource_needs_its_on: "service a {\n  res '/x' GET {\n    respond 1\n  }\n}\n";
    a_resource_needs_a_handler: "service a {\n  res '/x'\n  res y\n  res '/z' { state n = 0 }\n}\n";
    a_path_in_parentheses_reads_like_a_call: handler("res ('/a/' + id) on GET { respond 1 }");
    rule_22_a_path_begins_with_a_slash: "service a {\n  res 'data' on GET { respond 1 }\n  res 'x/' + 1 on GET { respond 1 }\n}\n";
    rule_22_a_path_has_no_query: "service a {\n  res '/data?a=@' on GET { respond 1 }\n}\n";
    a_resource_stands_in_a_service: "res '/x' on GET { respond 1 }\n";
    a_resource_does_not_stand_in_a_resource: "service a {\n  res '/x' {\n    res '/y' on GET { respond 1 }\n    on GET { respond 2 }\n  }\n}\n";
    a_resource_does_not_stand_in_a_function: handler("query.list.map(x => { res '/x/' + x on GET { respond x } })");
    an_external_resource_has_no_handler: handler("res g = 'http://example.org' on GET { respond 1 }");

    rule_22_a_method_is_one_of_http: "service a {\n  res '/x' on FETCH {\n    respond 1\n  }\n}\n";
    rule_22_a_method_is_written_in_capitals: "service a {\n  res '/x' on get { respond 1 }\n}\n";
    rule_22_options_are_the_gateways: "service a {\n  res '/x' on OPTIONS { respond 1 }\n}\n";
    a_handler_needs_a_method: "service a {\n  res '/x' { on { respond 1 } }\n}\n";
    a_handler_has_braces: "service a {\n  res '/x' on GET respond 1\n  res '/y' { on PUT, POST { } }\n}\n";
    a_handler_stands_in_a_resource: "service a {\n  on GET { respond 1 }\n}\n";
    a_second_handler_beside_a_path_needs_braces: "service a {\n  res '/x' on GET { respond 1 } on PUT { }\n}\n";
    a_handler_does_not_stand_on_a_condition: "service a {\n  res '/x' {\n    if (true) { on GET { respond 1 } }\n    on PUT { }\n  }\n}\n";
    rule_2_a_path_has_one_handler_for_a_method:
        "service a {\n  res '/x' on GET { respond 1 }\n  res '/x' on PUT { }\n  res \"/\\x78\" { on GET { respond 2 } }\n}\n";
    rule_2_a_resource_has_one_handler_for_a_method: handler("res '/x/' + 1 { on GET { respond 1 } on GET { respond 2 } }");

    a_state_has_a_name: handler("state 'x' = 1\n    state { a, b } = query\n    state if");
    rule_1_state_stands_in_a_service: "state x = 1\nservice a { }\n";
    rule_1_state_does_not_stand_in_a_function: handler("function f() { state x = 1 }");
    rule_1_state_is_not_declared_on_a_condition: handler("if (query.a) state x = 1");
    a_state_is_declared_once: handler("state z = 0\n    state y = 0\n    state z = 1");
    a_states_initialiser_is_an_expression: handler("state z =\n    respond z");

    rule_13_a_value_stands_on_the_line_of_respond: handler("respond\n      1\n    if (query.a) { respond }\n    respond;");
    rule_13_respond_stands_in_a_handler: "respond 1\nservice a {\n  respond 2\n  res '/x' {\n    respond { a: 1 }\n    on GET { respond 3 }\n  }\n  function f() { respond 4 }\n}\n";
    rule_13_a_function_is_no_answer: handler("respond function() { return 1 }\n    respond (() => 1)\n    respond class { }");

    rule_18_par_needs_braces: handler("par g.get()\n    par for (;;) { }");
    rule_18_par_stands_in_a_handler: "par { }\nservice a {\n  par { }\n}\n";
    rule_19_pfor_declares_its_variable: handler("pfor(i in query.list) { }");
    rule_19_pfors_variable_is_a_var: handler("pfor(let i in query.list) { }\n    pfor(const j in query.list) { }");
    rule_19_pfor_goes_over_keys: handler("pfor(i of query.list) { }\n    pfor(var j of query.list) { }");
    rule_19_pfor_has_one_form: handler("pfor(var i = 0; i < 3; i++) { }\n    pfor(var [a] in b) { }");
    rule_19_pfor_stands_in_a_handler: "service a {\n  pfor(var i in [1]) { }\n}\n";

    return_stands_in_a_handler: "service a {\n  return\n  res '/x' {\n    if (1) { return 2 }\n    on GET { return }\n  }\n}\n";
    a_break_does_not_leave_a_handler: handler("while (1) { res '/b' on GET { break } }");
    an_import_stands_at_the_top: "service a {\n  import x from 'x'\n}\n";

    a_mistake_of_javascript_is_told_at_its_place_in_s: "service a { res '/x' on GET { var a = ;\n } }\n";
    each_handler_tells_a_mistake_of_its_own:
        "service a {\n  res '/x' on GET { var a = ; }\n  res '/y' on GET { respond )( }\n}\n".replace(")(", "1 +");
    mistakes_of_both_languages_are_told_in_one_run:
        "service a {\n  res '/x' on FETCH { respond 1 }\n  res '/y' on GET { let a = 1; let a = 2; foo bar }\n  state if\n  res '/z' on PUT { return return }\n}\n";
    two_statements_on_a_line_need_a_semicolon: handler("if (query.a) respond 1 else respond 2");
}
