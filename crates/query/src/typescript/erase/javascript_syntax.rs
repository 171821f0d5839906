//! Decides which statements and class members remain in the JavaScript program.

use oxc_ast::ast::*;

/// Whether a statement has an effect at run time. Includes statements that are then rejected because they
/// would need code.
pub(super) fn is_runtime_statement(statement: &Statement<'_>) -> bool {
    if let Some(declaration) = statement.as_declaration() {
        return is_runtime_declaration(declaration);
    }
    match statement {
        Statement::ImportDeclaration(import) => is_runtime_import(import),
        Statement::ExportDeclaration(export) => is_runtime_declaration(&export.declaration),
        Statement::ExportDefaultDeclaration(export) => is_runtime_default(&export.declaration),
        Statement::ExportAllDeclaration(export) => export.export_kind == ImportOrExportKind::Value,
        Statement::ExportNamedDeclaration(export) => export.export_kind == ImportOrExportKind::Value,
        Statement::ExportFromDeclaration(export) => is_runtime_export_from(export),
        Statement::TSNamespaceExportDeclaration(_) => false,
        _ => true,
    }
}

fn is_runtime_declaration(declaration: &Declaration<'_>) -> bool {
    match declaration {
        Declaration::VariableDeclaration(variable) => !variable.declare,
        Declaration::FunctionDeclaration(function) => is_runtime_function(function),
        Declaration::ClassDeclaration(class) => !class.declare,
        Declaration::TSEnumDeclaration(it) => !it.declare,
        Declaration::TSNamespaceDeclaration(it) => is_runtime_namespace(it),
        Declaration::TSImportEqualsDeclaration(it) => it.import_kind == ImportOrExportKind::Value,
        Declaration::TSTypeAliasDeclaration(_)
        | Declaration::TSInterfaceDeclaration(_)
        | Declaration::TSExternalModuleDeclaration(_)
        | Declaration::TSGlobalDeclaration(_) => false,
    }
}

/// A function without a body is the signature of an overload.
fn is_runtime_function(function: &Function<'_>) -> bool {
    function.body.is_some() && !function.declare
}

fn is_runtime_namespace(namespace: &TSNamespaceDeclaration<'_>) -> bool {
    !namespace.declare
        && match &namespace.body {
            TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => is_runtime_namespace(inner),
            TSNamespaceDeclarationBody::TSModuleBlock(block) => block.body.iter().any(is_runtime_statement),
        }
}

fn is_runtime_default(declaration: &ExportDefaultDeclarationKind<'_>) -> bool {
    match declaration {
        ExportDefaultDeclarationKind::FunctionDeclaration(function) => is_runtime_function(function),
        ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => false,
        _ => true,
    }
}

/// An import without remaining names is erased, since an import of types is not meant to run the module.
fn is_runtime_import(import: &ImportDeclaration<'_>) -> bool {
    let only_types = import
        .specifiers
        .as_ref()
        .is_some_and(|names| !names.is_empty() && names.iter().all(is_type_specifier));
    import.import_kind == ImportOrExportKind::Value && !only_types
}

fn is_runtime_export_from(export: &ExportFromDeclaration<'_>) -> bool {
    let is_type = |name: &ExportSpecifier<'_>| name.export_kind == ImportOrExportKind::Type;
    let only_types = !export.specifiers.is_empty() && export.specifiers.iter().all(is_type);
    export.export_kind == ImportOrExportKind::Value && !only_types
}

pub(super) fn is_type_specifier(specifier: &ImportDeclarationSpecifier<'_>) -> bool {
    match specifier {
        ImportDeclarationSpecifier::ImportSpecifier(it) => it.import_kind == ImportOrExportKind::Type,
        _ => false,
    }
}

pub(super) fn is_runtime_member(member: &ClassElement<'_>) -> bool {
    match member {
        ClassElement::StaticBlock(_) => true,
        ClassElement::MethodDefinition(it) => it.value.body.is_some() && !it.r#type.is_abstract(),
        ClassElement::PropertyDefinition(it) => !it.declare && !it.r#type.is_abstract(),
        ClassElement::AccessorProperty(it) => !it.r#type.is_abstract(),
        ClassElement::TSIndexSignature(_) => false,
    }
}
