//! The log of a case's module, which can be waited for.

use std::time::Duration;

use tokio::sync::watch;

/// The default time limit for waiting: longer than any correct behaviour takes.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A line that a module logged.
#[derive(Clone, Debug)]
pub(crate) struct LoggedLine {
    pub(crate) level: String,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct ModuleLog(watch::Sender<Vec<LoggedLine>>);

impl Default for ModuleLog {
    fn default() -> Self {
        Self(watch::Sender::new(Vec::new()))
    }
}

impl ModuleLog {
    pub(crate) fn add(&self, line: LoggedLine) {
        self.0.send_modify(|lines| lines.push(line));
    }

    /// Returns the text of all lines.
    pub(crate) fn text(&self) -> Vec<String> {
        self.0.borrow().iter().map(|line| format!("[{}] {}", line.level, line.text)).collect()
    }

    /// Whether a line that matches was logged.
    pub(crate) fn contains(&self, wanted: &str) -> bool {
        self.0.borrow().iter().any(|line| line.matches_pattern(wanted))
    }

    /// Waits for these lines in this order. Returns the first one that did not come in time as an error.
    pub(crate) async fn wait_for_lines(&self, wanted: &[String]) -> Result<(), String> {
        self.wait_with_timeout(wanted, WAIT_TIMEOUT).await
    }

    /// Like `wait`, with this time limit.
    pub(crate) async fn wait_with_timeout(
        &self,
        wanted: &[String],
        patience: Duration,
    ) -> Result<(), String> {
        let mut receiver = self.0.subscribe();
        let all = async {
            loop {
                if first_missing(&receiver.borrow_and_update(), wanted).is_none() {
                    return;
                }
                // The sender lives as long as the case, so more lines may come.
                if receiver.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let waited = tokio::time::timeout(patience, all).await;
        match (waited, first_missing(&self.0.borrow(), wanted)) {
            (Err(_), Some(missing)) => Err(missing.clone()),
            _ => Ok(()),
        }
    }
}

fn first_missing<'a>(lines: &[LoggedLine], wanted: &'a [String]) -> Option<&'a String> {
    let mut lines = lines.iter();
    wanted.iter().find(|wanted| !lines.any(|line| line.matches_pattern(wanted)))
}

impl LoggedLine {
    fn matches_pattern(&self, wanted: &str) -> bool {
        let (level, text) = match wanted.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            Some((level, text)) => (Some(level), text),
            None => (None, wanted),
        };
        level.is_none_or(|level| level == self.level) && matches_wildcard(text, &self.text)
    }
}

/// Whether a text matches a pattern, where `*` matches any text.
pub(crate) fn matches_wildcard(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(before) else { return false };
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| matches_wildcard(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(texts: &[&str]) -> ModuleLog {
        let log = ModuleLog::default();
        texts.iter().for_each(|text| log.add(LoggedLine { level: "info".into(), text: (*text).into() }));
        log
    }

    #[test]
    fn a_star_matches_any_text() {
        assert!(matches_wildcard("on tick", "on tick") && !matches_wildcard("on tick", "on tick 2"));
        assert!(
            matches_wildcard("on *", "on tick")
                && matches_wildcard("*b*d", "abcd")
                && !matches_wildcard("*b*d", "abc")
        );
        assert!(matches_wildcard("a*", "a") && !matches_wildcard("a*", "ba"));
    }

    #[tokio::test]
    async fn waits_for_lines_in_order() {
        let log = log_of(&["a", "b", "c"]);
        let wanted = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(log.wait_for_lines(&wanted(&["a", "[info] c"])).await, Ok(()));
        assert_eq!(log.wait_with_timeout(&wanted(&["c", "a"]), Duration::ZERO).await, Err("a".to_owned()));
        assert_eq!(
            log.wait_with_timeout(&wanted(&["[warn] a"]), Duration::ZERO).await,
            Err("[warn] a".to_owned())
        );
    }
}
