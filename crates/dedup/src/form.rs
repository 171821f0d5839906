//! The structures of a deduplicated text, and their media types.

/// The structure of a deduplicated text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DedupForm {
    /// `{"t":[...],"data":...,"errors":...}`: the members of the response follow the table. For responses
    /// that are objects without members `t` and `r`; others are sent plain.
    GraphQl,
    /// `{"t":[...],"r":...}`, for any JSON.
    Json,
}

/// Returns the media type of a form for `Content-Type` and `Accept`.
#[must_use]
pub fn media_type(form: DedupForm) -> &'static str {
    match form {
        DedupForm::GraphQl => "application/graphql-dedup+json;v=1",
        DedupForm::Json => "application/vnd.orfa.dedup+json",
    }
}
