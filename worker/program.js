// A program: the emitted code of one S file, evaluated, with the handlers that it registers. The code
// accesses this module as `$s`.
//
// The code is evaluated as a single expression whose first line is line 1 in stacks, so that the gateway's
// source map applies. Imports are resolved from the script's folder, as Node does for a file in it.

import { resolvePackage } from "./packages.js";
import { Resource } from "./resource.js";
import { frozen, kept } from "./values.js";
import { viewClass } from "./views.js";

const { parse, stringify } = JSON;
const { keys } = Object;
const evaluate = globalThis.eval;

export class Program {
  /** @type {Service[]} */
  services;
  /** @type {Service | undefined} the service whose handlers are being registered */
  #open;

  /**
   * @param {string} name of the file
   * @param {string} folder of the file
   * @param {{services: any[], settings?: {pfor?: number}}} descriptor
   */
  constructor(name, folder, descriptor) {
    this.name = name.replace(/\s/g, "_");
    this.folder = folder;
    /** The maximum number of concurrent units of a `pfor`. */
    this.most = descriptor.settings?.pfor ?? 64;
    this.services = descriptor.services.map((service) => new Service(this, service));
  }

  /** @param {string} code */
  async start(code) {
    const main = evaluate(`${code}\n//# sourceURL=${this.name}`);
    await main({
      import: (specifier) => import(resolvePackage(specifier, this.folder)),
      resource: (pieces) => Resource.of(pieces),
      service: (name, register) => this.#service(name, register),
      handler: (index, run) => void (this.#opened().handlers[index].run = run),
      initial: (cell, value) => void this.#opened().values.set(cell, value),
    });
    for (const service of this.services) service.check();
  }

  #service(name, register) {
    this.#open = this.services.find((service) => service.name === name);
    if (this.#open === undefined) throw new Error(`the program's descriptor has no service ${name}`);
    register();
    this.#open = undefined;
  }

  #opened() {
    if (this.#open === undefined) throw new Error("handlers can be registered only inside a service");
    return this.#open;
  }
}

export class Service {
  /** @type {Map<number, (captures: object) => unknown>} initial values of cells */
  values = new Map();

  constructor(program, { name, handlers, resources = [], cells = [] }) {
    this.program = program;
    this.name = name;
    this.resources = resources;
    /** Names of cells, for errors. */
    this.cells = cells;
    this.handlers = handlers.map(({ cells = [] }) => ({ names: cells, Cells: viewClass(cells), run: undefined }));
  }

  check() {
    const missing = this.handlers.findIndex(({ run }) => run === undefined);
    if (missing >= 0) throw new Error(`handler ${missing} of service ${this.name} has no code`);
  }

  /** Returns the initial value of a cell. */
  initial(cell, name, captures) {
    const value = this.values.get(cell)?.(captures);
    return value === undefined ? undefined : kept(value, () => name);
  }

  /** Returns the initial values of a resource's own cells, as JSON by name. */
  initials(resource, captures) {
    const values = {};
    const given = restored(captures);
    for (const { index, name } of this.resources[resource]?.cells ?? []) {
      values[name] = this.initial(index, name, given);
    }
    return stringify(values);
  }
}

/** Returns the captured variables of a nested resource as text, which only `restored` reads. */
export function snapshot(captures) {
  const values = {};
  const resources = {};
  for (const name of keys(captures)) {
    const value = captures[name];
    if (value instanceof Resource) resources[name] = value;
    else if (value !== undefined) values[name] = kept(value, () => name);
  }
  return stringify({ values, resources });
}

/** Returns the captured variables, which are immutable (rule 9). */
export function restored(text) {
  if (text === "") return {};
  const { values, resources } = parse(text);
  const captures = frozen(values);
  if (keys(resources).length === 0) return captures;
  const all = { ...captures };
  for (const name of keys(resources)) all[name] = new Resource(resources[name].pieces);
  return all;
}
