// What `mesh-compose` makes the supergraph of Hive Gateway of.
import { defineConfig } from "@graphql-mesh/compose-cli";
import { loadOpenAPISubgraph } from "@omnigraph/openapi";

export const composeConfig = defineConfig({
  subgraphs: [
    { sourceHandler: loadOpenAPISubgraph("api", { source: "./posts.yaml", endpoint: "http://@UPSTREAM@" }) },
  ],
  additionalTypeDefs: /* GraphQL */ `
    extend type Post {
      user: User
        @resolveTo(
          sourceName: "api"
          sourceTypeName: "Query"
          sourceFieldName: "user"
          requiredSelectionSet: "{ userId }"
          sourceArgs: { id: "{root.userId}" }
        )
    }
  `,
});
