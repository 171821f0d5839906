//! The HTTP methods of handlers, calls and frames.

use serde::Serialize;

/// An HTTP method. The discriminant is its number in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
pub enum HandlerMethod {
    /// 0
    Get,
    /// 1
    Head,
    /// 2
    Post,
    /// 3
    Put,
    /// 4
    Patch,
    /// 5
    Delete,
    /// 6
    Options,
}

impl HandlerMethod {
    /// All methods, in the order of their numbers.
    pub const ALL: [Self; 7] =
        [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete, Self::Options];

    /// The methods that a handler can be declared for. The gateway answers OPTIONS itself.
    pub(crate) const HANDLER_METHODS: [Self; 6] =
        [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// Returns the method of this name, if a handler can be declared for it.
    pub(crate) fn from_handler_name(word: &str) -> Option<Self> {
        Self::HANDLER_METHODS.into_iter().find(|method| method.as_str() == word)
    }

    /// Returns the method of this name.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == word)
    }

    /// Returns the method's name in HTTP.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
        }
    }
}
