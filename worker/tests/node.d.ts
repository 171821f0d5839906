// Methods of Buffer that Node's types lack: the encoders on which others are based. Bun and Deno have them
// too.

declare global {
  interface Buffer {
    utf8Slice(start: number, end: number): string;
    latin1Slice(start: number, end: number): string;
    utf8Write(text: string, start: number): number;
  }
}

export {};
