// gitea.w: deletes the accounts whose names begin with "bot".
export default async ({ n = 4 }, { api }) => {
  const accounts = await api.get("/api/v1/admin/users", { limit: n + 4 });
  const bots = accounts.map(({ login }) => login).filter((login) => login.startsWith("bot"));
  await Promise.all(bots.map((login) => api.delete("/api/v1/admin/users/{login}", { login })));
  return bots;
};
