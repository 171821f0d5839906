//! The score: how many cases went as everywhere, and how many as a host is known to differ. It is committed, so that
//! nobody loses a row without saying so.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::judge::Verdict;

#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Score {
    /// Rows of the table.
    rows: usize,
    /// Rows that went as everywhere on every module that runs them.
    rows_passed: usize,
    /// Rows times the modules that run each.
    cases: usize,
    passed: usize,
    /// Went as the table says that this host does instead.
    differ: usize,
    failed: usize,
}

/// How a run ends.
pub(crate) enum End {
    AsBefore,
    NotAsBefore,
}

impl From<End> for ExitCode {
    fn from(end: End) -> Self {
        match end {
            End::AsBefore => Self::SUCCESS,
            End::NotAsBefore => Self::FAILURE,
        }
    }
}

impl Score {
    pub(crate) fn of(cases: &[Arc<Case>], verdicts: &[Verdict]) -> Self {
        let count = |wanted: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| wanted(verdict)).count();
        let both = || cases.iter().zip(verdicts);
        let mut rows: Vec<&str> = cases.iter().map(|case| case.row.id.as_str()).collect();
        rows.dedup();
        let passes =
            |row: &&&str| both().all(|(case, it)| case.row.id != **row || matches!(it, Verdict::Same));
        Self {
            rows: rows.len(),
            rows_passed: rows.iter().filter(passes).count(),
            cases: cases.len(),
            passed: count(|verdict| matches!(verdict, Verdict::Same)),
            differ: count(|verdict| matches!(verdict, Verdict::Differs(_))),
            failed: count(|verdict| matches!(verdict, Verdict::Fails(_))),
        }
    }

    /// Prints the score, and compares it with the committed one or writes that.
    pub(crate) fn close(&self, path: &Path, partial: bool, update: bool) -> anyhow::Result<End> {
        anstream::println!(
            "{} of {} rows passed; {} of {} cases, {} differ as known, {} failed",
            self.rows_passed,
            self.rows,
            self.passed,
            self.cases,
            self.differ,
            self.failed
        );
        if partial {
            return Ok(if self.failed == 0 { End::AsBefore } else { End::NotAsBefore });
        }
        if update {
            std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")?;
            return Ok(End::AsBefore);
        }
        let committed: Option<Self> =
            std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok());
        if committed.as_ref() == Some(self) {
            return Ok(End::AsBefore);
        }
        anstream::println!(
            "that is not the committed score ({}): if it should be, add --update (make conformance UPDATE=1)",
            path.display()
        );
        Ok(End::NotAsBefore)
    }
}
