// Tests of the link's types: this file is checked by tsc, and never run.
import { ApolloLink, HttpLink } from "@apollo/client";
import { dedupLink } from "@orfa/client/apollo";

export const link = ApolloLink.from([dedupLink({ cap: 1e6 }), new HttpLink({ uri: "/graphql" })]);
// @ts-expect-error: a number
dedupLink({ cap: "1e6" });
