// w_calls.js: gives the first n articles a tag, by a write to each; answers their titles.
export default async function ({ tag, n = 4 }, { strapi }) {
  const { data } = await strapi.get("/api/articles", { sort: "published", "pagination[limit]": n });
  const written = await Promise.all(data.map((a) =>
    strapi.put("/api/articles/{id}", { data: { tags: { connect: [tag] } } }, { id: a.documentId })));
  return written.map((a) => a.data.title);
}
