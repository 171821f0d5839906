//! Federated schemas and requests for them. They are mostly valid, and include the constructs that make
//! documents expensive (fragments that spread each other, aliases, repetition, hops between services) and
//! common mistakes.
//!
//! A type is an entity whose fields are spread over the services. Each service has stubs of the types that
//! its fields refer to, so that most schemas compose.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::ByteChoices;
use crate::generate::json;

/// The maximum length of a document in bytes.
const MAX_DOCUMENT_LENGTH: usize = 32 << 10;
const SCALARS: &[&str] = &["ID", "Int", "Float", "String", "Boolean"];
const HEADER: &str = "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.7\", \
    import: [\"@key\", \"@shareable\", \"@provides\", \"@external\", \"@requires\", \"@inaccessible\"])\n";

/// A schema with its subgraphs.
#[derive(Clone, Debug)]
pub struct FuzzSchema {
    /// The schemas of the services, by name.
    pub services: Vec<(String, String)>,
    types: Vec<CompositeType>,
    /// The fields of `Query` and of `Mutation`.
    query: Vec<FuzzField>,
    mutation: Vec<FuzzField>,
}

/// A type with fields, or a union.
#[derive(Clone, Debug)]
struct CompositeType {
    name: String,
    fields: Vec<FuzzField>,
    /// The possible objects of an abstract type, as indices into [`FuzzSchema::types`].
    possible_types: Vec<usize>,
}

#[derive(Clone, Debug)]
struct FuzzField {
    name: String,
    ty: NamedFuzzType,
    /// 0 for a value, 1 for a list, 2 for a list of lists.
    lists: usize,
    is_required: bool,
    has_arguments: bool,
    /// The services that have the field.
    services: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedFuzzType {
    Scalar(&'static str),
    Enum,
    Composite(usize),
}

/// Generates a schema.
#[must_use]
pub fn schema(choices: &mut ByteChoices<'_>) -> FuzzSchema {
    let services = 1 + choices.number_below(3);
    let objects = 1 + choices.number_below(4);
    let has_interface = choices.one_in(2);
    let has_union = choices.one_in(3);
    let composites = objects + usize::from(has_interface) + usize::from(has_union);
    let mut types: Vec<CompositeType> = (0..objects)
        .map(|number| CompositeType {
            name: format!("T{number}"),
            fields: generate_fields(choices, "f", 1 + extra_field_count(number), services, composites),
            possible_types: Vec::new(),
        })
        .collect();
    // The first service has all objects, so that it can have the abstract types.
    if has_interface {
        let possible = (0..objects).filter(|object| *object == 0 || choices.one_in(2)).collect();
        let next =
            FuzzField { name: "next".into(), ty: NamedFuzzType::Composite(objects), ..FuzzField::id_field() };
        types.push(CompositeType { name: "I0".into(), fields: vec![next], possible_types: possible });
    }
    if has_union {
        types.push(CompositeType {
            name: "U0".into(),
            fields: Vec::new(),
            possible_types: (0..objects).collect(),
        });
    }
    let query = generate_fields(choices, "q", 3, services, composites);
    let mutation =
        if choices.one_in(4) { generate_fields(choices, "m", 1, services, composites) } else { Vec::new() };
    let mut schema = FuzzSchema { services: Vec::new(), types, query, mutation };
    schema.services =
        (0..services).map(|service| (format!("s{service}"), schema.service_sdl(service, objects))).collect();
    schema
}

/// The number of additional fields of a type, which varies by type.
fn extra_field_count(number: usize) -> usize {
    2 + number % 2
}

fn generate_fields(
    choices: &mut ByteChoices<'_>,
    prefix: &str,
    most: usize,
    services: usize,
    composites: usize,
) -> Vec<FuzzField> {
    let count = 1 + choices.number_below(most + 1);
    let field = |number: usize, choices: &mut ByteChoices<'_>| {
        let ty = match choices.number_below(4) {
            0 => NamedFuzzType::Scalar(choices.pick(SCALARS)),
            1 if choices.one_in(2) => NamedFuzzType::Enum,
            _ => NamedFuzzType::Composite(choices.number_below(composites)),
        };
        let mut of = vec![choices.number_below(services)];
        // Fields of abstract types belong to the first service.
        if services > 1 && matches!(ty, NamedFuzzType::Scalar(_)) && choices.one_in(4) {
            of.push((of[0] + 1) % services);
        }
        FuzzField {
            name: format!("{prefix}{number}"),
            ty,
            lists: [0, 0, 1, 2][choices.number_below(4)],
            is_required: choices.one_in(4),
            has_arguments: choices.one_in(3),
            services: of,
        }
    };
    (0..count).map(|number| field(number, choices)).collect()
}

impl FuzzField {
    fn id_field() -> Self {
        Self {
            name: "id".into(),
            ty: NamedFuzzType::Scalar("ID"),
            lists: 0,
            is_required: false,
            has_arguments: false,
            services: vec![0],
        }
    }
}

impl FuzzSchema {
    /// The schema of one service in SDL.
    fn service_sdl(&self, service: usize, objects: usize) -> String {
        let mut sdl = HEADER.to_owned();
        sdl.push_str("enum E { A B C }\n");
        sdl.push_str("input N { x: Int = 1, e: E, n: N, l: [Int!] }\n");
        self.write_root_type(&mut sdl, "Query", &self.query, service);
        self.write_root_type(&mut sdl, "Mutation", &self.mutation, service);
        let interface = self.types.iter().find(|of| of.name == "I0");
        for (number, object) in self.types.iter().take(objects).enumerate() {
            let implements = service == 0 && interface.is_some_and(|of| of.possible_types.contains(&number));
            let named = if implements { " implements I0" } else { "" };
            let _ = write!(sdl, "type {}{named} @key(fields: \"id\") {{ id: ID!", object.name);
            sdl.push_str(if implements { " next: I0" } else { "" });
            self.write_fields(&mut sdl, &object.fields, service);
            sdl.push_str(" }\n");
        }
        for of in self.types.iter().skip(objects).filter(|_| service == 0) {
            let possible: Vec<&str> = of.possible_types.iter().map(|at| &*self.types[*at].name).collect();
            let _ = match of.name.starts_with('I') {
                true => writeln!(sdl, "interface {} {{ id: ID! next: I0 }}", of.name),
                false => writeln!(sdl, "union {} = {}", of.name, possible.join(" | ")),
            };
        }
        sdl
    }

    fn write_root_type(&self, sdl: &mut String, name: &str, fields: &[FuzzField], service: usize) {
        let mut inner = String::new();
        self.write_fields(&mut inner, fields, service);
        if !inner.is_empty() {
            let _ = writeln!(sdl, "type {name} {{{inner} }}");
        }
    }

    fn write_fields(&self, sdl: &mut String, fields: &[FuzzField], service: usize) {
        for field in fields {
            let is_abstract =
                matches!(field.ty, NamedFuzzType::Composite(at) if !self.types[at].possible_types.is_empty());
            let services = if is_abstract { &[0][..] } else { &field.services };
            if !services.contains(&service) {
                continue;
            }
            let arguments =
                if field.has_arguments { "(a: Int, e: E = B, n: N, l: [[String!]!])" } else { "" };
            let (open, close) = ("[".repeat(field.lists), "]".repeat(field.lists));
            let required = if field.is_required { "!" } else { "" };
            let shared = if services.len() > 1 { " @shareable" } else { "" };
            let name = self.type_name(field.ty);
            let _ = write!(sdl, " {}{arguments}: {open}{name}{close}{required}{shared}", field.name);
        }
    }

    fn type_name(&self, ty: NamedFuzzType) -> &str {
        match ty {
            NamedFuzzType::Scalar(name) => name,
            NamedFuzzType::Enum => "E",
            NamedFuzzType::Composite(at) => &self.types[at].name,
        }
    }
}

/// A request: a document, the operation name, and variables as JSON.
#[derive(Clone, Debug)]
pub struct GeneratedRequest {
    /// The document.
    pub document: String,
    /// The operation name, if there is one.
    pub operation: Option<String>,
    /// The variables.
    pub variables: String,
}

/// Generates a request for a schema. Most requests are valid.
#[must_use]
pub fn request(choices: &mut ByteChoices<'_>, schema: &FuzzSchema) -> GeneratedRequest {
    let is_valid = !choices.one_in(4);
    let operations = if !is_valid && choices.one_in(4) { 3 } else { 1 };
    let fragments = choices.number_below(8);
    let mut writer = GraphqlGenerator {
        choices,
        schema,
        is_valid,
        fragments,
        out: String::new(),
        first_fragment: 0,
        spread_fragments: BTreeSet::new(),
        variables: BTreeSet::new(),
        aliases: 0,
    };
    let bodies: Vec<(&str, String)> = (0..operations).map(|_| writer.write_operation()).collect();
    let fragments: String = (0..fragments).filter_map(|number| writer.write_fragment(number)).collect();
    let variables = writer.variable_declarations();
    let mut document = String::new();
    for (number, (kind, body)) in bodies.iter().enumerate() {
        let name = if operations > 1 || number > 0 { format!(" Q{number}") } else { String::new() };
        let _ = write!(document, "{kind}{name}{variables}{body}");
    }
    document.push_str(&fragments);
    let operation =
        (operations > 1 || choices.one_in(32)).then(|| format!("Q{}", choices.number_below(operations)));
    let variables = variable_values(choices);
    GeneratedRequest { document, operation, variables }
}

/// Values of variables, mostly of the right types.
fn variable_values(choices: &mut ByteChoices<'_>) -> String {
    if choices.one_in(4) {
        let mut out = String::new();
        json::write_value(choices, json::KnownMemberNames(&["v", "i", "x", "e", "n", "l"]), 4, &mut out);
        return out;
    }
    let values = [
        ("v", ["true", "false", "null"]),
        ("i", ["1", "null", "2147483648"]),
        ("e", ["\"A\"", "\"C\"", "\"a\""]),
        ("n", ["{}", "{\"x\":2,\"e\":\"B\",\"l\":[1]}", "{\"n\":{\"n\":{\"n\":null}}}"]),
        ("l", ["[]", "[[\"a\",\"\\u0000\"],[]]", "\"a\""]),
    ];
    let pairs = values.map(|(name, texts)| format!("\"{name}\":{}", choices.pick(&texts)));
    format!("{{{}}}", pairs.join(","))
}

/// The state of writing a document.
struct GraphqlGenerator<'w, 'b> {
    choices: &'w mut ByteChoices<'b>,
    schema: &'w FuzzSchema,
    /// Whether to write no mistakes.
    is_valid: bool,
    fragments: usize,
    out: String,
    /// The first fragment that the current one may spread, which prevents cycles unless one is intended.
    first_fragment: usize,
    /// The fragments and variables in use.
    spread_fragments: BTreeSet<usize>,
    variables: BTreeSet<&'static str>,
    aliases: usize,
}

/// The variables and their types.
const VARIABLES: [(&str, &str); 5] =
    [("v", "Boolean! = true"), ("i", "Int = 3"), ("e", "E"), ("n", "N = { x: 2 }"), ("l", "[[String!]!]")];

impl<'w> GraphqlGenerator<'w, '_> {
    /// Writes an operation. Returns its kind and its selections.
    fn write_operation(&mut self) -> (&'static str, String) {
        let schema = self.schema;
        let is_mutation = !schema.mutation.is_empty() && self.choices.one_in(4);
        let kind = match is_mutation {
            _ if self.makes_mistake(24) => "subscription",
            true => "mutation",
            false => "query",
        };
        let (root, fields) =
            if is_mutation { ("Mutation", &schema.mutation) } else { ("Query", &schema.query) };
        self.first_fragment = 0;
        let depth = 1 + self.choices.number_below(12);
        self.write_directives();
        self.write_selection_set(root, fields, &[], depth, false);
        (kind, std::mem::take(&mut self.out))
    }

    /// A fragment, if it is in use or a mistake is made.
    fn write_fragment(&mut self, number: usize) -> Option<String> {
        if !self.spread_fragments.contains(&number) && !self.makes_mistake(4) {
            return None;
        }
        let of = self.fragment_type(number);
        let _ = write!(self.out, " fragment F{number} on {}", of.name);
        // Mostly spreads later fragments, since cycles are refused early.
        self.first_fragment = if self.makes_mistake(16) { 0 } else { number + 1 };
        let depth = 1 + self.choices.number_below(8);
        self.write_selection_set(&of.name, &of.fields, &of.possible_types, depth, false);
        Some(std::mem::take(&mut self.out))
    }

    /// The type condition of a fragment.
    fn fragment_type(&self, number: usize) -> &'w CompositeType {
        &self.schema.types[number % self.schema.types.len()]
    }

    /// The variable declarations of an operation.
    fn variable_declarations(&mut self) -> String {
        let is_wrong = self.makes_mistake(4);
        let used = VARIABLES.iter().filter(|(name, _)| self.variables.contains(name) != is_wrong);
        let used: Vec<String> = used.map(|(name, ty)| format!("${name}: {ty}")).collect();
        if used.is_empty() { String::new() } else { format!("({})", used.join(", ")) }
    }

    /// Whether to make a mistake, with probability 1 in `many`.
    fn makes_mistake(&mut self, many: usize) -> bool {
        !self.is_valid && self.choices.one_in(many)
    }

    fn write_variable(&mut self, name: &'static str) {
        self.variables.insert(name);
        let _ = write!(self.out, "${name}");
    }

    /// Writes a selection set of a type with these fields. In the objects of an abstract type each field gets
    /// a unique alias, since fields of the same name must have the same type.
    fn write_selection_set(
        &mut self,
        name: &str,
        fields: &[FuzzField],
        possible: &[usize],
        depth: usize,
        is_object_of: bool,
    ) {
        self.out.push_str(" {");
        let begun = self.out.len();
        let count = 1 + self.choices.number_below(4);
        for _ in 0..count {
            self.write_selection(name, fields, possible, depth, is_object_of);
        }
        if self.choices.one_in(24) {
            let times = 1 << self.choices.number_below(9);
            self.repeat_text(begun, times);
        }
        self.out.push_str(" }");
    }

    /// Repeats the text written since `begun`, optionally with new aliases for each copy.
    fn repeat_text(&mut self, begun: usize, times: usize) {
        let once = self.out[begun..].to_owned();
        let is_aliased = self.choices.one_in(2);
        for time in 0..times {
            if self.out.len() + once.len() > MAX_DOCUMENT_LENGTH {
                return;
            }
            match is_aliased {
                true => self.out.push_str(&once.replace(" x", &format!(" x{time}_"))),
                false => self.out.push_str(&once),
            }
        }
    }

    fn write_selection(
        &mut self,
        name: &str,
        fields: &[FuzzField],
        possible: &[usize],
        depth: usize,
        is_object_of: bool,
    ) {
        if self.out.len() > MAX_DOCUMENT_LENGTH {
            self.out.push_str(" __typename");
            return;
        }
        match self.choices.number_below(12) {
            0 => self.out.push_str(" __typename"),
            1 if name != "Query" && name != "Mutation" && !name.starts_with('U') => self.out.push_str(" id"),
            2 => self.write_spread(name),
            3 if depth > 0 => self.write_inline_fragment(name, fields, possible, depth),
            4 if self.makes_mistake(4) => self.write_mistake(),
            5 if name == "Query" && self.choices.one_in(8) => self.write_introspection(),
            _ if fields.is_empty() => self.write_inline_fragment(name, fields, possible, depth),
            _ => {
                let field = &fields[self.choices.number_below(fields.len())];
                self.write_field(field, depth, is_object_of);
            }
        }
    }

    /// Writes a spread of a fragment with the same type, unless a mistake is made.
    fn write_spread(&mut self, name: &str) {
        let is_wrong = self.makes_mistake(4);
        let fitting = (self.first_fragment..self.fragments)
            .filter(|number| is_wrong || self.fragment_type(*number).name == name);
        let fitting: Vec<usize> = fitting.collect();
        if fitting.is_empty() {
            self.out.push_str(" __typename");
            return;
        }
        let number = self.choices.pick(&fitting);
        self.spread_fragments.insert(number);
        let _ = write!(self.out, " ...F{number}");
        self.write_directives();
    }

    fn write_inline_fragment(&mut self, name: &str, fields: &[FuzzField], possible: &[usize], depth: usize) {
        if depth == 0 {
            self.out.push_str(" __typename");
            return;
        }
        let schema = self.schema;
        match possible.get(self.choices.number_below(possible.len() + 1)) {
            Some(at) => {
                let of = &schema.types[*at];
                let _ = write!(self.out, " ... on {}", of.name);
                self.write_directives();
                self.write_selection_set(&of.name, &of.fields, &of.possible_types, depth - 1, true);
            }
            None => {
                let condition = if self.choices.one_in(2) { format!(" on {name}") } else { String::new() };
                let _ = write!(self.out, " ...{condition}");
                self.write_directives();
                self.write_selection_set(name, fields, possible, depth - 1, true);
            }
        }
    }

    fn write_field(&mut self, field: &FuzzField, depth: usize, is_object_of: bool) {
        let schema = self.schema;
        let composite = match field.ty {
            NamedFuzzType::Composite(at) => Some(&schema.types[at]),
            _ => None,
        };
        if composite.is_some() && depth == 0 {
            self.out.push_str(" __typename");
            return;
        }
        let has_arguments = field.has_arguments && self.choices.one_in(2);
        if self.makes_mistake(8) {
            self.out.push_str(self.choices.pick(&[" x:", " id:", " __typename:"]));
        } else if has_arguments || is_object_of || self.choices.one_in(4) {
            self.aliases += 1;
            let _ = write!(self.out, " x{}:", self.aliases);
        }
        let _ = write!(self.out, " {}", field.name);
        if has_arguments {
            self.write_arguments();
        }
        self.write_directives();
        if let Some(of) = composite {
            self.write_selection_set(&of.name, &of.fields, &of.possible_types, depth - 1, false);
        }
    }

    fn write_arguments(&mut self) {
        self.out.push('(');
        let mut names = vec!["a", "e", "n", "l"];
        for _ in 0..=self.choices.number_below(2) {
            let name = names.remove(self.choices.number_below(names.len()));
            let _ = write!(self.out, "{name}: ");
            match self.makes_mistake(4) {
                true => self.write_literal(3),
                false => self.write_argument(name, 3),
            }
            self.out.push(' ');
        }
        self.out.push(')');
    }

    /// Writes a value of an argument or of a member of `N`.
    fn write_argument(&mut self, name: &str, depth: usize) {
        match (name, self.choices.number_below(3)) {
            (_, 0) => self.out.push_str("null"),
            ("a" | "x", 1) => self.write_variable("i"),
            ("a" | "x", _) => self.out.push_str(self.choices.pick(&["1", "-0", "2147483647"])),
            ("e", 1) => self.write_variable("e"),
            ("e", _) => self.out.push_str(self.choices.pick(&["A", "B", "C"])),
            ("n", 1) => self.write_variable("n"),
            ("n", _) if depth > 0 => {
                let name = self.choices.pick(&["x", "e", "n"]);
                let _ = write!(self.out, "{{{name}: ");
                self.write_argument(name, depth - 1);
                self.out.push('}');
            }
            ("l", 1) => self.write_variable("l"),
            ("l", _) => {
                let text = self.choices.pick(&["", "a", "\\u0000", "\\\"", "\u{e9}"]);
                let times = if self.choices.one_in(16) { 1 << self.choices.number_below(12) } else { 1 };
                let _ = write!(self.out, "[[\"{}\"], []]", text.repeat(times));
            }
            _ => self.out.push_str("{}"),
        }
    }

    /// Writes a value of any type.
    fn write_literal(&mut self, depth: usize) {
        match self.choices.number_below(if depth == 0 { 6 } else { 8 }) {
            0 => self.write_variable("i"),
            1 => self.out.push_str("$gone"),
            2 => self.out.push_str(self.choices.pick(&["A", "D", "true"])),
            3 => self.out.push_str(self.choices.pick(&["1", "2147483648", "1e400", "0.5"])),
            4 => self.out.push_str(self.choices.pick(&[
                "\"a\"",
                "\"\\u0000\"",
                "\"\"\"b\\\"\"\"\"\"\"",
                "\"\"",
            ])),
            5 => {
                let times = 1 << self.choices.number_below(12);
                let _ = write!(self.out, "\"{}\"", "y".repeat(times));
            }
            6 => {
                self.out.push('[');
                for _ in 0..self.choices.number_below(3) {
                    self.write_literal(depth - 1);
                    self.out.push(' ');
                }
                self.out.push(']');
            }
            _ => {
                self.out.push('{');
                for _ in 0..self.choices.number_below(3) {
                    let _ = write!(self.out, "{}: ", self.choices.pick(&["x", "e", "n", "l", "z"]));
                    self.write_literal(depth - 1);
                    self.out.push(' ');
                }
                self.out.push('}');
            }
        }
    }

    fn write_directives(&mut self) {
        if self.makes_mistake(16) {
            let wrong =
                [" @gone", " @skip", " @include(if: $v) @include(if: $v)", " @deprecated", " @skip(if: 1)"];
            self.out.push_str(self.choices.pick(&wrong));
            return;
        }
        // Not before the selection set of an operation.
        if self.out.is_empty() {
            return;
        }
        match self.choices.number_below(20) {
            1 => self.write_condition(" @include(if: "),
            2 => self.write_condition(" @skip(if: "),
            3 => self.out.push_str(self.choices.pick(&[" @include(if: false)", " @skip(if: true)"])),
            _ => {}
        }
    }

    fn write_condition(&mut self, directive: &str) {
        self.out.push_str(directive);
        self.write_variable("v");
        self.out.push(')');
    }

    fn write_introspection(&mut self) {
        self.out.push_str(self.choices.pick(&[
            " __schema { types { name fields { name type { name ofType { name } } } } }",
            " __type(name: \"T0\") { possibleTypes { name } interfaces { name fields(includeDeprecated: true) { args { name } } } }",
            " __schema { directives { name args { defaultValue } } queryType { fields { name } } }",
        ]));
    }

    fn write_mistake(&mut self) {
        let mistakes = [
            " gone",
            " ...Gone",
            " id { x }",
            " f0(a: 1, a: 2)",
            " __schema",
            " }",
            " ... on Gone { id }",
            " @",
            " {",
            " x: id x: __typename",
        ];
        self.out.push_str(self.choices.pick(&mistakes));
    }
}
