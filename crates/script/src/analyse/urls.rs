//! Rule 15: the number of arguments matches the placeholders of the URL, and the URL is valid.

use diagnostics::Diagnostic;
use oxc_ast::AstKind;
use oxc_ast::ast::Argument;

use super::ScriptAnalysis;
use super::calls::WaitOperation;
use crate::diagnostic::DiagnosticCode;
use crate::method::HandlerMethod;
use crate::syntax::ConstructKind;

pub(crate) fn check(analysis: &ScriptAnalysis<'_, '_>, diagnostics: &mut Vec<Diagnostic>) {
    let ScriptAnalysis { code, names, .. } = analysis;
    for (node, wait) in &analysis.calls.waits {
        let WaitOperation::Resource { external, symbol, method } = wait else { continue };
        let AstKind::CallExpression(call) = code.kind(*node) else { continue };
        // The number of arguments of `...` is only known at runtime.
        if call.arguments.iter().any(|argument| matches!(argument, Argument::SpreadElement(_))) {
            continue;
        }
        let (holes, given) = (names.externals[*external].template.placeholder_count(), call.arguments.len());
        let has_body = matches!(method, HandlerMethod::Post | HandlerMethod::Put | HandlerMethod::Patch);
        if given == holes || (has_body && given == holes + 1) {
            continue;
        }
        let word = method.as_str().to_lowercase();
        let wanted = match (holes, has_body) {
            (0, false) => "none: its URL has no `@`".to_owned(),
            (0, true) => "the body at most: its URL has no `@`".to_owned(),
            (_, false) => format!("{holes}, one for each `@`"),
            (_, true) => format!("{holes}, one for each `@`, and the body if there is one"),
        };
        let count = if given == 1 { "1 argument".to_owned() } else { format!("{given} arguments") };
        let help = format!(
            "give as many values as the URL has `@`; an `@` that is part of the URL is written `@@`. It takes {wanted}"
        );
        diagnostics.push(
            Diagnostic::in_text(
                DiagnosticCode::Placeholders,
                code.node_range(*node),
                format!("`{}.{word}` is given {count}, and takes {wanted}", code.name(*symbol)),
                format!("{count} here"),
                help,
            )
            .with_label(code.declaration_range(*symbol), "the URL is declared here"),
        );
    }
    for construct in &code.parsed.syntax.constructs {
        let ConstructKind::External { names: declared } = &construct.kind else { continue };
        for name in declared {
            let Some(symbol) = name.symbol else { continue };
            let Some(external) = names.external(symbol) else { continue };
            let Some(beginning) = names.externals[external].template.literal_prefix() else { continue };
            let is_whole = names.externals[external].template.parts.len() == 1;
            let leads = beginning.starts_with('/')
                || beginning.starts_with("http://")
                || beginning.starts_with("https://");
            let may_lead =
                !is_whole && ["http://", "https://"].iter().any(|scheme| scheme.starts_with(beginning));
            if !leads && !may_lead {
                diagnostics.push(Diagnostic::in_text(
                    DiagnosticCode::Url,
                    code.declaration_range(symbol),
                    "a resource's URL begins with `/`, `http://` or `https://`",
                    "this one does not",
                    "write `/path` for a resource of this service, `http://name/path` for a registered service or a host",
                ));
            }
        }
    }
}
