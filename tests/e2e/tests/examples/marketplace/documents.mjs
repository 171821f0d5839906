// Random valid documents over a schema, with arguments, aliases, named and inline fragments, conditions and
// variables.
import { createRequire } from "node:module";

const require = createRequire(new URL("../../../../../sdk/javascript/package.json", import.meta.url));
const { getNamedType, isEnumType, isListType, isNonNullType, isObjectType } = require("graphql");

/** The maximum depth: enough to follow each link and the link back. */
const DEPTH = 5;

/** Returns a seeded generator of numbers from 0 to 1 (mulberry32). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Returns `count` documents, each with its variables. */
export function documents(schema, next, count) {
  return Array.from({ length: count }, () => new Maker(schema, next).document());
}

class Maker {
  constructor(schema, next) {
    Object.assign(this, { schema, next, fragments: [], declared: [], variables: {}, names: 0 });
  }

  document() {
    const body = this.selection(this.schema.getQueryType(), DEPTH);
    const declared = this.declared.length > 0 ? `query Q(${this.declared.join(", ")}) ` : "";
    return { query: [declared + body, ...this.fragments].join("\n"), variables: this.variables };
  }

  one(list) {
    return list[Math.floor(this.next() * list.length)];
  }

  chance(part) {
    return this.next() < part;
  }

  name(letter) {
    this.names += 1;
    return letter + this.names;
  }

  /** Returns a selection set of an object. */
  selection(type, depth) {
    const fields = Object.values(type.getFields()).filter((field) => depth > 1 || !isObjectType(getNamedType(field.type)));
    const most = type === this.schema.getQueryType() ? 2 : 5;
    const parts = Array.from({ length: 1 + Math.floor(this.next() * most) }, () => this.part(type, fields, depth));
    return `{ ${parts.join(" ")} }`;
  }

  part(type, fields, depth) {
    const kind = this.next();
    if (fields.length === 0 || kind < 0.05) return `${this.alias()}__typename${this.conditions()}`;
    if (kind < 0.12 && depth > 1) {
      const on = this.chance(0.5) ? ` on ${type.name}` : "";
      return `...${on}${this.conditions()} ${this.selection(type, depth - 1)}`;
    }
    if (kind < 0.2 && depth > 1) {
      const name = this.name("F");
      this.fragments.push(`fragment ${name} on ${type.name} ${this.selection(type, depth - 1)}`);
      return `...${name}${this.conditions()}`;
    }
    return this.field(this.one(fields), depth);
  }

  /** Fields with arguments always have an alias; others only sometimes, so that some selections have to be merged. */
  field(field, depth) {
    const of = getNamedType(field.type);
    const given = field.args.filter((argument) => isNonNullType(argument.type) || this.chance(0.35));
    // Long lists of lists would take most of the time without further coverage.
    const limit = field.args.find((argument) => argument.name === "limit");
    if (limit && !given.includes(limit) && this.chance(0.95)) given.push(limit);
    const values = given.map((argument) => `${argument.name}: ${this.argument(argument)}`);
    const alias = field.args.length > 0 ? `${this.name("a")}: ` : this.alias();
    const list = values.length > 0 ? `(${values.join(", ")})` : "";
    const inner = isObjectType(of) ? ` ${this.selection(of, depth - 1)}` : "";
    return `${alias}${field.name}${list}${this.conditions()}${inner}`;
  }

  alias() {
    return this.chance(0.2) ? `${this.name("b")}: ` : "";
  }

  conditions() {
    const kind = this.next();
    if (kind > 0.12) return "";
    const name = kind > 0.06 ? "skip" : "include";
    return ` @${name}(if: ${this.chance(0.5) ? this.chance(0.5) : this.variable("Boolean!", this.chance(0.5))})`;
  }

  argument({ name, type }) {
    const value = this.value(name, type);
    return this.chance(0.4) ? this.variable(String(type), value) : this.literal(type, value);
  }

  /** Declares a variable with a value from the request, a default, or no value where it is nullable. */
  variable(type, value) {
    const name = this.name("v");
    const kind = this.next();
    if (kind < 0.15 && !type.endsWith("!")) {
      this.declared.push(`$${name}: ${type}`);
    } else if (kind < 0.3 && typeof value === "number") {
      this.declared.push(`$${name}: ${type.replace(/!$/, "")} = ${value}`);
      if (type.endsWith("!")) this.variables[name] = value;
    } else {
      this.declared.push(`$${name}: ${type}`);
      this.variables[name] = value;
    }
    return `$${name}`;
  }

  literal(type, value) {
    const of = isNonNullType(type) ? type.ofType : type;
    if (value === null || !isEnumType(getNamedType(of))) return JSON.stringify(value);
    return String(value);
  }

  /** Returns a value for an argument, sometimes the id of a missing row. */
  value(name, type) {
    if (isNonNullType(type)) return this.value(name, type.ofType) ?? this.id();
    if (this.chance(0.04)) return null;
    if (isListType(type)) return Array.from({ length: Math.floor(this.next() * 5) }, () => this.id());
    if (isEnumType(type)) return this.one(type.getValues()).name;
    return name === "limit" || name === "offset" || name === "per_buyer" ? Math.floor(this.next() * 6) : this.id();
  }

  id() {
    return this.chance(0.9) ? 1 + Math.floor(this.next() * 330) : 100000;
  }
}
