/** Decodes deduplicated JSON, which docs/deduplication.md describes. */

/** The media types of deduplicated JSON and of deduplicated GraphQL answers, for `Accept`. */
export const JSON_TYPE: "application/vnd.orfa.dedup+json";
export const GRAPHQL_TYPE: "application/graphql-dedup+json";

/**
 * Decodes a deduplicated body that `JSON.parse` has read. The body is modified. A value that occurs in several places
 * is one frozen object in memory: make a copy to change it.
 *
 * `cap` is the maximal expanded length of the answer: one for each value, plus the characters of strings. The default
 * is 67 million.
 *
 * Throws an `Error` with a `code`: `not-deduplicated`, `dedup-reference` (to an entry that does not come before it), or
 * `dedup-too-long`.
 */
export function decode(body: any, cap?: number): any;
