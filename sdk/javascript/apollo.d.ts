import type { ApolloLink } from "@apollo/client/link";

/**
 * Creates a link that requests deduplicated answers and passes plain ones on. Place it before the `HttpLink`:
 * `ApolloLink.from([dedupLink(), new HttpLink({ uri })])`. A server that does not support the form answers as usual.
 *
 * `cap` is that of `decode` in dedup.d.ts.
 */
export function dedupLink(options?: { cap?: number }): ApolloLink;
