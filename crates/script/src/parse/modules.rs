//! The modules that a module imports. A script depends on its imports, and on theirs.
//!
//! Only literal module names are found. Names that are computed at runtime are not.

use std::path::Path;

use oxc_allocator::Allocator;
use oxc_ast::ast::{
    Argument, CallExpression, ExportAllDeclaration, ExportFromDeclaration, Expression, ImportDeclaration,
    ImportExpression,
};
use oxc_ast_visit::{Visit, walk};
use oxc_parser::Parser;
use oxc_span::SourceType;

use super::parser_thread;

/// Returns the modules that a JavaScript or TypeScript file refers to by `import`, `export .. from`,
/// `import(..)` and `require(..)`, in source order. Returns an empty list for other files.
#[must_use]
pub fn module_specifiers(text: &str, file: &Path) -> Vec<String> {
    let Ok(source) = SourceType::from_path(file) else { return Vec::new() };
    let named = parser_thread::with_parser_thread(text, |text| {
        let allocator = Allocator::default();
        let mut module = NamedModule::default();
        module.visit_program(&Parser::new(&allocator, text, source).parse().program);
        module.0
    });
    named.unwrap_or_default()
}

#[derive(Default)]
struct NamedModule(Vec<String>);

impl NamedModule {
    fn record_specifier(&mut self, name: &Expression<'_>) {
        if let Expression::StringLiteral(name) = name {
            self.0.push(name.value.to_string());
        }
    }
}

impl<'a> Visit<'a> for NamedModule {
    fn visit_import_declaration(&mut self, import: &ImportDeclaration<'a>) {
        self.0.push(import.source.value.to_string());
    }

    fn visit_export_from_declaration(&mut self, export: &ExportFromDeclaration<'a>) {
        self.0.push(export.source.value.to_string());
    }

    fn visit_export_all_declaration(&mut self, export: &ExportAllDeclaration<'a>) {
        self.0.push(export.source.value.to_string());
    }

    fn visit_import_expression(&mut self, import: &ImportExpression<'a>) {
        self.record_specifier(&import.source);
        walk::walk_import_expression(self, import);
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        if let (Expression::Identifier(callee), [argument]) = (&call.callee, &call.arguments[..])
            && callee.name == "require"
            && let Some(argument) = Argument::as_expression(argument)
        {
            self.record_specifier(argument);
        }
        walk::walk_call_expression(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_literal_module_names() {
        let text = "
            import a, { b } from './a.mjs'
            import './b.mjs'
            export * from './c.mjs'
            export { d } from './d.mjs'
            export const later = () => import('./e.mjs'), computed = name => import(`./${name}`)
            const f = require('./f.cjs'), g = require(later)
            // import './not.mjs'
            const text = \"import './nor.mjs'\"";
        let found = ["./a.mjs", "./b.mjs", "./c.mjs", "./d.mjs", "./e.mjs", "./f.cjs"];
        assert_eq!(module_specifiers(text, Path::new("x.mjs")), found);
        assert_eq!(
            module_specifiers("import type { T } from './t.ts'\nlet n: T", Path::new("x.ts")),
            ["./t.ts"]
        );
    }

    #[test]
    fn other_files_have_no_module_names() {
        assert!(module_specifiers("{\"a\": \"./b.mjs\"}", Path::new("x.json")).is_empty());
        assert!(module_specifiers("import from from from", Path::new("x.mjs")).is_empty());
        assert!(module_specifiers("\u{0}\u{ffff}((((", Path::new("x.js")).is_empty());
    }
}
