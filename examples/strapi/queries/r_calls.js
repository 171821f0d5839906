// r_calls.js: of the first n categories, the titles of their articles, by a call for each category.
export default async function ({ n = 4 }, { strapi }) {
  const { data } = await strapi.get("/api/categories", { sort: "name", "pagination[limit]": n });
  return Promise.all(data.map(async ({ documentId, name }) => {
    const articles = await strapi.get("/api/articles", { "filters[category][documentId]": documentId, sort: "title" });
    return { name, articles: articles.data.map((a) => a.title) };
  }));
}
