// market.w: a notice to each user.
export default async ({ n = 4 }, { profile }) => {
  const users = await profile.get("/users", { limit: n });
  const notify = ({ id }) => profile.post("/users/{id}/notices", { text: "Maintenance tonight" }, { id });
  return (await Promise.all(users.map(notify))).map((notice) => notice.user_id);
};
