//! A hook to observe every callback and every host call of modules. Without an observer it costs one branch
//! each.

/// An observer of filters.
pub trait FilterObserver: Send + Sync {
    /// Receives an event. Called with the virtual machine locked, so it must not block.
    fn on_event(&self, event: &FilterEvent<'_>);
}

/// An event. Events arrive in order: the host calls of a callback come between its start and its return.
#[derive(Clone, Copy, Debug)]
pub enum FilterEvent<'a> {
    /// The host calls the module.
    Callback {
        /// The filter's name.
        filter: &'a str,
        /// The callback's name, e.g. `proxy_on_request_headers`.
        name: &'static str,
        /// The arguments as passed to the module; usually the first one is the context.
        arguments: &'a [u32],
    },
    /// The module returned.
    Returned {
        /// The callback's name.
        name: &'static str,
        /// The returned value; 0 for callbacks without one.
        value: u32,
    },
    /// The module called the host.
    HostCall {
        /// The function's name, e.g. `proxy_get_header_map_value`.
        name: &'static str,
        /// A description of the arguments, e.g. `request headers, :path`.
        description: &'a str,
        /// The beginning of the returned data, as text.
        returned_data: &'a str,
        /// The ABI status that the host returned.
        status: &'static str,
    },
    /// The module wrote to the log.
    Log {
        /// The filter's name.
        filter: &'a str,
        /// The level, e.g. `info`.
        level: &'static str,
        /// The message.
        message: &'a str,
    },
    /// The module trapped, and its instance is discarded.
    Trapped {
        /// The filter's name.
        filter: &'a str,
        /// The reason.
        reason: &'a str,
    },
}
