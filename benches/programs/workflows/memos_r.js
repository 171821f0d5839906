// memos.r: the second newest note of each user.
export default async ({ n = 4 }, { api }) => {
  const users = await api.get("/api/v1/users", { limit: n });
  const notes = await Promise.all(users.map(({ id }) => api.get("/api/v1/memos", { creator: id, limit: 5 })));
  return notes.map((list) => list[1].uid);
};
