//! The codes, and the rules behind them.

/// What a diagnostic is about. `docs/errors.md` says of each when it comes; numbers of rules are those of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each code says what it is about, and docs/errors.md says more")]
pub enum Code {
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
}

impl Code {
    /// As it is printed and documented.
    #[must_use]
    pub fn code(self) -> &'static str {
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
        }
    }

    /// The rule of the language that is behind it.
    #[must_use]
    pub fn rule(self) -> Option<u8> {
        match self {
            Self::StatePlace => Some(1),
            Self::HandlerTwice => Some(2),
            Self::RespondValue | Self::RespondPlace => Some(13),
            Self::ParBody | Self::ParPlace => Some(18),
            Self::PforHead | Self::PforPlace => Some(19),
            Self::OnMethod | Self::ResPath => Some(22),
            _ => None,
        }
    }
}
