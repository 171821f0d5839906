//! Semantic analysis: the meaning of a text beyond JavaScript, and its violations of rules. Each rule has its
//! own module. The rules share the tree (`code`), name resolution (`names`), assignments (`flow`), aliasing
//! of variables (`sharing`), uses of values (`reads`), resource calls and asynchronous functions (`calls`),
//! and accesses to state (`cells`).

use diagnostics::{Diagnostic, DiagnosticSeverity};
use oxc_semantic::NodeId;

use crate::parse::{ParsedScript, SyntaxTree};
use crate::syntax::ConstructKind;
use calls::WaitSites;
use cells::{ClassifiedHandler, StateAccesses};
use code::CodeText;
use effects::EffectAnalyzer;
use flow::DataFlow;
use names::ScriptSymbols;
use parallel::ParPlan;
use sharing::VariableSharing;

pub(crate) mod builtins;
pub(crate) mod calls;
pub(crate) mod capture;
pub(crate) mod cells;
pub(crate) mod code;
pub(crate) mod commit;
pub(crate) mod effects;
pub(crate) mod flow;
pub(crate) mod inline_plan;
pub(crate) mod names;
pub(crate) mod parallel;
pub(crate) mod pfor;
pub(crate) mod purity;
pub(crate) mod query;
pub(crate) mod reads;
pub(crate) mod resources;
pub(crate) mod respond;
pub(crate) mod sharing;
pub(crate) mod template;
pub(crate) mod top_level;
pub(crate) mod urls;

/// The analysis of a text.
pub(crate) struct ScriptAnalysis<'p, 'a> {
    pub(crate) code: CodeText<'p, 'a>,
    pub(crate) names: ScriptSymbols,
    pub(crate) flow: DataFlow,
    pub(crate) sharing: VariableSharing,
    pub(crate) calls: WaitSites,
    pub(crate) state_accesses: StateAccesses,
    pub(crate) handlers: Vec<HandlerMode>,
    /// The plan of each `par`, in source order.
    pub(crate) plans: Vec<ParPlan>,
}

/// The execution mode of a handler.
pub(crate) struct HandlerMode {
    pub(crate) classification: ClassifiedHandler,
    /// The statement after which it commits early.
    pub(crate) early_commit: Option<NodeId>,
}

impl<'p, 'a> ScriptAnalysis<'p, 'a> {
    /// Analyses a text, and adds diagnostics for violated rules to `found`.
    pub(crate) fn from_parsed(
        parsed: &'p ParsedScript<'a>,
        tree: &'p SyntaxTree<'a>,
        strict: bool,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Self {
        let code = CodeText::new(parsed, tree);
        let names = ScriptSymbols::from_code(&code);
        let flow = DataFlow::from_code(&code, &names);
        let sharing = VariableSharing::from_code(&code, &names, &flow);
        let calls = WaitSites::from_code(&code, &names, diagnostics);
        let touched = StateAccesses::from_code(&code, &names);
        let handlers = (0..names.handlers.len()).map(|handler| {
            let classified = cells::classify_handler(&names, &touched, handler);
            let early = commit::early_commit_statement(
                &code,
                &names,
                &sharing,
                &touched,
                &calls,
                handler,
                classified.class,
            );
            HandlerMode { classification: classified, early_commit: early }
        });
        let handlers = handlers.collect();
        let mut analysis =
            Self { code, names, flow, sharing, calls, state_accesses: touched, handlers, plans: Vec::new() };
        analysis.plans = analysis.check(strict, diagnostics);
        analysis
    }

    fn check(&self, strict: bool, diagnostics: &mut Vec<Diagnostic>) -> Vec<ParPlan> {
        cells::check_paths(self, strict, diagnostics);
        commit::check(self, diagnostics);
        capture::check(self, diagnostics);
        query::check(self, diagnostics);
        purity::check(self, diagnostics);
        respond::check(self, diagnostics);
        resources::check(self, diagnostics);
        urls::check(self, diagnostics);
        top_level::check(self, diagnostics);
        let observer = EffectAnalyzer::new(self);
        pfor::check(self, &observer, diagnostics);
        let constructs = self.code.parsed.syntax.constructs.iter().enumerate();
        let pars = constructs.filter(|(_, it)| it.kind == ConstructKind::Par);
        pars.map(|(id, _)| ParPlan::from_construct(self, &observer, id)).collect()
    }
}

/// Whether any diagnostic is an error.
pub(crate) fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|it| it.severity == DiagnosticSeverity::Error)
}
