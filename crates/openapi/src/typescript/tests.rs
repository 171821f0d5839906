//! Snapshot tests of the types generated for small documents. The end-to-end tests compile such types with
//! tsc.

use super::*;

/// Returns the part that is generated for one service, without the part that is the same for all.
fn generate_service_types(name: &str, text: &str) -> String {
    let document = OpenApiDocument::parse(text).expect("a document").relative_to("");
    let operations = document.operations.iter().collect();
    let all = generate_types(&[CallableService { name, document: Some(&document), operations }]);
    let after = all
        .split_once("fetch(path: string, init?: FetchInit): Promise<Response>;\n}\n\n")
        .expect("the SDK")
        .1;
    let (ours, _) = after.split_once("/** The default export of a program. */").expect("the SDK");
    ours.to_owned()
}

const SWAGGER_2: &str = include_str!("tests/swagger-2.0.yaml");
const OPENAPI_3_0: &str = include_str!("tests/openapi-3.0.yaml");
const OPENAPI_3_1: &str = include_str!("tests/openapi-3.1.json");

#[test]
fn types_of_a_swagger_document() {
    insta::assert_snapshot!(generate_service_types("forge", SWAGGER_2));
}

#[test]
fn types_of_an_openapi_3_0_document() {
    insta::assert_snapshot!(generate_service_types("pet-shop", OPENAPI_3_0));
}

#[test]
fn types_of_an_openapi_3_1_document() {
    insta::assert_snapshot!(generate_service_types("museum", OPENAPI_3_1));
}

#[test]
fn a_service_without_a_document_is_any_service() {
    let all = generate_types(&[CallableService { name: "old-one", document: None, operations: Vec::new() }]);
    assert!(all.contains("export interface Services {\n  readonly \"old-one\": Service;\n}\n"), "{all}");
}

#[test]
fn omits_operations_that_are_not_open() {
    let document = OpenApiDocument::parse(OPENAPI_3_0).expect("a document");
    let open = |method: &str| document.operations.iter().filter(|it| it.method == method).collect();
    let all = generate_types(&[CallableService {
        name: "shop",
        document: Some(&document),
        operations: open("DELETE"),
    }]);
    assert!(all.contains("delete(path: \"/pets/{id}\"") && !all.contains("namespace shop"), "{all}");
}
