console.log(1)
export const x = 1
let count = 0
const cache = {}
function hit() { count++ }
service s {
  var seen = 0
  state a = 1, b = a, f = () => 1
  const q = a + 1
  res '/a' on PUT { seen++; hit(); cache.x = 1; a = function() {}; var $r = import.meta }
  res '/a' on GET { respond 1 }
}
