// notify_admins.ts: sends a notice to each admin among the first n users; answers their IDs
import type { Services } from "./orfa";

export default async function ({ n = 16, text = "Maintenance tonight at 22:00 UTC." }, { profile }: Services) {
  const users = await profile.get("/users", { limit: n });
  const details = await Promise.all(users.map((u) => profile.get("/users/{id}", { id: u.id })));
  const admins = details.filter((u) => u.roles.includes("admin"));
  await Promise.all(admins.map((u) => profile.post("/users/{id}/notices", { text }, { id: u.id })));
  return admins.map((u) => u.id);
}
