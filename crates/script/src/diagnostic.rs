//! Diagnostic codes, and the language rules that they enforce.
//!
//! A run reports every diagnostic that it finds, in source order. Every error has a label, which describes
//! the code at its location, and a hint, which describes the correction. Codes are stable and documented in
//! docs/errors.md. Where a code enforces a rule of the language, it has the rule's number.

use diagnostics::{Diagnostic, DiagnosticKind};

/// The subject of a diagnostic. `docs/errors.md` describes when each code is reported; rule numbers are those
/// of the S language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DiagnosticCode {
    TooLarge,
    MissingBrace,
    Bracket,
    Unterminated,
    Syntax,
    ServiceName,
    ServicePlace,
    ServiceBody,
    ServiceTwice,
    ResPath,
    ResParentheses,
    ResBody,
    ResPlace,
    OnMethod,
    OnBody,
    OnPlace,
    HandlerTwice,
    StateName,
    StatePlace,
    RespondValue,
    RespondPlace,
    ParBody,
    ParPlace,
    PforHead,
    PforPlace,
    ReturnPlace,
    StatePaths,
    GetWrites,
    GetState,
    GetDeclares,
    GetUnsafe,
    DeclareEarly,
    StateFunction,
    InitialCalls,
    InitialState,
    Captured,
    CapturedUse,
    Hoisted,
    RespondMissing,
    RespondTwice,
    QueryText,
    Placeholders,
    Url,
    ResourceValue,
    CallPlace,
    FunctionValue,
    PforDependence,
    PforLeaves,
    TopLevel,
    SharedVariable,
    StateUse,
    ReservedName,
    Module,
}

impl DiagnosticKind for DiagnosticCode {
    fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "s-too-large",
            Self::MissingBrace => "s-missing-brace",
            Self::Bracket => "s-bracket",
            Self::Unterminated => "s-unterminated",
            Self::Syntax => "s-syntax",
            Self::ServiceName => "s-service-name",
            Self::ServicePlace => "s-service-place",
            Self::ServiceBody => "s-service-body",
            Self::ServiceTwice => "s-service-twice",
            Self::ResPath => "s-res-path",
            Self::ResParentheses => "s-res-parentheses",
            Self::ResBody => "s-res-body",
            Self::ResPlace => "s-res-place",
            Self::OnMethod => "s-on-method",
            Self::OnBody => "s-on-body",
            Self::OnPlace => "s-on-place",
            Self::HandlerTwice => "s-handler-twice",
            Self::StateName => "s-state-name",
            Self::StatePlace => "s-state-place",
            Self::RespondValue => "s-respond-value",
            Self::RespondPlace => "s-respond-place",
            Self::ParBody => "s-par-body",
            Self::ParPlace => "s-par-place",
            Self::PforHead => "s-pfor-head",
            Self::PforPlace => "s-pfor-place",
            Self::ReturnPlace => "s-return-place",
            Self::StatePaths => "s-state-paths",
            Self::GetWrites => "s-get-writes",
            Self::GetState => "s-get-state",
            Self::GetDeclares => "s-get-declares",
            Self::GetUnsafe => "s-get-unsafe",
            Self::DeclareEarly => "s-declare-early",
            Self::StateFunction => "s-state-function",
            Self::InitialCalls => "s-initial-calls",
            Self::InitialState => "s-initial-state",
            Self::Captured => "s-captured",
            Self::CapturedUse => "s-captured-use",
            Self::Hoisted => "s-hoisted",
            Self::RespondMissing => "s-respond-missing",
            Self::RespondTwice => "s-respond-twice",
            Self::QueryText => "s-query-text",
            Self::Placeholders => "s-placeholders",
            Self::Url => "s-url",
            Self::ResourceValue => "s-resource-value",
            Self::CallPlace => "s-call-place",
            Self::FunctionValue => "s-function-value",
            Self::PforDependence => "s-pfor-dependence",
            Self::PforLeaves => "s-pfor-leaves",
            Self::TopLevel => "s-top-level",
            Self::SharedVariable => "s-shared-variable",
            Self::StateUse => "s-state-use",
            Self::ReservedName => "s-reserved-name",
            Self::Module => "s-module",
        }
    }

    fn rule(self) -> Option<u8> {
        match self {
            Self::StatePlace => Some(1),
            Self::HandlerTwice => Some(2),
            Self::RespondValue | Self::RespondPlace => Some(13),
            Self::ParBody | Self::ParPlace => Some(18),
            Self::PforHead | Self::PforPlace => Some(19),
            Self::OnMethod | Self::ResPath => Some(22),
            Self::StatePaths => Some(1),
            Self::GetWrites | Self::GetState | Self::GetDeclares | Self::GetUnsafe => Some(3),
            Self::DeclareEarly => Some(6),
            Self::StateFunction | Self::InitialCalls | Self::InitialState => Some(8),
            Self::Captured | Self::CapturedUse => Some(9),
            Self::Hoisted => Some(11),
            Self::RespondMissing => Some(12),
            Self::RespondTwice => Some(13),
            Self::QueryText => Some(14),
            Self::Placeholders | Self::Url => Some(15),
            Self::ResourceValue | Self::CallPlace | Self::FunctionValue => Some(17),
            Self::PforDependence | Self::PforLeaves => Some(19),
            Self::TopLevel | Self::SharedVariable | Self::StateUse => Some(21),
            _ => None,
        }
    }
}

/// Sorts diagnostics by source order and removes duplicates.
pub(crate) fn sort_diagnostics(diagnostics: &mut Vec<Diagnostic>) {
    let key = |it: &Diagnostic| (it.location.span().start, it.location.span().end, it.severity);
    diagnostics.sort_by_key(key);
    diagnostics.dedup();
}
