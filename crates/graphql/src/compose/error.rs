//! Errors that prevent a composition. The codes are those of Apollo's composition, so that users can search
//! for them; all are documented in docs/errors.md.

use std::sync::Arc;

use diagnostics::{
    Diagnostic, DiagnosticKind, DiagnosticLabel, DiagnosticLocation, Diagnostics, SourceDocument,
    SourcePosition,
};

/// The kind of a composition error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CompositionErrorKind {
    DefaultValueUsesInaccessible,
    EmptyMergedEnumType,
    EmptyMergedInputType,
    EnumValueMismatch,
    ExtensionWithNoBase,
    ExternalArgumentMissing,
    ExternalArgumentTypeMismatch,
    ExternalMissingOnBase,
    ExternalOnInterface,
    ExternalTypeMismatch,
    ExternalUnused,
    FieldArgumentDefaultMismatch,
    FieldArgumentTypeMismatch,
    FieldTypeMismatch,
    ImplementedByInaccessible,
    InputFieldDefaultMismatch,
    InterfaceFieldNoImplem,
    InterfaceKeyMissingImplementationType,
    InterfaceKeyNotOnImplementation,
    InterfaceObjectUsageError,
    InvalidFieldSharing,
    InvalidGraphql,
    InvalidLinkDirectiveUsage,
    InvalidShareableUsage,
    InvalidSubgraphName,
    KeyDirectiveInFieldsArg,
    KeyFieldsHasArgs,
    KeyFieldsSelectInvalidType,
    KeyInvalidFields,
    KeyInvalidFieldsType,
    MergedDirectiveApplicationOnExternal,
    NoQueries,
    OnlyInaccessibleChildren,
    OverrideCollisionWithAnotherDirective,
    OverrideFromSelfError,
    OverrideLabelInvalid,
    OverrideOnInterface,
    OverrideSourceHasOverride,
    ProvidesDirectiveInFieldsArg,
    ProvidesFieldsHasArgs,
    ProvidesFieldsMissingExternal,
    ProvidesInvalidFields,
    ProvidesInvalidFieldsType,
    ProvidesOnNonObjectField,
    ProvidesUnsupportedOnInterface,
    QueryRootTypeInaccessible,
    ReferencedInaccessible,
    RequiredArgumentMissingInSomeSubgraph,
    RequiredInaccessible,
    RequiredInputFieldMissingInSomeSubgraph,
    RequiresDirectiveInFieldsArg,
    RequiresFieldsMissingExternal,
    RequiresInvalidFields,
    RequiresInvalidFieldsType,
    RequiresUnsupportedOnInterface,
    RootMutationUsed,
    RootQueryUsed,
    RootSubscriptionUsed,
    SatisfiabilityError,
    TypeKindMismatch,
    UnknownLinkVersion,
    UnsupportedLinkedFeature,
}

impl DiagnosticKind for CompositionErrorKind {
    fn code(self) -> &'static str {
        match self {
            Self::DefaultValueUsesInaccessible => "DEFAULT_VALUE_USES_INACCESSIBLE",
            Self::EmptyMergedEnumType => "EMPTY_MERGED_ENUM_TYPE",
            Self::EmptyMergedInputType => "EMPTY_MERGED_INPUT_TYPE",
            Self::EnumValueMismatch => "ENUM_VALUE_MISMATCH",
            Self::ExtensionWithNoBase => "EXTENSION_WITH_NO_BASE",
            Self::ExternalArgumentMissing => "EXTERNAL_ARGUMENT_MISSING",
            Self::ExternalArgumentTypeMismatch => "EXTERNAL_ARGUMENT_TYPE_MISMATCH",
            Self::ExternalMissingOnBase => "EXTERNAL_MISSING_ON_BASE",
            Self::ExternalOnInterface => "EXTERNAL_ON_INTERFACE",
            Self::ExternalTypeMismatch => "EXTERNAL_TYPE_MISMATCH",
            Self::ExternalUnused => "EXTERNAL_UNUSED",
            Self::FieldArgumentDefaultMismatch => "FIELD_ARGUMENT_DEFAULT_MISMATCH",
            Self::FieldArgumentTypeMismatch => "FIELD_ARGUMENT_TYPE_MISMATCH",
            Self::FieldTypeMismatch => "FIELD_TYPE_MISMATCH",
            Self::ImplementedByInaccessible => "IMPLEMENTED_BY_INACCESSIBLE",
            Self::InputFieldDefaultMismatch => "INPUT_FIELD_DEFAULT_MISMATCH",
            Self::InterfaceFieldNoImplem => "INTERFACE_FIELD_NO_IMPLEM",
            Self::InterfaceKeyMissingImplementationType => "INTERFACE_KEY_MISSING_IMPLEMENTATION_TYPE",
            Self::InterfaceKeyNotOnImplementation => "INTERFACE_KEY_NOT_ON_IMPLEMENTATION",
            Self::InterfaceObjectUsageError => "INTERFACE_OBJECT_USAGE_ERROR",
            Self::InvalidFieldSharing => "INVALID_FIELD_SHARING",
            Self::InvalidGraphql => "INVALID_GRAPHQL",
            Self::InvalidLinkDirectiveUsage => "INVALID_LINK_DIRECTIVE_USAGE",
            Self::InvalidShareableUsage => "INVALID_SHAREABLE_USAGE",
            Self::InvalidSubgraphName => "INVALID_SUBGRAPH_NAME",
            Self::KeyDirectiveInFieldsArg => "KEY_DIRECTIVE_IN_FIELDS_ARG",
            Self::KeyFieldsHasArgs => "KEY_FIELDS_HAS_ARGS",
            Self::KeyFieldsSelectInvalidType => "KEY_FIELDS_SELECT_INVALID_TYPE",
            Self::KeyInvalidFields => "KEY_INVALID_FIELDS",
            Self::KeyInvalidFieldsType => "KEY_INVALID_FIELDS_TYPE",
            Self::MergedDirectiveApplicationOnExternal => "MERGED_DIRECTIVE_APPLICATION_ON_EXTERNAL",
            Self::NoQueries => "NO_QUERIES",
            Self::OnlyInaccessibleChildren => "ONLY_INACCESSIBLE_CHILDREN",
            Self::OverrideCollisionWithAnotherDirective => "OVERRIDE_COLLISION_WITH_ANOTHER_DIRECTIVE",
            Self::OverrideFromSelfError => "OVERRIDE_FROM_SELF_ERROR",
            Self::OverrideLabelInvalid => "OVERRIDE_LABEL_INVALID",
            Self::OverrideOnInterface => "OVERRIDE_ON_INTERFACE",
            Self::OverrideSourceHasOverride => "OVERRIDE_SOURCE_HAS_OVERRIDE",
            Self::ProvidesDirectiveInFieldsArg => "PROVIDES_DIRECTIVE_IN_FIELDS_ARG",
            Self::ProvidesFieldsHasArgs => "PROVIDES_FIELDS_HAS_ARGS",
            Self::ProvidesFieldsMissingExternal => "PROVIDES_FIELDS_MISSING_EXTERNAL",
            Self::ProvidesInvalidFields => "PROVIDES_INVALID_FIELDS",
            Self::ProvidesInvalidFieldsType => "PROVIDES_INVALID_FIELDS_TYPE",
            Self::ProvidesOnNonObjectField => "PROVIDES_ON_NON_OBJECT_FIELD",
            Self::ProvidesUnsupportedOnInterface => "PROVIDES_UNSUPPORTED_ON_INTERFACE",
            Self::QueryRootTypeInaccessible => "QUERY_ROOT_TYPE_INACCESSIBLE",
            Self::ReferencedInaccessible => "REFERENCED_INACCESSIBLE",
            Self::RequiredArgumentMissingInSomeSubgraph => "REQUIRED_ARGUMENT_MISSING_IN_SOME_SUBGRAPH",
            Self::RequiredInaccessible => "REQUIRED_INACCESSIBLE",
            Self::RequiredInputFieldMissingInSomeSubgraph => "REQUIRED_INPUT_FIELD_MISSING_IN_SOME_SUBGRAPH",
            Self::RequiresDirectiveInFieldsArg => "REQUIRES_DIRECTIVE_IN_FIELDS_ARG",
            Self::RequiresFieldsMissingExternal => "REQUIRES_FIELDS_MISSING_EXTERNAL",
            Self::RequiresInvalidFields => "REQUIRES_INVALID_FIELDS",
            Self::RequiresInvalidFieldsType => "REQUIRES_INVALID_FIELDS_TYPE",
            Self::RequiresUnsupportedOnInterface => "REQUIRES_UNSUPPORTED_ON_INTERFACE",
            Self::RootMutationUsed => "ROOT_MUTATION_USED",
            Self::RootQueryUsed => "ROOT_QUERY_USED",
            Self::RootSubscriptionUsed => "ROOT_SUBSCRIPTION_USED",
            Self::SatisfiabilityError => "SATISFIABILITY_ERROR",
            Self::TypeKindMismatch => "TYPE_KIND_MISMATCH",
            Self::UnknownLinkVersion => "UNKNOWN_LINK_VERSION",
            Self::UnsupportedLinkedFeature => "UNSUPPORTED_LINKED_FEATURE",
        }
    }
}

/// Reports errors that prevent the services' schemas from being composed.
pub(super) trait ReportError {
    /// Adds an error in these services' schemas, which become its labels. The coordinate is a type, field,
    /// argument or value: `Order.catalog`, `Query.orders(first:)`.
    fn report(
        &mut self,
        kind: CompositionErrorKind,
        services: &[&Arc<str>],
        coordinate: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    );

    /// Sets the position of the last error in the supergraph's text.
    fn set_position(&mut self, line: usize, column: usize);
}

impl ReportError for Diagnostics {
    fn report(
        &mut self,
        kind: CompositionErrorKind,
        services: &[&Arc<str>],
        coordinate: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let location = SourcePosition { field: coordinate.into(), ..SourcePosition::default() };
        let error = Diagnostic::new(location, message, hint).with_kind(kind);
        let labels = services.iter().map(|name| DiagnosticLabel {
            location: SourceDocument::Description(Arc::clone(name)).at(""),
            text: String::new(),
        });
        self.push(Diagnostic { labels: labels.collect(), ..error });
    }

    fn set_position(&mut self, line: usize, column: usize) {
        if let Some(DiagnosticLocation::Source(at)) = self.last_mut().map(|error| &mut error.location) {
            (at.line, at.column) = (line, column);
        }
    }
}

/// Formats names as `"a"`, `"a" and "b"`, or `"a", "b" and "c"`.
pub(super) fn quote_names<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("\"{name}\"")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
