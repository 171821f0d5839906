// memos.w: makes all notes of a user private.
export default async ({ n = 4 }, { api }) => {
  const notes = await api.get("/api/v1/memos", { creator: 1, limit: n });
  const change = ({ id }) => api.patch("/api/v1/memos/{id}", { visibility: "PRIVATE" }, { id });
  return (await Promise.all(notes.map(change))).map(({ uid }) => uid);
};
