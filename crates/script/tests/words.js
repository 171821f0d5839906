// The words of S as plain JavaScript names.
const service = { res: 1, on: 2 }, res = [], on = (par) => par, state = { a: 1 }
let respond = function respond(value) { return value }, par = 4, pfor = (list) => list
service
{
  res
  on
}
respond (1)
respond [0]
respond /1/ 2
respond `a${res}b`
respond + 1
respond
respond++
par
{ par }
pfor (res)
pfor ('a' in service)
state [0] = 1
state = state
on (1)
on: for (const on of res) continue on
res (1)
res [0]
res `/a`
res = res in service
res instanceof Object
state in service
par in service; respond in service
for (res of res) ;
for (const state in service) if (state) par; else on (2)
class state2 { on = 1; respond() {} static service = 2; get par() { return 1 } pfor() {} res = () => {} }
const { res: { length }, ...rest } = { res, on, state, respond, par, pfor, service }
switch (par) { case state: on (1); default: respond (2) }
const regex = /a{/, other = par / 2 / on, last = [/}/, `{${{ a: '}' }.a}`]
export { service, res, on, state, respond, par, pfor }
