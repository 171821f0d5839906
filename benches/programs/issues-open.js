// The open issues, one in a hundred, which takes a look at each.
export default async (_, { git }) => {
  const issues = await git.get("/issues");
  return issues.filter((issue) => issue.state === "open").map(({ number, title, user }) => ({ number, title, by: user.login }));
};
