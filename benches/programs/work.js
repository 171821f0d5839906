// A millisecond of CPU, as a query has that builds a long answer out of many parts.
export default () => {
  let sum = 0;
  for (let i = 0; i < 20000; i++) sum = (sum * 31 + i) % 1000003;
  return { sum };
};
