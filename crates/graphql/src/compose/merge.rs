//! Merging of the services' schemas: types with the same name become one type.

use diagnostics::Diagnostics;
use indexmap::IndexMap;

use super::error::{CompositionErrorKind, ReportError, quote_names};
use super::fields;
use super::inputs;
use super::merged_schema::{MergedType, MergedTypes, MergedValue};
use super::model::{ElementMetadata, SubgraphName, SubgraphSchema, SubgraphType, SubgraphTypeKind};
use super::relations::TypeRelations;

/// The context of merging.
pub(super) struct SchemaMerger<'s, 'a> {
    pub(super) schemas: &'s [SubgraphSchema<'a>],
    pub(super) relations: TypeRelations<'a>,
    pub(super) errors: &'s mut Diagnostics,
}

impl<'s, 'a> SchemaMerger<'s, 'a> {
    pub(super) fn merge_types(&mut self) -> MergedTypes<'a> {
        let mut all: IndexMap<&'a str, Vec<usize>> = IndexMap::new();
        for (index, schema) in self.schemas.iter().enumerate() {
            for name in schema.types.keys() {
                all.entry(name).or_default().push(index);
            }
        }
        let merged =
            all.into_iter().filter_map(|(name, sources)| Some((name, self.merge_type(name, sources)?)));
        let mut types: MergedTypes<'a> = merged.collect();
        fields::copy_interface_object_fields(self.schemas, &mut types);
        types
    }

    /// The type in each schema that has it.
    pub(super) fn definitions(&self, name: &str, sources: &[usize]) -> Vec<(usize, &'s SubgraphType<'a>)> {
        sources.iter().filter_map(|&source| Some((source, self.schemas[source].types.get(name)?))).collect()
    }

    pub(super) fn service(&self, source: usize) -> &'s SubgraphName {
        &self.schemas[source].name
    }

    pub(super) fn services(&self, sources: impl IntoIterator<Item = usize>) -> Vec<&'s SubgraphName> {
        sources.into_iter().map(|source| self.service(source)).collect()
    }

    fn merge_type(&mut self, name: &'a str, sources: Vec<usize>) -> Option<MergedType<'a>> {
        let each = self.definitions(name, &sources);
        let kind = self.common_kind(name, &each)?;
        self.check_defined(name, &each);
        let mut shown = ElementMetadata::default();
        each.iter().for_each(|(_, of)| shown.merge(&of.metadata));
        let mut merged = MergedType {
            kind,
            metadata: shown,
            interfaces: each.iter().flat_map(|(_, of)| of.interfaces.iter().copied()).collect(),
            members: each.iter().flat_map(|(_, of)| of.members.iter().copied()).collect(),
            specified_by: each.iter().find_map(|(_, of)| of.specified_by.clone()),
            is_one_of: each.iter().any(|(_, of)| of.is_one_of),
            fields: IndexMap::new(),
            inputs: IndexMap::new(),
            values: IndexMap::new(),
            sources,
        };
        match kind {
            SubgraphTypeKind::Object | SubgraphTypeKind::Interface => {
                merged.fields = fields::merge_fields(self, name, kind, &each)
            }
            SubgraphTypeKind::Input => merged.inputs = inputs::merge_input_fields(self, name, &each),
            SubgraphTypeKind::Enum => merged.values = self.merge_enum_values(name, &each),
            SubgraphTypeKind::Scalar | SubgraphTypeKind::Union => {}
        }
        Some(merged)
    }

    fn common_kind(&mut self, name: &str, each: &[(usize, &SubgraphType<'a>)]) -> Option<SubgraphTypeKind> {
        let kind = each.first()?.1.merged_kind();
        if each.iter().all(|(_, of)| of.merged_kind() == kind) {
            return Some(kind);
        }
        let said = |&(source, of): &(usize, &SubgraphType<'_>)| {
            format!("{} in \"{}\"", describe_kind(of), self.service(source))
        };
        let said: Vec<String> = each.iter().map(said).collect();
        self.errors.report(
            CompositionErrorKind::TypeKindMismatch,
            &self.services(each.iter().map(|&(source, _)| source)),
            name,
            format!("\"{name}\" is {}.", said.join(", and ")),
            "rename it in one of the services, or make it the same kind in all",
        );
        None
    }

    /// Reports a type that services extend, but that no service defines.
    fn check_defined(&mut self, name: &str, each: &[(usize, &SubgraphType<'a>)]) {
        let is_root = matches!(name, "Query" | "Mutation" | "Subscription");
        let is_first_extended =
            each.len() > 1 && each.iter().all(|&(source, _)| self.schemas[source].is_federation_v1);
        if is_root || is_first_extended || each.iter().any(|(_, of)| of.is_defined) {
            return;
        }
        let services = self.services(each.iter().map(|&(source, _)| source));
        let by = quote_names(services.iter().map(|name| &***name));
        let message = format!("\"{name}\" is extended by {by}, but no service defines it.");
        self.errors.report(
            CompositionErrorKind::ExtensionWithNoBase,
            &services,
            name,
            message,
            "use \"type\" without \"extend\" in one of them",
        );
    }

    /// Merges the values of an enum. An enum used only as output gets all values, one used only as input gets
    /// the values that all services have, and one used as both must have the same values in all services.
    fn merge_enum_values(
        &mut self,
        name: &str,
        each: &[(usize, &SubgraphType<'a>)],
    ) -> IndexMap<&'a str, MergedValue> {
        let mut values: IndexMap<&'a str, MergedValue> = IndexMap::new();
        for &(source, of) in each {
            for (value, shown) in &of.values {
                let new = || MergedValue { metadata: ElementMetadata::default(), sources: Vec::new() };
                let merged = values.entry(value).or_insert_with(new);
                merged.metadata.merge(shown);
                merged.sources.push(source);
            }
        }
        if !self.relations.is_input(name) {
            return values;
        }
        if self.relations.is_output(name) {
            let missing = values
                .iter()
                .filter(|(_, value)| value.sources.len() < each.len() && !value.metadata.is_inaccessible);
            let missing: Vec<_> = missing.map(|(value, merged)| (*value, merged.sources.clone())).collect();
            for (value, sources) in missing {
                self.report_value_mismatch(name, value, each, &sources);
            }
            return values;
        }
        values.retain(|_, value| value.sources.len() == each.len());
        if values.is_empty() {
            let services = self.services(each.iter().map(|&(source, _)| source));
            let message = format!("No value of the enum \"{name}\" exists in all services that use it.");
            let hint = "give it the same values in all services, or rename it in one";
            self.errors.report(CompositionErrorKind::EmptyMergedEnumType, &services, name, message, hint);
        }
        values
    }

    fn report_value_mismatch(
        &mut self,
        name: &str,
        value: &str,
        each: &[(usize, &SubgraphType<'a>)],
        has: &[usize],
    ) {
        let services = self.services(each.iter().map(|&(source, _)| source));
        let lacks = each.iter().map(|&(source, _)| source).filter(|source| !has.contains(source));
        let message = format!(
            "The enum \"{name}\" is used for input and output, but \"{value}\" is a value in {} and not in {}.",
            quote_names(has.iter().map(|&source| &**self.service(source))),
            quote_names(lacks.map(|source| &**self.service(source))),
        );
        let hint = format!("add \"{value}\" to that service, or mark it with @inaccessible");
        self.errors.report(
            CompositionErrorKind::EnumValueMismatch,
            &services,
            format!("{name}.{value}"),
            message,
            hint,
        );
    }
}

fn describe_kind(of: &SubgraphType<'_>) -> &'static str {
    match of.kind {
        SubgraphTypeKind::Object if of.is_interface_object => "an interface object",
        SubgraphTypeKind::Object => "an object type",
        SubgraphTypeKind::Interface => "an interface",
        SubgraphTypeKind::Union => "a union",
        SubgraphTypeKind::Enum => "an enum",
        SubgraphTypeKind::Input => "an input type",
        SubgraphTypeKind::Scalar => "a scalar",
    }
}
