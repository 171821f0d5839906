/** Reads deduplicated JSON, which docs/deduplication.md describes. */

/** Its media type, for `Accept`; and that of GraphQL answers. */
export const JSON_TYPE: "application/vnd.orfa.dedup+json";
export const GRAPHQL_TYPE: "application/graphql-dedup+json";

/**
 * The answer that a deduplicated body means. The body, which `JSON.parse` has read, is changed on the way. What it says
 * once and the answer has in many places is one object in memory, and frozen: make a copy to change it.
 *
 * `cap` is how long the answer may be, spelt out: one for each value, and the characters of strings. 67 million
 * unless you say otherwise.
 *
 * Throws an `Error` with a `code`: `not-deduplicated`, `dedup-reference` (to an entry that does not stand before
 * it), or `dedup-too-long`.
 */
export function decode(body: any, cap?: number): any;
