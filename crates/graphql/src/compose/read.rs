//! A schema's text becomes its [`Schema`].

use graphql_tools::parser::schema::{
    self as ast, Definition, Directive, Document, SchemaDefinition, TypeDefinition, TypeExtension,
};
use indexmap::IndexMap;
use indexmap::map::Entry;

use super::error::{Code, Errors};
use super::model::{Field, FieldSet, Input, Key, Kind, Name, Override, Schema, Shown, Type, TypeRef, Value};
use super::names::{Mark, Names, argument, text};
use super::selection::Selection;

/// Why something is deprecated of which nobody says why.
pub(super) const NO_REASON: &str = "No longer supported";

type Directives<'a> = [Directive<'a, &'a str>];

/// What of a schema is Federation's own, and not the service's.
const MACHINERY: &[&str] = &["_Any", "_Entity", "_Service", "_FieldSet", "FieldSet", "_service", "_entities"];

/// Reads a schema that `text::prepared` has seen.
pub(super) fn schema<'a>(
    name: &Name,
    graph: String,
    sdl: &'a str,
    errors: &mut Errors,
) -> Option<Schema<'a>> {
    let document = match graphql_tools::parser::parse_schema::<&'a str>(sdl) {
        Ok(document) => document,
        Err(error) => {
            let error = error.to_string();
            let error = error.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join(" ");
            errors.add(
                Code::InvalidGraphql,
                &[name],
                "",
                format!("The schema of \"{name}\" is no GraphQL schema: {error}"),
                "correct it at that place",
            );
            return None;
        }
    };
    let definitions = document.definitions.iter();
    let schemas: Vec<_> = definitions
        .filter_map(|definition| match definition {
            Definition::SchemaDefinition(schema) => Some(schema),
            _ => None,
        })
        .collect();
    let directives: Vec<_> = schemas.iter().flat_map(|schema| schema.directives.iter().cloned()).collect();
    let names = Names::read(&directives, name, errors);
    let roots = roots(&schemas);
    let mut reader = Reader {
        service: name,
        names,
        roots,
        own: own_directives(&document),
        errors,
        types: IndexMap::new(),
    };
    for definition in document.definitions {
        match definition {
            Definition::TypeDefinition(definition) => reader.definition(definition),
            Definition::TypeExtension(extension) => reader.extension(extension),
            Definition::SchemaDefinition(_) | Definition::DirectiveDefinition(_) => {}
        }
    }
    reader.drop_empty_roots();
    reader.check_references();
    let Reader { names, types, .. } = reader;
    Some(Schema { name: name.clone(), graph, is_first: names.is_first, types })
}

/// The root types that have other names than the usual ones, and those names.
fn roots<'a>(schemas: &[&SchemaDefinition<'a, &'a str>]) -> Vec<(&'a str, &'static str)> {
    let all = schemas.iter().flat_map(|schema| {
        [(schema.query, "Query"), (schema.mutation, "Mutation"), (schema.subscription, "Subscription")]
    });
    all.filter_map(|(name, usual)| Some((name?, usual))).filter(|(name, usual)| name != usual).collect()
}

/// The directives that the schema defines.
fn own_directives<'a>(document: &Document<'a, &'a str>) -> Vec<&'a str> {
    let definitions = document.definitions.iter();
    definitions
        .filter_map(|definition| match definition {
            Definition::DirectiveDefinition(directive) => Some(directive.name),
            _ => None,
        })
        .collect()
}

struct Reader<'r, 'a> {
    service: &'r Name,
    names: Names,
    roots: Vec<(&'a str, &'static str)>,
    own: Vec<&'a str>,
    errors: &'r mut Errors,
    types: IndexMap<&'a str, Type<'a>>,
}

impl<'a> Reader<'_, 'a> {
    fn definition(&mut self, definition: TypeDefinition<'a, &'a str>) {
        let (name, kind, description) = match &definition {
            TypeDefinition::Scalar(of) => (of.name, Kind::Scalar, &of.description),
            TypeDefinition::Object(of) => (of.name, Kind::Object, &of.description),
            TypeDefinition::Interface(of) => (of.name, Kind::Interface, &of.description),
            TypeDefinition::Union(of) => (of.name, Kind::Union, &of.description),
            TypeDefinition::Enum(of) => (of.name, Kind::Enum, &of.description),
            TypeDefinition::InputObject(of) => (of.name, Kind::Input, &of.description),
        };
        let description = description.clone();
        let Some((name, mut of)) = self.begin(name, kind) else { return };
        if of.is_defined {
            self.twice(name, "type");
        }
        of.is_defined = true;
        of.shown.description = description.or(of.shown.description);
        match definition {
            TypeDefinition::Scalar(scalar) => self.directives(name, &mut of, &scalar.directives),
            TypeDefinition::Object(object) => {
                of.interfaces.extend(object.implements_interfaces);
                self.fields(name, &mut of, object.fields, &object.directives);
            }
            TypeDefinition::Interface(interface) => {
                of.interfaces.extend(interface.implements_interfaces);
                self.fields(name, &mut of, interface.fields, &interface.directives);
            }
            TypeDefinition::Union(union) => {
                of.members.extend(union.types);
                self.directives(name, &mut of, &union.directives);
            }
            TypeDefinition::Enum(values) => self.values(name, &mut of, values.values, &values.directives),
            TypeDefinition::InputObject(input) => self.inputs(name, &mut of, input.fields, &input.directives),
        }
        self.types.insert(name, of);
    }

    fn extension(&mut self, extension: TypeExtension<'a, &'a str>) {
        let (name, kind) = match &extension {
            TypeExtension::Scalar(of) => (of.name, Kind::Scalar),
            TypeExtension::Object(of) => (of.name, Kind::Object),
            TypeExtension::Interface(of) => (of.name, Kind::Interface),
            TypeExtension::Union(of) => (of.name, Kind::Union),
            TypeExtension::Enum(of) => (of.name, Kind::Enum),
            TypeExtension::InputObject(of) => (of.name, Kind::Input),
        };
        let Some((name, mut of)) = self.begin(name, kind) else { return };
        match extension {
            TypeExtension::Scalar(scalar) => self.directives(name, &mut of, &scalar.directives),
            TypeExtension::Object(object) => {
                of.interfaces.extend(object.implements_interfaces);
                self.fields(name, &mut of, object.fields, &object.directives);
            }
            TypeExtension::Interface(interface) => {
                of.interfaces.extend(interface.implements_interfaces);
                self.fields(name, &mut of, interface.fields, &interface.directives);
            }
            TypeExtension::Union(union) => {
                of.members.extend(union.types);
                self.directives(name, &mut of, &union.directives);
            }
            TypeExtension::Enum(values) => self.values(name, &mut of, values.values, &values.directives),
            TypeExtension::InputObject(input) => self.inputs(name, &mut of, input.fields, &input.directives),
        }
        self.types.insert(name, of);
    }

    /// What is known of the type so far. It is put back where it stood.
    fn begin(&mut self, name: &'a str, kind: Kind) -> Option<(&'a str, Type<'a>)> {
        let is_linked = ["link__", "federation__"].iter().any(|space| name.starts_with(space));
        if is_linked || MACHINERY.contains(&name) || is_built_in(name) {
            return None;
        }
        if ["__", "join__"].iter().any(|space| name.starts_with(space)) {
            let message =
                format!("The schema of \"{}\" has a type \"{name}\", a name that is not free.", self.service);
            let hint = "rename it: GraphQL keeps names with \"__\" for itself, and supergraphs those with \"join__\"";
            self.errors.add(Code::InvalidGraphql, &[self.service], name, message, hint);
            return None;
        }
        let usual = self.usual(name);
        if usual == name && self.roots.iter().any(|&(_, root)| root == name) {
            let code = match name {
                "Query" => Code::RootQueryUsed,
                "Mutation" => Code::RootMutationUsed,
                _ => Code::RootSubscriptionUsed,
            };
            self.errors.add(
                code,
                &[self.service],
                name,
                format!("The schema of \"{}\" has a type \"{name}\" beside the root type that would get this name.", self.service),
                format!("rename \"{name}\", or make it the root type"),
            );
            return None;
        }
        let known = match self.types.entry(usual) {
            Entry::Occupied(mut known) => known.insert(Type::new(kind)),
            Entry::Vacant(place) => {
                place.insert(Type::new(kind));
                Type::new(kind)
            }
        };
        if known.kind != kind {
            self.twice(name, "type");
        }
        Some((usual, known))
    }

    fn usual(&self, name: &'a str) -> &'a str {
        self.roots.iter().find(|&&(root, _)| root == name).map_or(name, |&(_, usual)| usual)
    }

    fn twice(&mut self, coordinate: &str, what: &str) {
        let message =
            format!("The schema of \"{}\" defines the {what} \"{coordinate}\" twice.", self.service);
        self.errors.add(Code::InvalidGraphql, &[self.service], coordinate, message, "take one of them out");
    }

    fn directives(&mut self, coordinate: &str, of: &mut Type<'a>, directives: &Directives<'a>) {
        let description = of.shown.description.take();
        let shown = self.shown(coordinate, description, directives);
        let has_tags = std::mem::take(&mut of.shown.tags);
        of.shown = Shown { is_inaccessible: of.shown.is_inaccessible || shown.is_inaccessible, ..shown };
        of.shown.tags.extend(has_tags);
        for directive in directives {
            match self.names.mark(directive.name) {
                Some(Mark::Key) => {
                    let Some(fields) = self.field_set(directive, coordinate, Mark::Key) else { continue };
                    let is_resolvable = argument(directive, "resolvable") != Some(&Value::Boolean(false));
                    of.keys.push(Key { fields, is_resolvable });
                }
                Some(Mark::InterfaceObject) => of.is_interface_object = true,
                Some(Mark::Extends) => of.is_defined = false,
                None if directive.name == "specifiedBy" => {
                    of.specified_by = text(argument(directive, "url")).map(str::to_owned);
                }
                None if directive.name == "oneOf" => of.is_one_of = true,
                _ => {}
            }
        }
    }

    fn fields(
        &mut self,
        name: &'a str,
        of: &mut Type<'a>,
        fields: Vec<ast::Field<'a, &'a str>>,
        directives: &Directives<'a>,
    ) {
        self.directives(name, of, directives);
        let has = |mark| directives.iter().any(|directive| self.names.mark(directive.name) == Some(mark));
        let (is_external, is_shareable) = (has(Mark::External) && !self.names.is_first, has(Mark::Shareable));
        for field in fields {
            if MACHINERY.contains(&field.name) && name == "Query" {
                continue;
            }
            let coordinate = format!("{name}.{}", field.name);
            let field_name = field.name;
            let mut field = self.field(&coordinate, field);
            field.is_external |= is_external;
            field.is_shareable |= is_shareable;
            if of.fields.insert(field_name, field).is_some() {
                self.twice(&coordinate, "field");
            }
        }
    }

    fn field(&mut self, coordinate: &str, field: ast::Field<'a, &'a str>) -> Field<'a> {
        let mut read = Field {
            shown: self.shown(coordinate, field.description, &field.directives),
            of: self.type_ref(&field.field_type),
            arguments: self.input_values(coordinate, field.arguments, ("(", ":)")),
            is_external: false,
            is_shareable: self.names.is_first,
            requires: None,
            provides: None,
            overrides: None,
            used: super::model::Used::default(),
        };
        for directive in &field.directives {
            match self.names.mark(directive.name) {
                Some(Mark::External) => read.is_external = true,
                Some(Mark::Shareable) => read.is_shareable = true,
                Some(Mark::Requires) => read.requires = self.field_set(directive, coordinate, Mark::Requires),
                Some(Mark::Provides) => read.provides = self.field_set(directive, coordinate, Mark::Provides),
                Some(Mark::Override) => {
                    let label = text(argument(directive, "label")).map(str::to_owned);
                    let from = text(argument(directive, "from")).unwrap_or("").to_owned();
                    read.overrides = Some(Override { from, label });
                }
                _ => {}
            }
        }
        read
    }

    fn values(
        &mut self,
        name: &str,
        of: &mut Type<'a>,
        values: Vec<ast::EnumValue<'a, &'a str>>,
        directives: &Directives<'a>,
    ) {
        self.directives(name, of, directives);
        for value in values {
            let coordinate = format!("{name}.{}", value.name);
            let shown = self.shown(&coordinate, value.description, &value.directives);
            if of.values.insert(value.name, shown).is_some() {
                self.twice(&coordinate, "value");
            }
        }
    }

    fn inputs(
        &mut self,
        name: &str,
        of: &mut Type<'a>,
        inputs: Vec<ast::InputValue<'a, &'a str>>,
        directives: &Directives<'a>,
    ) {
        self.directives(name, of, directives);
        for (input, value) in self.input_values(name, inputs, (".", "")) {
            if of.inputs.insert(input, value).is_some() {
                self.twice(&format!("{name}.{input}"), "field");
            }
        }
    }

    fn input_values(
        &mut self,
        owner: &str,
        values: Vec<ast::InputValue<'a, &'a str>>,
        (before, after): (&str, &str),
    ) -> IndexMap<&'a str, Input<'a>> {
        let mut inputs = IndexMap::with_capacity(values.len());
        for value in values {
            let coordinate = format!("{owner}{before}{}{after}", value.name);
            let shown = self.shown(&coordinate, value.description, &value.directives);
            let input = Input { shown, of: self.type_ref(&value.value_type), default: value.default_value };
            if inputs.insert(value.name, input).is_some() {
                self.twice(&coordinate, "argument");
            }
        }
        inputs
    }

    fn type_ref(&self, of: &ast::Type<'a, &'a str>) -> TypeRef<'a> {
        match of {
            ast::Type::NamedType(name) => TypeRef::Named(self.usual(name)),
            ast::Type::ListType(inner) => TypeRef::List(Box::new(self.type_ref(inner))),
            ast::Type::NonNullType(inner) => TypeRef::NonNull(Box::new(self.type_ref(inner))),
        }
    }

    /// What is said of any element; complains of directives that can't be heeded.
    fn shown(&mut self, coordinate: &str, description: Option<String>, directives: &Directives<'a>) -> Shown {
        let mut shown =
            Shown { description: description.filter(|text| !text.is_empty()), ..Shown::default() };
        for directive in directives {
            match self.names.mark(directive.name) {
                Some(Mark::Inaccessible) => shown.is_inaccessible = true,
                Some(Mark::Tag) => shown.tags.extend(text(argument(directive, "name")).map(str::to_owned)),
                Some(Mark::Unknown) => self.unsupported(coordinate, directive.name),
                Some(_) => {}
                None if directive.name == "deprecated" => {
                    let reason = text(argument(directive, "reason")).unwrap_or(NO_REASON);
                    shown.deprecated = Some(reason.to_owned());
                }
                None if self.names.is_forgotten(directive.name) && !self.own.contains(&directive.name) => {
                    self.forgotten(coordinate, directive.name);
                }
                None => {}
            }
        }
        shown
    }

    fn unsupported(&mut self, coordinate: &str, directive: &str) {
        self.errors.add(
            Code::UnsupportedLinkedFeature,
            &[self.service],
            coordinate,
            format!(
                "\"{coordinate}\" of \"{}\" has @{directive}, which the gateway would not enforce.",
                self.service
            ),
            "protect the route or the service instead, and take the directive out",
        );
    }

    fn forgotten(&mut self, coordinate: &str, directive: &str) {
        self.errors.add(
            Code::InvalidGraphql,
            &[self.service],
            coordinate,
            format!(
                "\"{coordinate}\" of \"{}\" has @{directive}, which its schema doesn't import.",
                self.service
            ),
            format!("add \"@{directive}\" to the import of the @link to Federation"),
        );
    }

    fn field_set(
        &mut self,
        directive: &Directive<'a, &'a str>,
        coordinate: &str,
        mark: Mark,
    ) -> Option<FieldSet> {
        let value = argument(directive, "fields");
        let written = match value {
            Some(Value::String(text)) => Some(text.clone()),
            // Federation v1 took lists of texts too.
            Some(Value::List(items)) if self.names.is_first => items
                .iter()
                .map(|item| text(Some(item)))
                .collect::<Option<Vec<_>>>()
                .map(|texts| texts.join(" ")),
            _ => None,
        };
        let (wrong_type, wrong) = match mark {
            Mark::Requires => (Code::RequiresInvalidFieldsType, Code::RequiresInvalidFields),
            Mark::Provides => (Code::ProvidesInvalidFieldsType, Code::ProvidesInvalidFields),
            _ => (Code::KeyInvalidFieldsType, Code::KeyInvalidFields),
        };
        let complaint = match written.as_deref().map(Selection::parse) {
            Some(Ok(selection)) => {
                let text = written.as_deref().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ");
                return Some(FieldSet { text, selection });
            }
            Some(Err(complaint)) => (wrong, complaint),
            None => (wrong_type, "is no text".to_owned()),
        };
        let service = self.service;
        let message =
            format!("`fields` of @{} at \"{coordinate}\" of \"{service}\" {}.", directive.name, complaint.1);
        self.errors.add(
            complaint.0,
            &[service],
            coordinate,
            message,
            "write the names of fields, as \"id organization { id }\"",
        );
        None
    }

    /// A subgraph that only resolves entities may have a root with nothing in it.
    fn drop_empty_roots(&mut self) {
        let is_root = |name: &str| matches!(name, "Query" | "Mutation" | "Subscription");
        self.types.retain(|name, of| !(is_root(name) && of.fields.is_empty()));
    }

    /// Every type that is named has to be there.
    fn check_references(&mut self) {
        let mut unknown = Vec::new();
        let is_known = |name: &str| self.types.contains_key(name) || is_built_in(name);
        for (name, of) in &self.types {
            let mut see = |coordinate: String, named: &str| {
                if !is_known(named) {
                    unknown.push((coordinate, named.to_owned()));
                }
            };
            for named in of.interfaces.iter().chain(&of.members) {
                see((*name).to_owned(), named);
            }
            for (field, value) in &of.fields {
                see(format!("{name}.{field}"), value.of.name());
                for (argument, value) in &value.arguments {
                    see(format!("{name}.{field}({argument}:)"), value.of.name());
                }
            }
            for (input, value) in &of.inputs {
                see(format!("{name}.{input}"), value.of.name());
            }
        }
        for (coordinate, named) in unknown {
            self.errors.add(
                Code::InvalidGraphql,
                &[self.service],
                &coordinate,
                format!(
                    "\"{coordinate}\" of \"{}\" names the type \"{named}\", which its schema doesn't have.",
                    self.service
                ),
                "define the type there too; a service's schema stands for itself",
            );
        }
    }
}

/// Whether GraphQL itself has the scalar.
pub(super) fn is_built_in(name: &str) -> bool {
    matches!(name, "String" | "Int" | "Float" | "Boolean" | "ID")
}
