//! Checks of an existing supergraph's `join` directives. The planner uses them unchecked and panics on
//! contradictions.

use std::collections::{HashMap, HashSet};

use diagnostics::Diagnostics;
use graphql_tools::parser::Pos;
use graphql_tools::parser::schema::{
    Definition, Directive, Document, Field, InputValue, Type, TypeDefinition, Value,
};

use super::check::is_label;
use super::directive_names::{directive_argument, string_value};
use super::error::{CompositionErrorKind, ReportError};
use super::selection::{FieldSetSelection, SelectedElement};
use super::subgraph_reader::is_built_in;

type DirectivesByService<'a> = TypeDefinition<'a, &'a str>;
type AppliedDirectives<'a> = Directive<'a, &'a str>;

/// Checks a supergraph with these names of services in `join__Graph`.
pub(super) fn check_join_directives<'a>(
    document: &Document<'a, &'a str>,
    graphs: &HashSet<&'a str>,
    errors: &mut Diagnostics,
) {
    let types = || {
        document.definitions.iter().filter_map(|definition| match definition {
            Definition::TypeDefinition(of) => Some(of),
            _ => None,
        })
    };
    let by_name = types().map(|of| (type_name(of), of)).collect();
    let mut joined = JoinDirectives { graphs, types: by_name, errors };
    let schema = document.definitions.iter().find_map(|definition| match definition {
        Definition::SchemaDefinition(schema) => Some(schema),
        _ => None,
    });
    let (roots, position) = match schema {
        Some(schema) => ([schema.query, schema.mutation, schema.subscription], schema.position),
        None => ([None; 3], Pos::default()),
    };
    let [query, others @ ..] = roots;
    for root in others.into_iter().flatten().chain([query.unwrap_or("Query")]) {
        joined.check_root(root, position);
    }
    types().filter(|of| !type_name(of).starts_with("join__")).for_each(|of| joined.check_definition(of));
}

struct JoinDirectives<'d, 'a> {
    graphs: &'d HashSet<&'a str>,
    types: HashMap<&'a str, &'d DirectivesByService<'a>>,
    errors: &'d mut Diagnostics,
}

/// The element that directives are applied to: its coordinate, the type that contains it, and the type of a
/// field's values.
#[derive(Clone, Copy)]
struct DirectiveTarget<'p> {
    coordinate: &'p str,
    owner: &'p str,
    value_type: Option<&'p str>,
}

impl<'a> JoinDirectives<'_, 'a> {
    fn check_root(&mut self, root: &str, position: Pos) {
        if !self.types.get(root).is_some_and(|of| is_object(of)) {
            let wrong = format!("has no type \"{root}\", its root type");
            self.report_error(CompositionErrorKind::InvalidGraphql, "schema", &wrong, position);
        }
    }

    fn check_definition(&mut self, of: &DirectivesByService<'a>) {
        let (of_type, directives) = (type_name(of), type_directives(of));
        let target = DirectiveTarget { coordinate: of_type, owner: of_type, value_type: None };
        directives.iter().for_each(|directive| self.check_directive(target, directive));
        for field in type_fields(of) {
            let (coordinate, value) =
                (format!("{of_type}.{}", field.name), innermost_type(&field.field_type));
            self.check_type_exists(&coordinate, value, field.position);
            field.arguments.iter().for_each(|argument| self.check_input(&coordinate, argument));
            let directive_target =
                DirectiveTarget { coordinate: &coordinate, owner: of_type, value_type: Some(value) };
            field.directives.iter().for_each(|directive| self.check_directive(directive_target, directive));
        }
        match of {
            TypeDefinition::InputObject(of) => {
                of.fields.iter().for_each(|field| self.check_input(of_type, field))
            }
            TypeDefinition::Enum(of) => {
                for value in &of.values {
                    value.directives.iter().for_each(|directive| self.check_directive(target, directive));
                }
            }
            TypeDefinition::Union(of) => {
                of.types.iter().for_each(|member| self.check_type_exists(of_type, member, of.position));
            }
            _ => {}
        }
    }

    fn check_input(&mut self, owner: &str, input: &InputValue<'a, &'a str>) {
        let coordinate = format!("{owner}.{}", input.name);
        self.check_type_exists(&coordinate, innermost_type(&input.value_type), input.position);
        let target = DirectiveTarget { coordinate: &coordinate, owner, value_type: None };
        input.directives.iter().for_each(|directive| self.check_directive(target, directive));
    }

    fn check_type_exists(&mut self, coordinate: &str, named: &str, position: Pos) {
        if !self.types.contains_key(named) && !is_built_in(named) {
            let wrong = format!("refers to the type \"{named}\", which does not exist");
            self.report_error(CompositionErrorKind::InvalidGraphql, coordinate, &wrong, position);
        }
    }

    fn check_directive(&mut self, target: DirectiveTarget<'_>, directive: &AppliedDirectives<'a>) {
        let Some(kind) = directive.name.strip_prefix("join__") else { return };
        let said = |name: &str| string_value(directive_argument(directive, name));
        let graphs = self.graphs;
        let mut wrong = |code: CompositionErrorKind, what: &str| {
            self.report_error(code, target.coordinate, what, directive.position)
        };
        let graph = directive_argument(directive, "graph").and_then(|graph| match graph {
            Value::Enum(name) => Some(*name),
            Value::String(name) => Some(name.as_str()),
            _ => None,
        });
        match graph {
            Some(graph) if !graphs.contains(graph) => {
                let what =
                    format!("has @{} of \"{graph}\", which is not a value of `join__Graph`", directive.name);
                return wrong(CompositionErrorKind::InvalidGraphql, &what);
            }
            None if kind == "field"
                && ["requires", "provides", "override"].iter().any(|name| said(name).is_some()) =>
            {
                let what = "has @join__field without a service";
                return wrong(CompositionErrorKind::InvalidGraphql, what);
            }
            None if matches!(kind, "type" | "implements" | "unionMember" | "enumValue") => {
                let what = format!("has @{} without a service", directive.name);
                return wrong(CompositionErrorKind::InvalidGraphql, &what);
            }
            _ => {}
        }
        if said("overrideLabel").is_some_and(|label| !is_label(label)) {
            wrong(CompositionErrorKind::OverrideLabelInvalid, "has an invalid label of @override");
        }
        if said("type").is_some_and(|ty| !is_type(ty)) {
            wrong(CompositionErrorKind::InvalidGraphql, "has @join__field with an invalid type");
        }
        let is_interface_object =
            directive_argument(directive, "isInterfaceObject") == Some(&Value::Boolean(true));
        if is_interface_object && said("key").is_none() {
            wrong(CompositionErrorKind::InterfaceObjectUsageError, "is an interface object without a key");
        }
        for (argument, is_kind) in
            [("interface", is_interface as fn(&DirectivesByService<'_>) -> bool), ("member", is_object)]
        {
            let Some(other) = said(argument) else { continue };
            if !self.types.get(other).is_some_and(|of| is_kind(of)) {
                let what =
                    format!("has @{} of \"{other}\", which is not a valid {argument} here", directive.name);
                self.report_error(
                    CompositionErrorKind::InvalidGraphql,
                    target.coordinate,
                    &what,
                    directive.position,
                );
            }
        }
        for (argument, code, of) in [
            ("key", CompositionErrorKind::KeyInvalidFields, Some(target.owner)),
            ("requires", CompositionErrorKind::RequiresInvalidFields, Some(target.owner)),
            ("provides", CompositionErrorKind::ProvidesInvalidFields, target.value_type),
        ] {
            let (Some(fields), Some(of)) = (said(argument), of) else { continue };
            let why = FieldSetSelection::parse(fields)
                .and_then(|selection| self.check_selection(of, &selection))
                .err();
            if let Some(why) = why {
                let what = format!("has the {argument} \"{fields}\", which {why}");
                self.report_error(code, target.coordinate, &what, directive.position);
            }
        }
    }

    /// Checks that a type has these fields.
    fn check_selection(&self, of: &str, selection: &FieldSetSelection) -> Result<(), String> {
        let known = self.types.get(of).ok_or_else(|| format!("requires fields of \"{of}\""))?;
        if selection.0.is_empty() {
            return Err(format!("selects no field of \"{of}\""));
        }
        for picked in &selection.0 {
            match picked {
                SelectedElement::Field { name, subselection: below, .. }
                    if **name == *"__typename" && below.0.is_empty() => {}
                SelectedElement::Field { name, subselection: below, .. } => {
                    let field = type_fields(known).iter().find(|field| *field.name == **name);
                    let field =
                        field.ok_or_else(|| format!("selects \"{of}.{name}\", which does not exist"))?;
                    let of = innermost_type(&field.field_type);
                    let is_composite = self.types.get(of).is_some_and(|of| {
                        is_object(of) || is_interface(of) || matches!(of, TypeDefinition::Union(_))
                    });
                    match is_composite {
                        true => self.check_selection(of, below)?,
                        false if below.0.is_empty() => {}
                        false => return Err(format!("requires fields of \"{of}\"")),
                    }
                }
                SelectedElement::InlineFragment { type_condition: other, below } => {
                    self.check_selection(other.as_deref().unwrap_or(of), below)?
                }
            }
        }
        Ok(())
    }

    fn report_error(&mut self, code: CompositionErrorKind, coordinate: &str, what: &str, position: Pos) {
        let hint = "use the unmodified output of a composition";
        self.errors.report(code, &[], coordinate, format!("\"{coordinate}\" {what}."), hint);
        self.errors.set_position(position.line, position.column);
    }
}

fn type_name<'a>(of: &DirectivesByService<'a>) -> &'a str {
    match of {
        TypeDefinition::Scalar(of) => of.name,
        TypeDefinition::Object(of) => of.name,
        TypeDefinition::Interface(of) => of.name,
        TypeDefinition::Union(of) => of.name,
        TypeDefinition::Enum(of) => of.name,
        TypeDefinition::InputObject(of) => of.name,
    }
}

fn type_directives<'d, 'a>(of: &'d DirectivesByService<'a>) -> &'d [AppliedDirectives<'a>] {
    match of {
        TypeDefinition::Scalar(of) => &of.directives,
        TypeDefinition::Object(of) => &of.directives,
        TypeDefinition::Interface(of) => &of.directives,
        TypeDefinition::Union(of) => &of.directives,
        TypeDefinition::Enum(of) => &of.directives,
        TypeDefinition::InputObject(of) => &of.directives,
    }
}

fn type_fields<'d, 'a>(of: &'d DirectivesByService<'a>) -> &'d [Field<'a, &'a str>] {
    match of {
        TypeDefinition::Object(of) => &of.fields,
        TypeDefinition::Interface(of) => &of.fields,
        _ => &[],
    }
}

fn is_object(of: &DirectivesByService<'_>) -> bool {
    matches!(of, TypeDefinition::Object(_))
}

fn is_interface(of: &DirectivesByService<'_>) -> bool {
    matches!(of, TypeDefinition::Interface(_))
}

fn innermost_type<'a>(of: &Type<'a, &'a str>) -> &'a str {
    match of {
        Type::NamedType(name) => name,
        Type::ListType(of) | Type::NonNullType(of) => innermost_type(of),
    }
}

/// Whether a text is a type reference, such as `[User!]`.
fn is_type(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_[]!".contains(&byte);
    let sdl = format!("type T {{ f: {text} }}");
    text.bytes().all(is_name)
        && !super::sdl_text::is_too_deep(text)
        && graphql_tools::parser::parse_schema::<&str>(&sdl).is_ok()
}
