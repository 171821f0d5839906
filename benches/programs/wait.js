export default async (input, { slow }) => {
  await slow.get("/");
  return "hello world";
};
