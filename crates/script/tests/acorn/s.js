// S as an acorn plugin: a second opinion on the grammar, written independently of the compiler.
//
// It parses S directly, statement by statement, where the compiler rewrites tokens and parses JavaScript.
// Both must accept the same texts and find the same constructs (`tests/second_opinion.rs`). It reports only
// the first of several errors.

import { Parser, getLineInfo, isNewLine, tokContexts, tokTypes } from "acorn";

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const WORDS = ["service", "res", "on", "state", "respond", "par", "pfor"];
const FUNCTION = 2, ASYNC = 4, VAR = 1;
const NAME_START = /[\p{ID_Start}$_\\]/u;

class S extends Parser {
  constructor(options, input, startPos) {
    super(options, input, startPos);
    this.found = [];
    // The enclosing frames: "service", "resource", "handler", and "function" for JavaScript functions.
    this.frames = [];
    this.services = new Set();
    this.respondIsName = /(?:\b(?:var|let|const|function|class|as)|[(,[=+])\s*respond\b(?!\s*[:(])/.test(input);
  }

  // Looks ahead in the text only, since acorn has a lookahead of one token.

  skipGap(from) {
    const skip = /(?:\s|\/\/.*|\/\*[^]*?\*\/)*/y;
    skip.lastIndex = from;
    skip.exec(this.input);
    return skip.lastIndex;
  }

  sameLine(from, to) {
    for (let i = from; i < to; i++) if (isNewLine(this.input.charCodeAt(i))) return false;
    return true;
  }

  wordAt(at) {
    if (!NAME_START.test(this.input.charAt(at))) return "";
    return /^[\p{ID_Continue}$\u200c\u200d\\]*/u.exec(this.input.slice(at))[0];
  }

  // Whether an operand begins here that cannot continue an expression which ends in a name.
  beginsOperand(at) {
    const word = this.wordAt(at);
    if (word) return word !== "in" && word !== "instanceof";
    return /^(?:['"\d#]|\.\d)/.test(this.input.slice(at, at + 2));
  }

  inService() { return this.frames.includes("service"); }
  inHandler() { return this.frames.includes("handler"); }
  top() { return this.frames.at(-1); }

  note(kind, start) { this.found.push({ kind, start }); }

  parseStatement(context, topLevel, exports) {
    if (this.type.label === "name" && !this.containsEsc && WORDS.includes(this.value)) {
      const at = this.skipGap(this.end);
      const parsed = this.ours(this.value, context, at, this.sameLine(this.end, at));
      if (parsed) return parsed;
    }
    return super.parseStatement(context, topLevel, exports);
  }

  ours(word, context, at, sameLine) {
    const char = this.input.charAt(at), begins = sameLine && this.beginsOperand(at);
    const brace = sameLine && char === "{";
    switch (word) {
      case "service": return (begins || brace) && this.service();
      case "on": return (begins || brace) && this.raise(this.start, "`on` is only allowed in a resource");
      case "state": return (begins || brace) && this.state(context);
      case "res": return this.res(context, at, sameLine, begins || brace);
      case "respond": return this.respond(at, sameLine, char, begins || brace);
      case "par":
        if (begins || brace || (char === "{" && this.inService() && !/\bpar\s*=[^=]/.test(this.input))) return this.par();
        return false;
      default: return sameLine && char === "(" && this.pfor(at);
    }
  }

  // Opens a block of S, which acorn might otherwise parse as an object.
  openBlock() {
    if (this.type.label !== "{") this.unexpected();
    this.context[this.context.length - 1] = tokContexts.b_stat;
    this.next();
  }

  body(frame, flags, names, statement) {
    const labels = this.labels, [yieldPos, awaitPos] = [this.yieldPos, this.awaitPos];
    this.labels = [];
    this.yieldPos = this.awaitPos = this.awaitIdentPos = 0;
    this.openBlock();
    this.enterScope(flags);
    for (const name of names) this.declareName(name, VAR, this.start);
    this.frames.push(frame);
    while (this.type.label !== "}") statement();
    this.exprAllowed = true;
    this.next();
    this.frames.pop();
    this.exitScope();
    this.labels = labels;
    [this.yieldPos, this.awaitPos] = [yieldPos, awaitPos];
  }

  service() {
    const node = this.startNode();
    if (this.frames.length || this.scopeStack.length > 1) this.raise(this.start, "a service in something");
    this.note("service", this.start);
    this.next();
    const name = this.parseIdent().name;
    if (this.services.has(name)) this.raise(node.start, "two services of one name");
    this.services.add(name);
    this.paths = new Set();
    this.body("service", FUNCTION, [], () => this.parseStatement(null));
    return this.finishNode(node, "Service");
  }

  res(context, at, sameLine, sure) {
    if (!sameLine) return false;
    const name = this.wordAt(at), after = name ? this.skipGap(at + name.length) : at;
    const equals = /^=(?![=>])/.test(this.input.slice(after, after + 2));
    if (name && equals && !this.isReservedAt(name)) return this.external(context);
    if (!sure && !this.isPath(at)) return false;
    if (this.input.charAt(at) === "(") this.raise(at, "a path in parentheses");
    return this.resource();
  }

  isReservedAt(name) { return this.reservedWordsStrict.test(name) || this.keywords.test(name); }

  // Whether an ambiguous continuation is a path, because a handler follows on its line.
  isPath(at) {
    if (!/[`[(+-]/.test(this.input.charAt(at)) || /^(?:\+\+|--|[+-]=)/.test(this.input.slice(at, at + 2))) return false;
    try {
      const probe = new S(this.options, this.input, at);
      probe.nextToken();
      probe.parseMaybeAssign();
      const follows = probe.type.label === "{" || (probe.type.label === "name" && probe.value === "on");
      return follows && this.sameLine(probe.lastTokEnd, probe.start);
    } catch {
      return false;
    }
  }

  external(context) {
    if (context) this.raise(this.start, "an external resource on a condition");
    const node = this.startNode();
    this.note("external", this.start);
    this.next();
    this.parseVar(node, false, "const");
    this.semicolon();
    return this.finishNode(node, "External");
  }

  resource() {
    if (!["service", "handler"].includes(this.top())) this.raise(this.start, "a resource elsewhere");
    const node = this.startNode();
    this.note("resource", this.start);
    this.next();
    if (this.type.label === "{" || (this.type.label === "name" && this.value === "on" && /^\s+[A-Z]+\s*\{/.test(this.input.slice(this.end)))) {
      this.raise(this.start, "no path");
    }
    const path = this.parseMaybeAssign();
    const literal = this.checkPath(path);
    const methods = literal === undefined ? new Set() : this.methodsOf(literal);
    let handlers = 0;
    if (this.isContextual("on")) {
      this.handler(methods);
    } else {
      this.body("resource", FUNCTION, [], () => {
        const at = this.skipGap(this.end);
        const isOn = this.isContextual("on") && this.sameLine(this.end, at) && (this.beginsOperand(at) || this.input.charAt(at) === "{");
        if (!isOn) return this.parseStatement(null);
        handlers += 1;
        this.handler(methods);
      });
      if (!handlers) this.raise(node.start, "no handler");
    }
    return this.finishNode(node, "Resource");
  }

  // Returns the path, if it is a literal.
  checkPath(path) {
    let first = path;
    while (first.type === "BinaryExpression") first = first.left;
    const text = first.type === "Literal" && typeof first.value === "string" ? first.value
      : first.type === "TemplateLiteral" ? first.quasis[0].value.raw : undefined;
    const mayBeEmpty = first.type === "TemplateLiteral" && text === "";
    if (text !== undefined && ((!text.startsWith("/") && !mayBeEmpty) || /[?#]/.test(text))) this.raise(first.start, "no path");
    if (path.type === "Literal") return text;
    return path.type === "TemplateLiteral" && !path.expressions.length ? path.quasis[0].value.cooked : undefined;
  }

  methodsOf(path) {
    const paths = this.paths;
    return { has: (method) => paths.has(`${method} ${path}`), add: (method) => paths.add(`${method} ${path}`) };
  }

  handler(methods) {
    this.note("handler", this.start);
    this.next();
    const method = this.type.label === "name" ? this.value : this.unexpected();
    if (!METHODS.includes(method) || this.hasNewlineBefore()) this.raise(this.start, "no method");
    if (methods.has(method)) this.raise(this.start, "two handlers for one method");
    methods.add(method);
    this.next();
    this.body("handler", FUNCTION | ASYNC, ["query", "response"], () => this.parseStatement(null));
  }

  hasNewlineBefore() { return !this.sameLine(this.lastTokEnd, this.start); }

  state(context) {
    if (!["service", "resource", "handler"].includes(this.top())) this.raise(this.start, "state elsewhere");
    if (context) this.raise(this.start, "state on a condition");
    const node = this.startNode();
    this.note("state", this.start);
    this.next();
    if (this.type.label !== "name") this.raise(this.start, "a state needs a name");
    this.parseVar(node, false, "let");
    this.semicolon();
    return this.finishNode(node, "State");
  }

  respond(at, sameLine, char, sure) {
    const ours = this.inService() && !this.respondIsName;
    const could = /^(?:[`([!~]|[+-](?![+=-])|\/(?![/*]))/.test(this.input.slice(at, at + 2));
    const not = /^(?:!=|~=)/.test(this.input.slice(at, at + 2));
    const always = sameLine && !not && /[!~]/.test(char);
    if (!(sameLine && (sure || always || (could && ours)))) {
      if (ours && (!sameLine || char === ";" || char === "}")) this.raise(this.start, "no value");
      return false;
    }
    if (!this.inHandler()) this.raise(this.start, "`respond` elsewhere");
    const node = this.startNode();
    this.note("respond", this.start);
    // The value is read like the operand of `throw`.
    this.exprAllowed = true;
    this.type = tokTypes._throw;
    this.next();
    const value = this.parseExpression();
    for (const { type, start } of this.bodies(value)) {
      if (/^(?:Function|ArrowFunction|Class)Expression$/.test(type)) this.raise(start, "a function is not a response");
    }
    this.semicolon();
    return this.finishNode(node, "Respond");
  }

  // Returns the bodies of `{ 404: { body: .. } }`, or the value itself.
  bodies(value) {
    const members = value.type === "ObjectExpression" ? value.properties : [];
    const [only] = members, status = only?.key?.value;
    const isNumber = Number.isInteger(status) && status >= 100 && status < 600 && !only.computed;
    if (members.length !== 1 || !isNumber || only.value.type !== "ObjectExpression") return [value];
    const named = only.value.properties.filter(({ key, computed }) => !computed && (key?.name ?? key?.value) === "body");
    return named.map(({ value }) => value);
  }

  mayRunHere() {
    if (!this.inHandler() && this.top() !== "function") this.raise(this.start, "statements are only allowed in a handler");
  }

  par() {
    this.mayRunHere();
    const node = this.startNode();
    this.note("par", this.start);
    this.next();
    if (this.type.label !== "{") this.raise(this.start, "`par` without braces");
    this.context[this.context.length - 1] = tokContexts.b_stat;
    this.parseBlock();
    return this.finishNode(node, "Par");
  }

  pfor(at) {
    const first = this.skipGap(at + 1), word = this.wordAt(first);
    if (word !== "var") {
      const probe = this.input.slice(first);
      const name = /^[\w$]+\s+(of|in)\b/.exec(probe);
      if (["let", "const"].includes(word) || (name && name[1] === "of")) this.raise(first, "`pfor` has one form");
      if (!name) return false;
      const close = this.closing(at), next = this.skipGap(close);
      if (!this.sameLine(close, next) || !(this.beginsOperand(next) || this.input.charAt(next) === "{")) return false;
      this.raise(first, "`pfor` declares its variable");
    }
    this.mayRunHere();
    const node = this.startNode();
    this.note("pfor", this.start);
    this.next();
    this.context[this.context.length - 1] = tokContexts.p_stat;
    this.enterScope(0);
    this.next();
    this.next();
    const id = this.parseIdent();
    this.declareName(id.name, 2, id.start);
    if (this.type.label !== "in") this.unexpected();
    this.next();
    this.parseExpression();
    if (this.type.label !== ")") this.unexpected();
    this.next();
    this.labels.push({ kind: "loop" });
    this.parseStatement("for");
    this.labels.pop();
    this.exitScope();
    return this.finishNode(node, "Pfor");
  }

  // Returns the offset after the parenthesis that closes the one at `at`. Ignores strings, which do not occur
  // here.
  closing(at) {
    let depth = 0;
    for (let i = at; i < this.input.length; i++) {
      if (this.input[i] === "(") depth += 1;
      if (this.input[i] === ")" && --depth === 0) return i + 1;
    }
    return this.input.length;
  }

  parseReturnStatement(node) {
    if (["service", "resource"].includes(this.top())) this.raise(this.start, "`return` elsewhere");
    return super.parseReturnStatement(node);
  }

  parseFunctionBody(...rest) {
    this.frames.push("function");
    const body = super.parseFunctionBody(...rest);
    this.frames.pop();
    return body;
  }

  parseClassStaticBlock(node) {
    this.frames.push("function");
    const block = super.parseClassStaticBlock(node);
    this.frames.pop();
    return block;
  }
}

// Returns acorn's opinion on a text: `{ accepted, error, constructs: [[kind, line, column], ..] }`, columns
// from 1.
export function opinion(source) {
  const options = { ecmaVersion: "latest", sourceType: "module", allowHashBang: true };
  const parser = new S(options, source);
  const constructs = () => {
    parser.found.sort((a, b) => a.start - b.start);
    return parser.found.map(({ kind, start }) => {
      const { line, column } = getLineInfo(source, start);
      return [kind, line, [...source.slice(start - column, start)].length + 1];
    });
  };
  try {
    parser.parse();
    return { accepted: true, error: "", constructs: constructs() };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { accepted: false, error: error.message, constructs: [] };
  }
}
