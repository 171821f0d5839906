// r_calls.js: the article titles of the first n categories, with a call for each category.
export default async function ({ n = 4 }, { strapi }) {
  const { data } = await strapi.get("/api/categories", { sort: "name", "pagination[limit]": n });
  return Promise.all(data.map(async ({ documentId, name }) => {
    const articles = await strapi.get("/api/articles", { "filters[category][documentId]": documentId, sort: "title" });
    return { name, articles: articles.data.map((a) => a.title) };
  }));
}
