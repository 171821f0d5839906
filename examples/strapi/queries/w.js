// w.js: gives the first n articles a tag, by one write to the tag; answers their titles.
export default async function ({ tag, n = 4 }, { strapi }) {
  const { data } = await strapi.get("/api/articles", { fields: "title", sort: "published", "pagination[limit]": n });
  const connect = data.map((a) => a.documentId);
  await strapi.put("/api/tags/{tag}", { data: { articles: { connect } } }, { tag });
  return data.map((a) => a.title);
}
