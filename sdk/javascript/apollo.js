// Lets Apollo Client accept deduplicated answers. apollo.d.ts documents the interface.

import { ApolloLink } from "@apollo/client/link";
import { map } from "rxjs";

import { decode, GRAPHQL_TYPE } from "./dedup.js";

/** @type {typeof import("./apollo.d.ts").dedupLink} */
export function dedupLink({ cap } = {}) {
  return new ApolloLink((operation, forward) => {
    operation.setContext(({ http }) => ({
      http: { ...http, accept: [...(http?.accept ?? []), `${GRAPHQL_TYPE};v=1`] },
    }));
    // A plain GraphQL answer has no member `t`.
    return forward(operation).pipe(map((/** @type {any} */ answer) => ("t" in answer ? decode(answer, cap) : answer)));
  });
}
