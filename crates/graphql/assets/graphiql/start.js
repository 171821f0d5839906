// Starts GraphiQL against the address that this page has. `#query=...` fills the editor, as do `variables` and
// `operationName`; what stands behind `#` is not sent to anybody.
const said = new URLSearchParams(location.hash.slice(1));
const url = location.pathname + location.search;

const fetcher = async (request, options = {}) => {
  const response = await fetch(url, {
    method: "POST",
    headers: {
      ...options.headers,
      "content-type": "application/json",
      accept: "application/graphql-response+json, application/json;q=0.9",
    },
    body: JSON.stringify(request),
  });
  return response.json();
};

ReactDOM.createRoot(document.getElementById("graphiql")).render(
  React.createElement(GraphiQL, {
    fetcher,
    query: said.get("query") ?? undefined,
    variables: said.get("variables") ?? undefined,
    operationName: said.get("operationName") ?? undefined,
    defaultEditorToolsVisibility: true,
  }),
);
