//! The score: the numbers of cases that passed and of cases with known differences. It is committed, so that
//! a lost row is always visible.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::case::ConformanceCase;
use crate::verdict::CaseVerdict;

#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct ConformanceScore {
    /// The number of rows in the table.
    rows: usize,
    /// The number of rows that passed on every module that runs them.
    rows_passed: usize,
    /// The number of cases: rows times the modules that run each.
    cases: usize,
    passed: usize,
    /// The number of cases with a known difference of this host.
    differ: usize,
    failed: usize,
}

/// The result of a run, compared with the committed score.
pub(crate) enum ScoreComparison {
    Unchanged,
    Changed,
}

impl From<ScoreComparison> for ExitCode {
    fn from(end: ScoreComparison) -> Self {
        match end {
            ScoreComparison::Unchanged => Self::SUCCESS,
            ScoreComparison::Changed => Self::FAILURE,
        }
    }
}

impl ConformanceScore {
    pub(crate) fn from_verdicts(cases: &[Arc<ConformanceCase>], verdicts: &[CaseVerdict]) -> Self {
        let count =
            |wanted: fn(&CaseVerdict) -> bool| verdicts.iter().filter(|verdict| wanted(verdict)).count();
        let both = || cases.iter().zip(verdicts);
        let mut rows: Vec<&str> = cases.iter().map(|case| case.row.id.as_str()).collect();
        rows.dedup();
        let passes = |row: &&&str| {
            both().all(|(case, it)| case.row.id != **row || matches!(it, CaseVerdict::AsExpected))
        };
        Self {
            rows: rows.len(),
            rows_passed: rows.iter().filter(passes).count(),
            cases: cases.len(),
            passed: count(|verdict| matches!(verdict, CaseVerdict::AsExpected)),
            differ: count(|verdict| matches!(verdict, CaseVerdict::KnownDifference(_))),
            failed: count(|verdict| matches!(verdict, CaseVerdict::Failed(_))),
        }
    }

    /// Prints the score. Compares it with the committed one, or writes it.
    pub(crate) fn compare_or_write(
        &self,
        path: &Path,
        partial: bool,
        update: bool,
    ) -> anyhow::Result<ScoreComparison> {
        anstream::println!(
            "{} of {} rows passed; {} of {} cases passed, {} with known differences, {} failed",
            self.rows_passed,
            self.rows,
            self.passed,
            self.cases,
            self.differ,
            self.failed
        );
        if partial {
            return Ok(if self.failed == 0 { ScoreComparison::Unchanged } else { ScoreComparison::Changed });
        }
        if update {
            std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")?;
            return Ok(ScoreComparison::Unchanged);
        }
        let committed: Option<Self> =
            std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok());
        if committed.as_ref() == Some(self) {
            return Ok(ScoreComparison::Unchanged);
        }
        anstream::println!(
            "the score differs from the committed one ({}): to commit it, add --update (make conformance UPDATE=1)",
            path.display()
        );
        Ok(ScoreComparison::Changed)
    }
}
