//! Tests of links, and of all mistakes in them.

use diagnostics::{Diagnostic, DiagnosticLocation, SourceDocument};

use super::{build_test_subgraphs, service_bindings, warning_texts};
use crate::subgraph::{BatchStrategy, BoundCall, ParameterSource, TypeRule};
use crate::{ServiceSchema, compose};

const SHOP: &str = r"
openapi: 3.0.3
paths:
  /posts:
    get:
      operationId: listPosts
      parameters: [{ name: by, in: query, schema: { type: string } }]
      responses: { 200: { description: ok, content: { application/json: { schema: { type: array, items: { $ref: '#/components/schemas/Post' } } } } } }
  /posts/{id}:
    get:
      operationId: getPost
      parameters: [{ name: id, in: path, required: true, schema: { type: integer } }]
      responses:
        200:
          description: ok
          content: { application/json: { schema: { $ref: '#/components/schemas/Post' } } }
          links:
            Author: { operationId: getUser, parameters: { id: $response.body#/author_id }, description: Who wrote it. }
            Nowhere: { operationId: getNobody, parameters: { id: $response.body#/author_id } }
            Odd: { operationId: getUser, parameters: { id: $request.path.id } }
components:
  schemas:
    Post: { type: object, required: [id, author_id, tag_ids], properties: { id: { type: integer }, author_id: { type: integer }, title: { type: string }, tag_ids: { type: array, items: { type: integer } }, meta: { $ref: '#/components/schemas/Meta' } } }
    Meta: { type: object, properties: { words: { type: integer } } }
";

const PEOPLE: &str = r"
openapi: 3.0.3
paths:
  /users:
    get:
      operationId: listUsers
      parameters:
        - { name: ids, in: query, explode: false, schema: { type: array, items: { type: integer } } }
        - { name: team, in: query, schema: { type: string } }
      responses: { 200: { description: ok, content: { application/json: { schema: { type: object, properties: { items: { type: array, items: { $ref: '#/components/schemas/User' } } } } } } } }
  /users/{id}:
    get:
      operationId: readUser
      parameters: [{ name: id, in: path, required: true, schema: { type: integer } }, { name: full, in: query, schema: { type: boolean } }]
      responses: { 200: { description: ok, content: { application/json: { schema: { $ref: '#/components/schemas/User' } } } } }
components:
  schemas:
    User: { type: object, required: [id], properties: { id: { type: integer }, name: { type: string } } }
";

const AGENTS: &str = "
type Query { agents(ids: [ID!]!, all: Boolean): [Agent!]! agent(id: ID!): Agent }
type Agent { id: ID! name: String! post_id: Int }
";

const SERVICES: [(&str, &str); 3] = [("shop", SHOP), ("people", PEOPLE), ("agents", AGENTS)];

fn link_mistakes(links: &str) -> Vec<Diagnostic> {
    build_test_subgraphs(&SERVICES, links).expect_err("mistakes")
}

#[test]
fn reports_all_mistakes_in_links_with_locations() {
    let links = r#"
links:
  Pots.author: { get: "people/users/{author_id}" }
  Post.title: { get: "people/users/{author_id}" }
  Post.a: { get: "peeple/users/{author_id}" }
  Post.b: { get: "people/user/{author_id}" }
  Post.c: { get: "people/users?idz={author_id}", on: author_id = id, at: /items }
  Post.d: { get: "people/users/{authorid}" }
  Post.e: { get: "people/users" }
  Post.f: { get: "people/users?team={title}", on: author_id = id, at: /items }
  Post.g: { get: "people/users?ids={author_id}", on: author_id = id }
  Post.h: { get: "people/users?ids={author_id}", on: author_id = nme, at: /items }
  Post.i: { get: "people/users?ids={author_id}", on: title = id, at: /items }
  Post.j: { get: "people/users?ids={author_id}", on: id, at: /items }
  Post.k: { get: "people/users/{author_id}", one: true }
  Post.l: { }
  Post.m: { get: "agents/agent" }
  Post.n: { query: "people/users" }
  Post.o: { query: "agents/agnts(ids: {author_id})" }
  Post.p: { query: "agents/agents(id: {author_id})" }
  Post.q: { query: "agents/agents(ids: {author_id}) { name }", on: author_id = id }
  Post.r: { get: "people/users/{meta}" }
  Post.s: { get: "people/users/{tag_ids}" }
  Post.t-u: { get: "people/users/{author_id}" }
  Query.v: { get: "people/users/{author_id}" }
  Post.w: { get: "people/users?ids={author_id}", on: author_id = id, at: /itms }
"#;
    let told: Vec<String> = link_mistakes(links).iter().map(|it| format!("{it:#}")).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn reports_mistakes_in_changes() {
    let links = r"
types:
  Pots: { rename: Article }
  Post: { rename: 7up, fields: { titel: { hide: true }, id: { rename: title } } }
  User: { rename: Agent }
  Query: { rename: Root, fields: { listPosts: { rename: getPost } } }
  Meta: { fields: { words: { hide: true } } }
";
    let told: Vec<String> = link_mistakes(links).iter().map(|it| format!("{it:#}")).collect();
    insta::assert_snapshot!(told.join("\n"));
    assert!(link_mistakes(links).iter().all(|it| it.code == Some("graphql-type")
        && matches!(it.location, DiagnosticLocation::Pointer { document: SourceDocument::Links, .. })));
}

#[test]
fn hidden_types_are_absent_from_the_schema() {
    let sdl = "type Query { node: Node any: Any item: Item } union Any = Item | HiddenMember interface Node { id: ID! }
        interface HiddenFace { name: String } type HiddenMember { x: Int } type HiddenNode implements Node { id: ID! }
        type Item implements Node & HiddenFace { id: ID! name: String }";
    let links =
        "{ types: { HiddenMember: { hide: true }, HiddenFace: { hide: true }, HiddenNode: { hide: true } } }";
    let (subgraphs, _) = build_test_subgraphs(&[("a", sdl)], links).expect("no mistake");
    let text = &subgraphs[0].sdl;
    assert!(text.contains("type Item implements Node {") && !text.contains("Hidden"), "{text}");
    let hidden = &service_bindings(&subgraphs, "a").hidden_objects;
    assert_eq!((&*hidden["Any"][0], &*hidden["Node"][0]), ("HiddenMember", "HiddenNode"));
}

#[test]
fn links_do_not_reveal_hidden_types() {
    let links = r#"
links: { Post.author: { get: "people/users/{author_id}" } }
types: { Post: { hide: true } }
"#;
    let (subgraphs, _) = build_test_subgraphs(&SERVICES, links).expect("no mistake");
    assert!(subgraphs.iter().all(|it| !it.sdl.contains("Post")), "{subgraphs:?}");
}

#[test]
fn a_hidden_type_that_a_key_needs_is_inaccessible() {
    let sdl =
        "type Query { item: Item } type Item { kind: HiddenKind! name: String } enum HiddenKind { ONE }";
    let links = r#"
links: { Item.user: { query: "agents/agent(id: {kind})" } }
types: { HiddenKind: { hide: true } }
"#;
    let (subgraphs, _) =
        build_test_subgraphs(&[("shop", sdl), ("agents", AGENTS)], links).expect("no mistake");
    let text = &subgraphs[0].sdl;
    assert!(text.contains("enum HiddenKind @inaccessible {"), "{text}");
    let parts: Vec<ServiceSchema<'_>> =
        subgraphs.iter().map(|it| ServiceSchema { name: &it.name, sdl: &it.sdl }).collect();
    assert!(compose(&parts).is_ok());
}

#[test]
fn rejects_abstract_types_with_only_hidden_objects() {
    let sdl =
        "type Query { any: Any node: Node } union Any = One interface Node { id: ID! } type One { x: Int }
        type Two implements Node { id: ID! }";
    let links = "{ types: { One: { hide: true }, Two: { hide: true } } }";
    let told: Vec<String> = build_test_subgraphs(&[("a", sdl)], links)
        .expect_err("mistakes")
        .iter()
        .map(|it| format!("{it:#}"))
        .collect();
    assert!(told.iter().any(|it| it.contains("all possible types of `Any` are hidden")), "{told:?}");
    assert!(told.iter().any(|it| it.contains("all possible types of `Node` are hidden")), "{told:?}");
    let links =
        "{ types: { One: { hide: true }, Two: { hide: true }, Any: { hide: true }, Node: { hide: true } } }";
    assert!(build_test_subgraphs(&[("a", &format!("{sdl} extend type Query {{ x: Int }}"))], links).is_ok());
}

#[test]
fn document_links_become_fields_of_the_response_type() {
    let document = SHOP
        .replace("getUser", "listPosts")
        .replace("{ id: $response.body#/author_id }", "{ by: $response.body#/title }");
    let (subgraphs, findings) = build_test_subgraphs(&[("shop", &document)], "").expect("no mistake");
    let entity = &service_bindings(&subgraphs, "shop").entities["Post"];
    let BatchStrategy::PerObject(BoundCall::Rest(asked)) = &entity.links["author"].strategy else {
        panic!("{entity:?}")
    };
    assert!(matches!(&asked.parameters[0].source, ParameterSource::Key(key) if &**key == "title"));
    assert!(subgraphs[0].sdl.contains("\"Who wrote it.\"\n  author: [Post!]\n"), "{}", subgraphs[0].sdl);
    let told = warning_texts(&findings).join("\n");
    assert!(
        told.contains("target is not a field of `Query`") && told.contains("`$request.path.id` is not part"),
        "{told}"
    );
}

#[test]
fn unfilled_parameters_become_arguments_of_single_call_links() {
    let (subgraphs, _) =
        build_test_subgraphs(&SERVICES, r#"{ links: { Post.author: { get: "people/users/{author_id}" } } }"#)
            .expect("no mistake");
    let people = &subgraphs[1].sdl;
    assert!(
        people.contains(
            "type Post @key(fields: \"author_id\") {\n  author_id: Int!\n  author(full: Boolean): User\n}"
        ),
        "{people}"
    );
}

#[test]
fn a_list_of_keys_is_requested_in_one_call() {
    let links = r#"{ links: { Post.tags: { get: "people/users?ids={tag_ids}", on: tag_ids = id, at: /items, batch: 50, text: true } } }"#;
    // The test's YAML conversion does not support numbers.
    let links = links.replace(", batch: 50, text: true", "");
    let (subgraphs, _) = build_test_subgraphs(&SERVICES, &links).expect("no mistake");
    let link = &service_bindings(&subgraphs, "people").entities["Post"].links["tags"];
    let BatchStrategy::KeyBatches(BoundCall::Rest(asked), joined) = &link.strategy else {
        panic!("{link:?}")
    };
    assert_eq!((asked.response_path.steps().len(), &*joined.key, joined.is_many), (1, "tag_ids", true));
    assert!(subgraphs[1].sdl.contains("tag_ids: [Int!]!\n  tags: [User!]\n"), "{}", subgraphs[1].sdl);
}

#[test]
fn links_to_a_query_field_of_a_graphql_service() {
    let links = r#"
links:
  Post.agents: { query: "agents/agents(ids: {tag_ids}, all: true)", on: tag_ids = id }
  Post.agent: { query: "agents/agent(id: {author_id})" }
  Agent.post: { get: "shop/posts/{post_id}" }
types:
  Agent: { rename: Broker, fields: { name: { rename: title } } }
"#;
    let (subgraphs, _) = build_test_subgraphs(&SERVICES, links).expect("no mistake");
    let agents = service_bindings(&subgraphs, "agents");
    let BatchStrategy::KeyBatches(BoundCall::Field { name, arguments }, joined) =
        &agents.entities["Post"].links["agents"].strategy
    else {
        panic!("{agents:?}")
    };
    assert_eq!(
        (&**name, &*arguments[0].0, &*arguments[0].1, &*joined.item),
        ("agents", "ids", "[ID!]!", "id")
    );
    assert!(matches!(&arguments[1].2, ParameterSource::Fixed(value) if *value == true));
    let renamed = &agents.types["Broker"];
    assert_eq!((renamed.name.as_deref(), &*renamed.fields["title"]), (Some("Agent"), "name"));
    let shop = service_bindings(&subgraphs, "shop");
    assert_eq!(*shop.entities["Broker"].links["post"].needed_fields, [Box::from("post_id")]);
    assert!(
        subgraphs[2].sdl.contains("type Broker @key(fields: \"post_id\", resolvable: false) {"),
        "{}",
        subgraphs[2].sdl
    );
}

#[test]
fn declares_how_a_type_is_fetched_by_key() {
    let links = r#"{ links: { User: { get: "people/users?ids={id}", on: id = id, at: /items } } }"#;
    let (subgraphs, _) = build_test_subgraphs(&SERVICES, links).expect("no mistake");
    assert!(subgraphs[1].sdl.contains("type User @key(fields: \"id\") {"), "{}", subgraphs[1].sdl);
    let entity = &service_bindings(&subgraphs, "people").entities["User"];
    assert!(
        matches!(&entity.fetch_strategy, Some(BatchStrategy::KeyBatches(_, joined)) if !joined.is_many),
        "{entity:?}"
    );
}

#[test]
fn prefixes_names_that_two_services_share() {
    let links = r"{ types: { copy.User: { rename: Member } } }";
    let (subgraphs, findings) =
        build_test_subgraphs(&[("people", PEOPLE), ("copy", PEOPLE)], links).expect("no mistake");
    assert!(
        subgraphs[1].sdl.contains("copyReadUser(id: Int!, full: Boolean): Member"),
        "{}",
        subgraphs[1].sdl
    );
    let told = warning_texts(&findings).join("\n");
    assert!(told.contains("another service also has `User`") && told.contains("`copyListUsers`"), "{told}");
}

#[test]
fn adds_links_to_an_unmodified_federated_subgraph() {
    let reviews = "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.3\", import: [\"@key\"])\n\
                   type Query { reviews: [Review!] }\ntype Review { id: ID! post_id: Int stars: Int }\n";
    let links = r#"
links:
  Review.post: { get: "shop/posts/{post_id}" }
  Post.reviews: { query: "reviews/reviews", on: id = post_id }
"#;
    let (subgraphs, _) =
        build_test_subgraphs(&[("shop", SHOP), ("reviews", reviews)], links).expect("no mistake");
    let sdl = &subgraphs[1].sdl;
    assert!(sdl.starts_with(reviews), "{sdl}");
    assert!(sdl.contains("extend type Review @key(fields: \"post_id\", resolvable: false)\n"), "{sdl}");
    assert!(
        sdl.contains("extend type Post @key(fields: \"id\") {\n  id: Int!\n  reviews: [Review!]\n}"),
        "{sdl}"
    );
}

#[test]
fn reports_an_unreadable_schema_at_its_service() {
    let mistakes = build_test_subgraphs(&[("agents", "type Query {")], "").expect_err("no schema");
    assert_eq!(mistakes[0].code, Some("graphql-schema"));
    let mistakes = build_test_subgraphs(&[("agents", "{\"data\": {}}")], "").expect_err("no schema");
    let schema = SourceDocument::Service("agents".into()).at("/graphql/schema");
    assert_eq!(mistakes[0].location, schema, "{mistakes:?}");
}

#[test]
fn introspection_and_sdl_yield_the_same_schema() {
    let text = r#"{"data":{"__schema":{"queryType":{"name":"Root"},"mutationType":null,"subscriptionType":{"name":"Live"},"types":[
        {"kind":"OBJECT","name":"Root","fields":[{"name":"agent","args":[{"name":"id","type":{"kind":"NON_NULL","name":null,"ofType":{"kind":"SCALAR","name":"ID"}},"defaultValue":null}],"type":{"kind":"OBJECT","name":"Agent","ofType":null},"isDeprecated":true,"deprecationReason":"old"}],"interfaces":[]},
        {"kind":"OBJECT","name":"Agent","description":"One.","fields":[{"name":"id","args":[],"type":{"kind":"LIST","name":null,"ofType":{"kind":"SCALAR","name":"ID"}}}],"interfaces":[]},
        {"kind":"OBJECT","name":"Live","fields":[]},{"kind":"OBJECT","name":"__Type","fields":[]}]}}}"#;
    let sdl = "schema { query: Root }\ntype Root { agent(id: ID!): Agent @deprecated(reason: \"old\") }\n\"One.\" type Agent { id: [ID] }";
    let (by_json, findings) = build_test_subgraphs(&[("a", text)], "").expect("a schema");
    let (by_sdl, _) = build_test_subgraphs(&[("a", sdl)], "").expect("a schema");
    assert_eq!(by_json[0].sdl, by_sdl[0].sdl);
    assert!(warning_texts(&findings)[0].contains("subscriptions are left out"));
    assert_eq!(service_bindings(&by_json, "a").types["Query"].name.as_deref(), Some("Root"));
}

#[test]
fn includes_type_extensions_of_a_graphql_service() {
    let sdl = "type Query { _service: String thing(kind: Kind = OLD): Thing old: Legacy @deprecated }
        interface Node { _id: ID! } type Thing implements Node { _id: ID! } extend type Thing { name: String }
        scalar Legacy enum Kind { OLD } extend enum Kind { NEW } type Never { x: Int }
        union Any = Thing extend type Query { any: Any } type Subscription { x: Int }";
    let (subgraphs, findings) = build_test_subgraphs(&[("a", sdl)], "").expect("a schema");
    let sdl = &subgraphs[0].sdl;
    for part in [
        "thing(kind: Kind = OLD): Thing\n",
        "old: Legacy @deprecated(reason: \"No longer supported\")\n",
        "type Thing implements Node {\n  _id: ID!\n  name: String\n}",
        "enum Kind {\n  OLD\n  NEW\n}",
        "union Any = Thing\n",
    ] {
        assert!(sdl.contains(part), "{part} {sdl}");
    }
    assert!(!sdl.contains("_service") && !sdl.contains("Never"), "{sdl}");
    assert_eq!(warning_texts(&findings), ["a Subscription: subscriptions are left out"]);
}

#[test]
fn resolves_union_types_by_discriminator_tag_or_shape() {
    let document = |schema: &str| {
        format!(
            r"
openapi: 3.1.0
paths: {{ /x: {{ get: {{ operationId: x, responses: {{ 200: {{ content: {{ application/json: {{ schema: {{ $ref: '#/components/schemas/Pet' }} }} }} }} }} }} }} }}
components:
  schemas:
    Pet: {schema}
    Cat: {{ type: object, required: [kind, lives], properties: {{ kind: {{ const: cat }}, lives: {{ type: integer }} }} }}
    Dog: {{ type: object, required: [kind, tricks, owner], properties: {{ kind: {{ const: dog }}, tricks: {{ type: integer }}, owner: {{ type: string }} }} }}
    Fish: {{ type: object, required: [fins], properties: {{ fins: {{ type: integer }} }} }}
"
        )
    };
    let told_by = |schema: &str| {
        let (subgraphs, _) = build_test_subgraphs(&[("a", &document(schema))], "").expect("a schema");
        service_bindings(&subgraphs, "a").types.get("Pet").and_then(|it| it.type_rule.clone())
    };
    let refs = "[{ $ref: '#/components/schemas/Cat' }, { $ref: '#/components/schemas/Dog' }]";
    let of = |pairs: [(&str, &str); 2]| pairs.map(|(text, name)| (text.into(), name.into())).into();
    let rule = told_by(&format!(
        "{{ oneOf: {refs}, discriminator: {{ propertyName: is, mapping: {{ miau: '#/components/schemas/Cat' }} }} }}"
    ));
    assert_eq!(
        rule,
        Some(TypeRule::Member { name: "is".into(), types: of([("miau", "Cat"), ("Dog", "Dog")]) })
    );
    let tagged = told_by(&format!("{{ anyOf: {refs} }}"));
    assert_eq!(
        tagged,
        Some(TypeRule::Member { name: "kind".into(), types: of([("cat", "Cat"), ("dog", "Dog")]) })
    );
    let shaped =
        told_by("{ oneOf: [{ $ref: '#/components/schemas/Fish' }, { $ref: '#/components/schemas/Cat' }] }");
    let shapes =
        vec![("Cat".into(), vec!["kind".into(), "lives".into()]), ("Fish".into(), vec!["fins".into()])];
    assert_eq!(shaped, Some(TypeRule::Shape(shapes)));
    assert_eq!(told_by("{ oneOf: [{ $ref: '#/components/schemas/Fish' }, { type: string }] }"), None);
}

#[test]
fn does_not_rename_elements_of_federated_subgraphs() {
    let sdl = |name: &str| {
        let link =
            "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.3\", import: [\"@key\"])";
        format!("{link} type Query {{ {name}: It }} type It @key(fields: \"id\") {{ id: ID! {name}s: Int }}")
    };
    let (one, two) = (sdl("one"), sdl("two"));
    let links = r"
types:
  It: { fields: { id: { rename: number } } }
  Query: { fields: { two: { rename: second } } }
";
    let diagnostics = build_test_subgraphs(&[("one", &one), ("two", &two)], links).expect_err("mistakes");
    let wrong: Vec<String> = diagnostics.iter().map(|it| format!("{it:#}")).collect();
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(
        wrong.iter().any(|it| it.contains("`Query.two` belongs to `two`, a federated subgraph")),
        "{wrong:?}"
    );
    assert!(wrong.iter().any(|it| it.contains("`one` is a federated subgraph")), "{wrong:?}");
}
