//! The kinds of hosts, which the table distinguishes.

/// The supported hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HostKind {
    Envoy,
    Orfa,
}

impl HostKind {
    /// Returns the name in lower case.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::Orfa => "orfa",
        }
    }
}
