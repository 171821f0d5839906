// What the types of the link promise: tsc checks this file, nothing runs it.
import { ApolloLink, HttpLink } from "@apollo/client";
import { dedupLink } from "@orfa/client/apollo";

export const link = ApolloLink.from([dedupLink({ cap: 1e6 }), new HttpLink({ uri: "/graphql" })]);
// @ts-expect-error: a number
dedupLink({ cap: "1e6" });
