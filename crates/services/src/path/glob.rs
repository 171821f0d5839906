//! Path patterns of operators: `*` matches any characters within a segment, `**` any number of segments, and
//! a final segment `*` everything below.
//!
//! Matching takes at most time proportional to pattern length times path length, since paths come from
//! untrusted clients.

use super::{PathError, percent_decode};

/// The maximum number of segments of a pattern, and of a path that matches one.
const MAX_SEGMENTS: usize = 256;

/// A path pattern: `/buyers/*`, `/v*/items`, `/**/public`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGlob {
    segments: Vec<GlobSegment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum GlobSegment {
    /// `**`
    Any,
    /// Text in which `*` matches any run of characters.
    Text(Vec<u8>),
}

/// The decoded segments of a path, without empty ones before the last.
pub(crate) struct DecodedPath {
    /// `None` for a path that matches nothing.
    segments: Option<Vec<Vec<u8>>>,
}

#[cfg(test)]
thread_local! {
    /// The number of paths that this thread has decoded.
    pub(crate) static DECODED_PATH_COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl PathGlob {
    /// Parses a pattern; the error describes the mistake.
    ///
    /// # Errors
    /// Patterns that do not begin with `/`, that contain `//`, `?`, `#` or `%`, or `**` next to other text,
    /// and patterns of too many segments.
    pub fn parse(pattern: &str) -> Result<Self, &'static str> {
        let below = pattern.strip_prefix('/').ok_or("a path pattern begins with `/`")?;
        if pattern.contains(['?', '#', '%']) {
            return Err("a path pattern is matched against the decoded path: no `?`, `#` or `%`");
        }
        let texts: Vec<&str> = below.split('/').collect();
        if texts.len() > MAX_SEGMENTS {
            return Err("a path pattern has at most 256 segments");
        }
        let mut segments = Vec::with_capacity(texts.len() + 1);
        for (index, text) in texts.iter().enumerate() {
            match *text {
                "" if index + 1 < texts.len() => {
                    return Err("a path is matched without its empty segments: no `//`");
                }
                "**" => segments.push(GlobSegment::Any),
                "*" if index + 1 == texts.len() => {
                    segments.extend([GlobSegment::Text(b"*".to_vec()), GlobSegment::Any]);
                }
                text if text.contains("**") => return Err("`**` must be alone between slashes"),
                text => segments.push(GlobSegment::Text(text.as_bytes().to_vec())),
            }
        }
        Ok(Self { segments })
    }

    /// Whether a path, as written in a URL, matches. A path that cannot be decoded, or that has hundreds of
    /// segments, matches nothing.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.matches_decoded(&DecodedPath::new(path))
    }

    /// Like [`PathGlob::matches`], for a path that is matched against several patterns.
    pub(crate) fn matches_decoded(&self, path: &DecodedPath) -> bool {
        let is_any = |segment: &GlobSegment| *segment == GlobSegment::Any;
        path.segments.as_ref().is_some_and(|path| {
            match_wildcards(&self.segments, path, is_any, |segment, text| segment.matches_text(text))
        })
    }
}

impl DecodedPath {
    /// Decodes a path as written in a URL.
    pub(crate) fn new(path: &str) -> Self {
        Self::decode_segments(path, |_| {})
    }

    /// Decodes a path as servers read it that cut parameters: each segment ends at its first `;`, also an
    /// encoded one.
    pub(crate) fn without_parameters(path: &str) -> Self {
        Self::decode_segments(path, |segment| {
            let end = segment.iter().position(|byte| *byte == b';');
            segment.truncate(end.unwrap_or(segment.len()));
        })
    }

    /// Decodes a path, and shortens its decoded segments by `cut`.
    fn decode_segments(path: &str, cut: impl Fn(&mut Vec<u8>)) -> Self {
        #[cfg(test)]
        DECODED_PATH_COUNT.set(DECODED_PATH_COUNT.get() + 1);
        let last = path.bytes().filter(|byte| *byte == b'/').count();
        let decoded = path.split('/').map(|text| {
            let mut segment = percent_decode(text)?;
            cut(&mut segment);
            Ok::<_, PathError>(segment)
        });
        let is_collapsed = |segment: &Vec<u8>, index| segment.is_empty() && (index != last || last == 0);
        let segments: Result<Vec<Vec<u8>>, _> = decoded
            .enumerate()
            .filter(|(index, segment)| !segment.as_ref().is_ok_and(|segment| is_collapsed(segment, *index)))
            .map(|(_, segment)| segment)
            .take(MAX_SEGMENTS + 1)
            .collect();
        Self { segments: segments.ok().filter(|segments| segments.len() <= MAX_SEGMENTS) }
    }
}

impl GlobSegment {
    fn matches_text(&self, text: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Text(pattern) => {
                match_wildcards(pattern, text, |byte| *byte == b'*', |one, other| one == other)
            }
        }
    }
}

/// Matches items against a pattern with wildcards. Only the last wildcard is ever retried, which is
/// sufficient, and limits the worst case to the product of both lengths.
fn match_wildcards<P, T>(
    pattern: &[P],
    text: &[T],
    any: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut seen, mut retry) = (0, 0, None);
    while let Some(item) = text.get(seen) {
        match pattern.get(at) {
            Some(expected) if any(expected) => {
                retry = Some((at + 1, seen));
                at += 1;
            }
            Some(expected) if fits(expected, item) => (at, seen) = (at + 1, seen + 1),
            _ => {
                let Some((after, swallowed)) = retry else { return false };
                (at, seen, retry) = (after, swallowed + 1, Some((after, swallowed + 1)));
            }
        }
    }
    pattern.get(at..).is_some_and(|rest| rest.iter().all(any))
}
