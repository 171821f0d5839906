//! The limits of a run. Both the client (`ORFA-Limit`) and the operator set each of them; the smaller value
//! applies, and errors report its origin.

use std::time::Duration;

use services::CallLimits;
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::config::QueryLimitsConfig;

/// A limited resource. The names are those of `ORFA-Limit`; the config has others for some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitKind {
    Cpu,
    Deadline,
    Memory,
    Calls,
    Parallel,
    Received,
    Output,
}

/// An effective limit. `granted` is whether it comes from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffectiveLimit {
    pub(crate) value: u64,
    pub(crate) is_from_client: bool,
}

/// The error for a malformed `ORFA-Limit`, with its description.
#[derive(Debug)]
pub(crate) struct ClientLimitsError(pub(crate) String);

/// The error of a run that exceeded a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitExceededError {
    pub(crate) limit: LimitKind,
    pub(crate) effective: EffectiveLimit,
}

/// The limits of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLimits {
    effective_limits: [EffectiveLimit; 7],
}

impl LimitKind {
    pub(crate) const ALL: [Self; 7] =
        [Self::Cpu, Self::Deadline, Self::Memory, Self::Calls, Self::Parallel, Self::Received, Self::Output];

    /// Returns the limit's name in `ORFA-Limit`, descriptions and recordings.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Deadline => "deadline",
            Self::Memory => "memory",
            Self::Calls => "calls",
            Self::Parallel => "parallel",
            Self::Received => "received",
            Self::Output => "output",
        }
    }

    /// Returns the problem code for exceeding the limit.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Cpu => "limit-cpu",
            Self::Deadline => "limit-deadline",
            Self::Memory => "limit-memory",
            Self::Calls => "limit-calls",
            Self::Parallel => "limit-parallel",
            Self::Received => "limit-received",
            Self::Output => "limit-output",
        }
    }

    /// Formats a value of the limit for messages: `50 ms of CPU time`.
    pub(crate) fn show(self, value: u64) -> String {
        match self {
            Self::Cpu => format!("{value} ms of CPU time"),
            Self::Deadline => format!("{value} ms until its answer"),
            Self::Memory => format!("{value} bytes of memory"),
            Self::Calls => format!("{value} upstream calls"),
            Self::Parallel => format!("{value} upstream calls at once"),
            Self::Received => format!("{value} bytes from upstream services"),
            Self::Output => format!("{value} bytes of answer"),
        }
    }
}

impl RunLimits {
    /// Returns the operator's limits.
    pub(crate) fn from_config(config: &QueryLimitsConfig) -> Self {
        let millis =
            |duration: services::DurationConfig| u64::try_from(duration.0.as_millis()).unwrap_or(u64::MAX);
        let cap = |limit| match limit {
            LimitKind::Cpu => millis(config.cpu),
            LimitKind::Deadline => millis(config.timeout),
            LimitKind::Memory => config.memory.0,
            LimitKind::Calls => config.calls.into(),
            LimitKind::Parallel => config.concurrency.into(),
            LimitKind::Received => config.upstream_bytes.0,
            LimitKind::Output => config.response_body.0,
        };
        Self {
            effective_limits: LimitKind::ALL
                .map(|limit| EffectiveLimit { value: cap(limit), is_from_client: false }),
        }
    }

    /// Applies the client's `ORFA-Limit`.
    ///
    /// # Errors
    /// A header that is not a dictionary (RFC 9651), an unknown name, or a value that is not a whole number.
    pub(crate) fn with_client_limits(mut self, header: &str) -> Result<Self, ClientLimitsError> {
        let wrong = ClientLimitsError;
        let dictionary: Dictionary =
            Parser::new(header).parse().map_err(|error| wrong(format!("not a dictionary: {error}")))?;
        for (word, entry) in &dictionary {
            let limit = LimitKind::ALL.into_iter().find(|limit| limit.word() == word.as_str());
            let limit = limit.ok_or_else(|| wrong(format!("there is no limit `{word}`")))?;
            let number = whole_number(entry).filter(|number| *number > 0);
            let value = number.ok_or_else(|| wrong(format!("`{word}` is not a whole number above 0")))?;
            let cap = &mut self.effective_limits[limit as usize];
            if value < cap.value {
                *cap = EffectiveLimit { value, is_from_client: true };
            }
        }
        Ok(self)
    }

    /// Returns every limit by name.
    pub(crate) fn iter_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LimitKind::ALL.into_iter().map(|limit| (limit.word(), self.value(limit)))
    }

    /// Returns these limits with another value for one of them.
    pub(crate) fn with_value(mut self, limit: LimitKind, value: u64) -> Self {
        self.effective_limits[limit as usize].value = value;
        self
    }

    pub(crate) fn effective_limit(&self, limit: LimitKind) -> EffectiveLimit {
        self.effective_limits[limit as usize]
    }

    pub(crate) fn value(&self, limit: LimitKind) -> u64 {
        self.effective_limit(limit).value
    }

    pub(crate) fn millis(&self, limit: LimitKind) -> Duration {
        Duration::from_millis(self.value(limit))
    }

    pub(crate) fn size(&self, limit: LimitKind) -> usize {
        usize::try_from(self.value(limit)).unwrap_or(usize::MAX)
    }

    /// Returns the limits of the run's upstream calls.
    pub(crate) fn call_limits(&self) -> CallLimits {
        CallLimits {
            timeout: self.millis(LimitKind::Deadline),
            calls: u32::try_from(self.value(LimitKind::Calls)).unwrap_or(u32::MAX),
            upstream_bytes: self.value(LimitKind::Received),
            concurrency: self.size(LimitKind::Parallel),
        }
    }

    /// Returns the error for exceeding a limit.
    pub(crate) fn exceeded_error(&self, limit: LimitKind) -> LimitExceededError {
        LimitExceededError { limit, effective: self.effective_limit(limit) }
    }
}

fn whole_number(entry: &ListEntry) -> Option<u64> {
    match entry {
        ListEntry::Item(item) => match &item.bare_item {
            BareItem::Integer(number) => u64::try_from(i64::from(*number)).ok(),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applies_the_smaller_limit() {
        let caps = RunLimits::from_config(&QueryLimitsConfig::default());
        let limits = caps.with_client_limits("cpu=10, calls=100000, memory=1048576").unwrap();
        assert_eq!(
            limits.effective_limit(LimitKind::Cpu),
            EffectiveLimit { value: 10, is_from_client: true }
        );
        assert_eq!(
            limits.effective_limit(LimitKind::Calls),
            EffectiveLimit { value: 200, is_from_client: false }
        );
        assert_eq!(limits.value(LimitKind::Memory), 1 << 20);
    }

    #[test]
    fn rejects_unknown_limits_and_invalid_values() {
        for header in ["cpus=1", "cpu=fast", "cpu=1.5", "cpu", "cpu=(1 2)", "cpu=0", "cpu=-1", "=", "cpu=1,"]
        {
            assert!(
                RunLimits::from_config(&QueryLimitsConfig::default()).with_client_limits(header).is_err(),
                "{header}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn parses_any_header_without_raising_limits(header in "[a-z0-9=, .;\"()-]{0,40}") {
            let caps = RunLimits::from_config(&QueryLimitsConfig::default());
            if let Ok(limits) = caps.with_client_limits(&header) {
                for limit in LimitKind::ALL {
                    proptest::prop_assert!(limits.value(limit) <= caps.value(limit));
                }
            }
        }
    }
}
