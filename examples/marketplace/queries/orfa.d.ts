// What a program gets as its second parameter, for an editor; at run time nothing of this is needed.
type Json = any;
type Params = Record<string, string | number | boolean>;

/** One upstream service. An answer that is not 2xx throws a ServiceError. */
export interface Service {
  /** `{id}` in the path is filled from `params`, the rest becomes the URL's query. */
  get(path: string, params?: Params): Promise<Json>;
  post(path: string, body?: Json): Promise<Json>;
  put(path: string, body?: Json): Promise<Json>;
  patch(path: string, body?: Json): Promise<Json>;
  delete(path: string, params?: Params): Promise<Json>;
  /** The standard fetch, with a path of this service. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
}

/** The services that the route opens to programs, by name. */
export type Services = Record<string, Service>;
