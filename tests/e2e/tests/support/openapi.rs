//! OpenAPI documents of the misbehaving service.

/// Describes the path `/json`: a list of items.
pub(crate) const ITEMS_OPENAPI: &str = r##"
openapi: 3.1.0
info: { title: Items, version: "1" }
paths:
  /json:
    get:
      operationId: items
      parameters: [{ name: n, in: query, schema: { type: integer } }]
      responses:
        "200":
          description: The items.
          content: { application/json: { schema: { type: array, items: { $ref: "#/components/schemas/Item" } } } }
components:
  schemas:
    Item: { type: object, required: [id, name], properties: { id: { type: integer }, name: { type: string } } }
"##;
