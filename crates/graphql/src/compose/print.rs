//! Writing of the supergraph, according to the join specification v0.3, or v0.4 if fields are overridden for
//! a percentage of the requests.

use std::fmt::Write as _;

use graphql_tools::parser::schema::Value as AstValue;

use super::merged_schema::{JoinField, MergedField, MergedType, MergedTypes};
use super::model::{
    ElementMetadata, SchemaValue, SubgraphInput, SubgraphSchema, SubgraphType, SubgraphTypeKind,
};
use super::subgraph_reader::DEFAULT_DEPRECATION_REASON;

const JOIN_DIRECTIVES: &str = "
directive @link(url: String, as: String, for: link__Purpose, import: [link__Import]) repeatable on SCHEMA
directive @join__graph(name: String!, url: String!) on ENUM_VALUE
directive @join__type(graph: join__Graph!, key: join__FieldSet, extension: Boolean! = false, resolvable: Boolean! = true, isInterfaceObject: Boolean! = false) repeatable on OBJECT | INTERFACE | UNION | ENUM | INPUT_OBJECT | SCALAR
directive @join__implements(graph: join__Graph!, interface: String!) repeatable on OBJECT | INTERFACE
directive @join__unionMember(graph: join__Graph!, member: String!) repeatable on UNION
directive @join__enumValue(graph: join__Graph!) repeatable on ENUM_VALUE
scalar join__FieldSet
scalar link__Import
enum link__Purpose {
  SECURITY
  EXECUTION
}
";
const TAG: &str = "directive @tag(name: String!) repeatable on FIELD_DEFINITION | OBJECT | INTERFACE | UNION | ARGUMENT_DEFINITION | SCALAR | ENUM | ENUM_VALUE | INPUT_OBJECT | INPUT_FIELD_DEFINITION | SCHEMA\n";
const INACCESSIBLE: &str = "directive @inaccessible on FIELD_DEFINITION | OBJECT | INTERFACE | UNION | ARGUMENT_DEFINITION | SCALAR | ENUM | ENUM_VALUE | INPUT_OBJECT | INPUT_FIELD_DEFINITION\n";
const ONE_OF: &str = "directive @oneOf on INPUT_OBJECT\n";

/// Writes the supergraph.
pub(super) fn print_supergraph<'a>(schemas: &[SubgraphSchema<'a>], types: &MergedTypes<'a>) -> String {
    let mut printer = SchemaPrinter {
        schemas,
        out: String::new(),
        has_tags: false,
        has_inaccessible: false,
        has_labels: false,
    };
    for (name, of) in types {
        printer.print_definition(name, of);
    }
    let SchemaPrinter { out: definitions, has_tags, has_inaccessible, has_labels, .. } = printer;
    let mut out = String::with_capacity(definitions.len() + 4096);
    let join = if has_labels { "v0.4" } else { "v0.3" };
    out.push_str("schema\n  @link(url: \"https://specs.apollo.dev/link/v1.0\")\n");
    let _ = writeln!(out, "  @link(url: \"https://specs.apollo.dev/join/{join}\", for: EXECUTION)");
    if has_tags {
        out.push_str("  @link(url: \"https://specs.apollo.dev/tag/v0.3\")\n");
    }
    if has_inaccessible {
        out.push_str("  @link(url: \"https://specs.apollo.dev/inaccessible/v0.2\", for: SECURITY)\n");
    }
    out.push_str("{\n");
    for (operation, name) in [("query", "Query"), ("mutation", "Mutation"), ("subscription", "Subscription")]
    {
        if types.contains_key(name) {
            let _ = writeln!(out, "  {operation}: {name}");
        }
    }
    out.push_str("}\n");
    out.push_str(JOIN_DIRECTIVES);
    let label = if has_labels { ", overrideLabel: String" } else { "" };
    let _ = writeln!(
        out,
        "directive @join__field(graph: join__Graph, requires: join__FieldSet, provides: join__FieldSet, type: String, external: Boolean, override: String, usedOverridden: Boolean{label}) repeatable on FIELD_DEFINITION | INPUT_FIELD_DEFINITION"
    );
    let is_one_of = types.values().any(|of| of.is_one_of);
    for (is_used, directive) in [(has_tags, TAG), (has_inaccessible, INACCESSIBLE), (is_one_of, ONE_OF)] {
        out.push_str(if is_used { directive } else { "" });
    }
    out.push_str("enum join__Graph {\n");
    for schema in schemas {
        let _ =
            writeln!(out, "  {} @join__graph(name: {}, url: \"\")", schema.graph, quote_string(&schema.name));
    }
    out.push_str("}\n");
    out.push_str(&definitions);
    out
}

struct SchemaPrinter<'s, 'a> {
    schemas: &'s [SubgraphSchema<'a>],
    out: String,
    has_tags: bool,
    has_inaccessible: bool,
    has_labels: bool,
}

impl<'a> SchemaPrinter<'_, 'a> {
    fn print_definition(&mut self, name: &str, of: &MergedType<'a>) {
        self.out.push('\n');
        self.print_description(&of.metadata, "");
        let word = match of.kind {
            SubgraphTypeKind::Scalar => "scalar",
            SubgraphTypeKind::Object => "type",
            SubgraphTypeKind::Interface => "interface",
            SubgraphTypeKind::Union => "union",
            SubgraphTypeKind::Enum => "enum",
            SubgraphTypeKind::Input => "input",
        };
        let _ = write!(self.out, "{word} {name}");
        for (index, interface) in of.interfaces.iter().enumerate() {
            let _ = write!(self.out, "{}{interface}", if index == 0 { " implements " } else { " & " });
        }
        self.print_join_type(name, of);
        if let Some(url) = &of.specified_by {
            let _ = write!(self.out, " @specifiedBy(url: {})", quote_string(url));
        }
        if of.is_one_of {
            self.out.push_str(" @oneOf");
        }
        self.print_directives(&of.metadata);
        self.print_body(of);
    }

    fn print_join_type(&mut self, name: &str, of: &MergedType<'a>) {
        let all: Vec<usize> =
            if name == "Query" { (0..self.schemas.len()).collect() } else { of.sources.clone() };
        for source in all {
            let graph = &self.schemas[source].graph;
            let subgraph_type = self.schemas[source].types.get(name);
            let plain = || format!("  @join__type(graph: {graph})");
            let directives = match subgraph_type {
                Some(found) if !found.keys.is_empty() => join_type_directives(graph, found),
                _ => plain(),
            };
            let _ = write!(self.out, "\n{directives}");
            for interface in subgraph_type.iter().flat_map(|found| &found.interfaces) {
                let _ = write!(self.out, "\n  @join__implements(graph: {graph}, interface: \"{interface}\")");
            }
            for member in subgraph_type.iter().flat_map(|found| &found.members) {
                let _ = write!(self.out, "\n  @join__unionMember(graph: {graph}, member: \"{member}\")");
            }
        }
    }

    fn print_body(&mut self, of: &MergedType<'a>) {
        match of.kind {
            SubgraphTypeKind::Scalar => {}
            SubgraphTypeKind::Union => {
                for (index, member) in of.members.iter().enumerate() {
                    let _ = write!(self.out, "{}{member}", if index == 0 { "\n  = " } else { " | " });
                }
            }
            SubgraphTypeKind::Object | SubgraphTypeKind::Interface => {
                self.out.push_str("\n{");
                of.fields.iter().for_each(|(name, field)| self.print_field(name, field));
                self.out.push_str("\n}");
            }
            SubgraphTypeKind::Enum => {
                self.out.push_str("\n{");
                for (name, value) in &of.values {
                    self.out.push('\n');
                    self.print_description(&value.metadata, "  ");
                    let _ = write!(self.out, "  {name}");
                    for &source in &value.sources {
                        let _ = write!(self.out, " @join__enumValue(graph: {})", self.schemas[source].graph);
                    }
                    self.print_directives(&value.metadata);
                }
                self.out.push_str("\n}");
            }
            SubgraphTypeKind::Input => {
                self.out.push_str("\n{");
                for (name, merged) in &of.inputs {
                    self.out.push('\n');
                    self.print_description(&merged.input.metadata, "  ");
                    self.out.push_str("  ");
                    self.print_input(name, &merged.input);
                    for (source, of) in &merged.join {
                        let graph = &self.schemas[*source].graph;
                        let _ = write!(self.out, " @join__field(graph: {graph}, type: \"{of}\")");
                    }
                    self.print_directives(&merged.input.metadata);
                }
                self.out.push_str("\n}");
            }
        }
        self.out.push('\n');
    }

    fn print_field(&mut self, name: &str, field: &MergedField<'a>) {
        self.out.push('\n');
        self.print_description(&field.metadata, "  ");
        let _ = write!(self.out, "  {name}");
        for (index, (name, argument)) in field.arguments.iter().enumerate() {
            self.out.push_str(if index == 0 { "(" } else { ", " });
            if let Some(description) = &argument.metadata.description {
                let _ = write!(self.out, "{} ", quote_string(description));
            }
            self.print_input(name, argument);
            self.print_directives(&argument.metadata);
        }
        let end = if field.arguments.is_empty() { "" } else { ")" };
        let _ = write!(self.out, "{end}: {}", field.type_ref);
        field.join.iter().for_each(|join| self.print_join_field(join));
        self.print_directives(&field.metadata);
    }

    fn print_join_field(&mut self, join: &JoinField<'_>) {
        self.has_labels |= join.label.is_some();
        let mut said: Vec<String> = Vec::new();
        said.extend(join.source.map(|source| format!("graph: {}", self.schemas[source].graph)));
        said.extend(join.type_ref.as_ref().map(|of| format!("type: \"{of}\"")));
        said.extend(join.is_external.then(|| "external: true".to_owned()));
        let texts = [
            ("requires", &join.requires),
            ("provides", &join.provides),
            ("override", &join.overrides),
            ("overrideLabel", &join.label),
        ];
        said.extend(
            texts.iter().filter_map(|(name, text)| Some(format!("{name}: {}", quote_string(text.as_ref()?)))),
        );
        said.extend(join.is_used_overridden.then(|| "usedOverridden: true".to_owned()));
        if said.is_empty() {
            self.out.push_str(" @join__field");
        } else {
            let _ = write!(self.out, " @join__field({})", said.join(", "));
        }
    }

    fn print_input(&mut self, name: &str, input: &SubgraphInput<'a>) {
        let _ = write!(self.out, "{name}: {}", input.type_ref);
        if let Some(default) = &input.default {
            let _ = write!(self.out, " = {}", format_value(default));
        }
    }

    fn print_directives(&mut self, shown: &ElementMetadata) {
        self.has_inaccessible |= shown.is_inaccessible;
        self.has_tags |= !shown.tags.is_empty();
        if let Some(reason) = &shown.deprecated {
            self.out.push_str(" @deprecated");
            if reason != DEFAULT_DEPRECATION_REASON {
                let _ = write!(self.out, "(reason: {})", quote_string(reason));
            }
        }
        if shown.is_inaccessible {
            self.out.push_str(" @inaccessible");
        }
        for tag in &shown.tags {
            let _ = write!(self.out, " @tag(name: {})", quote_string(tag));
        }
    }

    fn print_description(&mut self, shown: &ElementMetadata, indent: &str) {
        if let Some(description) = &shown.description {
            let _ = writeln!(self.out, "{indent}{}", quote_string(description));
        }
    }
}

fn join_type_directives(graph: &str, of: &SubgraphType<'_>) -> String {
    let one = |key: &super::model::EntityKey| {
        let mut said = format!("  @join__type(graph: {graph}, key: {}", quote_string(&key.fields.text));
        said.push_str(if of.is_defined { "" } else { ", extension: true" });
        said.push_str(if key.is_resolvable { "" } else { ", resolvable: false" });
        said.push_str(if of.is_interface_object { ", isInterfaceObject: true" } else { "" });
        said.push(')');
        said
    };
    of.keys.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// Writes a value in GraphQL syntax. The parser's own formatting turns multi-line strings into block strings,
/// which lose whitespace at their ends.
fn format_value<'a>(value: &SchemaValue<'a>) -> String {
    match value {
        AstValue::String(text) => quote_string(text),
        AstValue::List(items) => {
            format!("[{}]", items.iter().map(format_value).collect::<Vec<_>>().join(", "))
        }
        AstValue::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name}: {}", format_value(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

/// Writes a string in GraphQL syntax on one line.
fn quote_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if letter < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}
