// What Node's types leave out: the encoders of a Buffer that the others are made of. Bun and Deno have them too.

declare global {
  interface Buffer {
    utf8Slice(start: number, end: number): string;
    latin1Slice(start: number, end: number): string;
    utf8Write(text: string, start: number): number;
  }
}

export {};
