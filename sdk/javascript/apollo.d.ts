import type { ApolloLink } from "@apollo/client/link";

/**
 * A link that asks for deduplicated answers and hands plain ones on. It stands before the `HttpLink`:
 * `ApolloLink.from([dedupLink(), new HttpLink({ uri })])`. A server that does not know the form answers as ever.
 *
 * `cap` is that of `decode` in dedup.d.ts.
 */
export function dedupLink(options?: { cap?: number }): ApolloLink;
