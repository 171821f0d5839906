// Cases in which graphql-deduplicator loses data and the form of docs/deduplication.md does not. Each is an answer that
// GraphQL allows, passed through the published version of the package.
import assert from "node:assert/strict";
import { test } from "node:test";
import deduplicator from "graphql-deduplicator";

import { decode } from "../dedup.js";
import { encode } from "./encode.js";

const { deflate, inflate } = deduplicator;
const wire = (value) => JSON.parse(JSON.stringify(value));
const theirs = (answer) => wire(inflate(wire(deflate(wire(answer)))));
const ours = (answer) => wire(decode(JSON.parse(encode(JSON.stringify(answer)))));

/** Asserts that our form returns the answer unchanged, and returns the package's result. */
function comes(answer) {
  assert.deepEqual(ours(answer), answer);
  return theirs(answer);
}

const ada = { __typename: "User", id: "1", name: "Ada", login: "ada" };

test("another selection of the same entity loses its fields", () => {
  const issue = { __typename: "Issue", id: "7", author: { __typename: "User", id: "1", name: "Ada" } };
  const request = { __typename: "PullRequest", id: "8", author: { __typename: "User", id: "1", login: "ada" } };
  const { data } = comes({ data: { search: [issue, request] } });
  assert.deepEqual(data.search[1].author, { __typename: "User", id: "1", name: "Ada" }, "a name instead of the login");
});

test("a field that depends on the parent gets the first parent's value", () => {
  const member = (role) => ({ __typename: "User", id: "1", role });
  const teams = [{ member: member("ADMIN") }, { member: member("GUEST") }];
  assert.deepEqual(comes({ data: { teams } }).data.teams[1].member.role, "ADMIN");
});

test("a scalar that looks like an entity is treated as one", () => {
  const logs = [1, 2].map((at) => ({ at, payload: { __typename: "Event", id: "1", seen: at } }));
  assert.equal(comes({ data: { logs } }).data.logs[1].payload.seen, 1);
});

test("an entity within a repeated one stays a stub", () => {
  const city = { __typename: "City", id: "3", name: "London" };
  const user = { __typename: "User", id: "1", city };
  const answer = { data: { users: [{ ...user, id: "2" }, user, user] } };
  assert.deepEqual(comes(answer).data.users[2].city, { __typename: "City", id: "3" }, "a city without a name");
});

test("null in a list fails the whole answer", () => {
  const answer = { data: { posts: [null, { __typename: "Post", id: "1" }] } };
  assert.deepEqual(ours(answer), answer);
  assert.throws(() => theirs(answer), TypeError);
});

test("an id like `constructor` or `__proto__` loses the fields", () => {
  for (const id of ["constructor", "__proto__"]) {
    const answer = { data: { users: [ada, { __typename: "User", id, name: "Eve" }] } };
    assert.notEqual(comes(answer).data.users[1]?.name, "Eve");
  }
});

test("the same object elsewhere in the answer, or without an id, is sent again", () => {
  const length = (value) => JSON.stringify(value).length;
  const { id, ...nameless } = ada;
  const elsewhere = { data: { author: ada, editor: ada, reader: ada, printer: ada } };
  const withoutId = { data: { users: Array(4).fill(nameless) } };
  for (const answer of [elsewhere, withoutId]) {
    assert.equal(length(deflate(wire(answer))), length(answer));
    assert.ok(encode(JSON.stringify(answer)).length < length(answer) * 0.6);
    assert.deepEqual(ours(answer), answer);
  }
});
