// The worker protocol: the layout of frames, and how they are read and written.
//
// u32 length of the rest | u8 type | u32 run | payload. All numbers are little endian. `text` is u32 length +
// UTF-8. `body` is u8 kind + u32 length + bytes; its kinds are 0 none, 1 text, 2 JSON, 3 bytes, 4 text in ASCII,
// 5 JSON in ASCII. Frames of one run are in order. A version is that of a group of cells.
//
// To the worker:
//  1 LOAD      run = program; text name | text folder | text descriptor | text code       -> READY or BROKEN
//  2 RUN       u32 program | u16 service | u16 handler | u8 flags (1 writer, 2 initialise) | u8 method | text path |
//              text query (JSON object or empty) | text headers (in the same form) | u32 instance (0 none) | u8 cells |
//              if any: u64 version, u64 durable, cells x u32 id, if initialising: cells x u16 index in the service |
//              body. A reader reads at `version`; a writer builds on it and produces version + 1
//  3 INSTANCE  run = instance; text captures
//  4 STATE     run = cell; u8 kind (0 whole value, 1 array of change sets, 2 unset) | u64 version | text JSON
//  5 FORGET    u8 kind (0 cell, 1 instance, 2 program) | u32 id
//  6 DONE      run; u32 call | u8 outcome (0 ok, 1 status not 2xx, 2 failed on the way, 3 pass taken over,
//              4 refused by a rule) | u16 status | text headers | text message | body
//  7 CANCEL    run; u8 kind (0 the client has disconnected: a run that is not a writer sends END;
//              1 any run is cancelled: its writes are rolled back, and it sends no further frames)
//  8 PING      run = n
// From the worker:
// 64 HELLO     u32 worker | text engine
// 65 READY     run = program
// 66 BROKEN    run = program; text message | text stack
// 67 CALL      run; u32 call | u32 site | u8 flags (1 pass: the response goes to the client; 2 unread: no code reads
//              the response, so JSON must be validated) | u8 method | text url |
//              text query (JSON object; only if the url begins with `/`; it then has no `?`) | body
// 68 ANSWER    run; u16 status (0: 200, or 204 without a body) | text headers (JSON object or empty) | body
// 69 COMMIT    run; text changes
// 70 DECLARE   run; u32 call | u32 site | u16 resource | text path | text captures | text initial values      -> DONE
// 71 END       run; u8 flags (1 answer follows, 2 changes follow, 4 no response was sent) | [u16 status |
//              text headers | body] | [text changes] | u32 microseconds
// 72 FAIL      run; u8 kind (0 threw, 1 ResourceError, 2 StateError, 3 invalid answer, 4 over its CPU time,
//              5 the request's body is not valid JSON, 6 a declaration was refused, 7 the handler damaged the worker,
//              which ends) | u32 site (0 none) | u16 status (0 none) | text message | text stack
// 73 LOG       run; u8 level (0 debug, 1 info, 2 warn, 3 error) | text
// 74 PONG      run = n
// 75 STUCK     run (0 unknown); u32 milliseconds, from the watchdog's own connection
// 76 REMOVE    run: its instance is removed by its commit
// 77 TWICE     run; text stack: the handler responded a second time, at this position
// 78 DAMAGED   run = program (0 unknown); u16 handler: code of the handler damaged the worker, which ends, but
//              none of its runs fails: the one that probably was the cause has ended
//
// A changes text is a JSON array of [slot, path, value] (set), [slot, path] (delete) and [slot, path, count, values]
// (splice, from the element at the path on), in order; an empty path is the cell itself, "length" at the end of a path
// cuts an array.

import { Buffer } from "node:buffer";

export const LOAD = 1, RUN = 2, INSTANCE = 3, STATE = 4, FORGET = 5, DONE = 6, CANCEL = 7, PING = 8;
export const HELLO = 64, READY = 65, BROKEN = 66, CALL = 67, ANSWER = 68, COMMIT = 69, DECLARE = 70, END = 71;
export const FAIL = 72, LOG = 73, PONG = 74, STUCK = 75, REMOVE = 76, TWICE = 77, DAMAGED = 78;

/** Kinds of bodies. */
export const NONE = 0, TEXT = 1, JSON_TEXT = 2, BYTES = 3, ASCII = 4, JSON_ASCII = 5;

const HEADER = 4;
/** Strings shorter than this are read and written in JavaScript: a call into the engine costs more. */
const SHORT = 24;
/** The initial size of an inbox's and an outbox's buffer. */
const KEPT = 1 << 16;
/** From this length on, the size of a string in bytes is computed rather than estimated. */
const LONG = 1 << 12;
const TWO_32 = 4294967296;

/** Reads the fields of frames. A single cursor is reused for all frames, to avoid garbage. */
export class Cursor {
  buffer = Buffer.alloc(0);
  at = 0;
  end = 0;

  u8() {
    return this.buffer[this.at++];
  }

  u16() {
    const { buffer, at } = this;
    this.at = at + 2;
    return buffer[at] | (buffer[at + 1] << 8);
  }

  u32() {
    const { buffer, at } = this;
    this.at = at + 4;
    return (buffer[at] | (buffer[at + 1] << 8) | (buffer[at + 2] << 16) | (buffer[at + 3] << 24)) >>> 0;
  }

  /** Reads a version, which is always far below 2^53. */
  u64() {
    const low = this.u32();
    return low + this.u32() * TWO_32;
  }

  text() {
    const length = this.u32();
    return length === 0 ? "" : this.string(length);
  }

  /** Reads a UTF-8 string. */
  string(length) {
    const { buffer, at } = this;
    const end = at + length;
    this.at = end;
    if (length >= SHORT) return buffer.utf8Slice(at, end);
    let text = "";
    for (let i = at; i < end; i++) {
      const byte = buffer[i];
      if (byte >= 128) return buffer.utf8Slice(at, end);
      text += String.fromCharCode(byte);
    }
    return text;
  }

  /** Reads the content of a body. Bytes are copied, since the buffer is reused. */
  content(kind) {
    const length = this.u32();
    if (kind === NONE) return undefined;
    if (kind === ASCII || kind === JSON_ASCII) {
      const from = this.at;
      this.at = from + length;
      return this.buffer.latin1Slice(from, this.at);
    }
    if (kind !== BYTES) return this.string(length);
    const bytes = new Uint8Array(length);
    bytes.set(this.buffer.subarray(this.at, this.at + length));
    this.at += length;
    return bytes;
  }
}

/**
 * Splits the incoming bytes into frames. A frame that arrived in one piece is read in place; others are
 * assembled in a reused buffer, so that large bodies create no garbage besides themselves.
 */
export class Inbox {
  /** The buffer in which a fragmented frame is assembled, beginning with its length. */
  #frame = Buffer.allocUnsafeSlow(KEPT);
  /** The number of assembled bytes; 0 if no frame is being assembled. */
  #filled = 0;
  #buffer = Buffer.alloc(0);
  #at = 0;
  #end = 0;
  /** @type {Buffer[]} chunks that arrived before the current one was consumed */
  #later = [];

  /** Adds bytes, which must remain unchanged until they are consumed. */
  push(buffer, length) {
    if (this.#at < this.#end) {
      this.#later.push(buffer);
      return;
    }
    this.#buffer = buffer;
    this.#at = 0;
    this.#end = length;
  }

  /**
   * Moves the cursor to the next frame, behind its length. Returns false if the frame is incomplete.
   * @param {Cursor} cursor
   */
  next(cursor) {
    if (this.#cut(cursor)) return true;
    if (this.#later.length === 0) return false;
    const buffer = /** @type {Buffer} */ (this.#later.shift());
    this.push(buffer, buffer.length);
    return this.next(cursor);
  }

  #cut(cursor) {
    const start = this.#at;
    const there = this.#end - start;
    if (this.#filled === 0 && there >= HEADER) {
      const end = start + HEADER + u32(this.#buffer, start);
      if (end <= this.#end) {
        this.#at = end;
        point(cursor, this.#buffer, start + HEADER, end);
        return true;
      }
    }
    return there > 0 && this.#join(cursor);
  }

  /** Appends the available bytes to the fragmented frame. */
  #join(cursor) {
    if (!this.#fill(HEADER)) return false;
    const size = HEADER + u32(this.#frame, 0);
    if (!this.#fill(size)) return false;
    this.#filled = 0;
    point(cursor, this.#frame, HEADER, size);
    return true;
  }

  #fill(size) {
    if (this.#frame.length < size) {
      const larger = Buffer.allocUnsafeSlow(size);
      this.#frame.copy(larger, 0, 0, this.#filled);
      this.#frame = larger;
    }
    const taken = Math.min(size - this.#filled, this.#end - this.#at);
    if (taken > 0) {
      this.#buffer.copy(this.#frame, this.#filled, this.#at, this.#at + taken);
      this.#filled += taken;
      this.#at += taken;
    }
    return this.#filled >= size;
  }
}

function u32(buffer, at) {
  return (buffer[at] | (buffer[at + 1] << 8) | (buffer[at + 2] << 16) | (buffer[at + 3] << 24)) >>> 0;
}

function point(cursor, buffer, at, end) {
  cursor.buffer = buffer;
  cursor.at = at;
  cursor.end = end;
}

/**
 * Collects frames, and writes them to the socket in one piece. Only finished frames are sent: a frame whose
 * writing was aborted by an exception is overwritten by the next one.
 */
export class Outbox {
  #buffer = Buffer.allocUnsafeSlow(KEPT);
  #at = 0;
  /** The end of the finished frames. */
  #end = 0;
  #socket;
  #first;

  /**
   * @param {import("node:net").Socket} socket
   * @param {() => void} first called when the outbox becomes non-empty
   */
  constructor(socket, first) {
    this.#socket = socket;
    this.#first = first;
  }

  begin(type, run) {
    if (this.#end === 0) this.#first();
    this.#at = this.#end;
    this.#room(64);
    this.#at += HEADER;
    this.#buffer[this.#at++] = type;
    this.#put(run);
    return this;
  }

  end() {
    const at = this.#at;
    this.#at = this.#end;
    this.#put(at - this.#end - HEADER);
    this.#at = this.#end = at;
  }

  u8(value) {
    this.#room(1);
    this.#buffer[this.#at++] = value;
    return this;
  }

  u16(value) {
    this.#room(2);
    this.#buffer[this.#at++] = value;
    this.#buffer[this.#at++] = value >>> 8;
    return this;
  }

  u32(value) {
    this.#room(4);
    this.#put(value);
    return this;
  }

  /** Writes a string. An unpaired surrogate becomes U+FFFD, as usual in UTF-8. */
  text(text) {
    const { length } = text;
    this.#room(4 + (length < LONG ? 3 * length : Buffer.byteLength(text)));
    const start = this.#at;
    const written = length === 0 ? 0 : this.#string(text, start + 4);
    this.#put(written);
    this.#at = start + 4 + written;
    return this;
  }

  /** @param {number} kind @param {string | Uint8Array | undefined} content */
  body(kind, content) {
    this.u8(kind);
    if (content === undefined) return this.u32(0);
    if (typeof content === "string") return this.text(content);
    this.#room(4 + content.length);
    this.#put(content.length);
    this.#buffer.set(content, this.#at);
    this.#at += content.length;
    return this;
  }

  /** Writes all collected frames, with a single system call if the socket accepts them. */
  flush() {
    if (this.#end === 0) return;
    const buffer = this.#buffer;
    this.#socket.write(buffer.subarray(0, this.#end));
    this.#end = 0;
    // A buffer that is still being written, or that a large response has enlarged, is not reused.
    if (this.#socket.writableLength > 0 || buffer.length > 16 * KEPT) this.#buffer = Buffer.allocUnsafeSlow(KEPT);
  }

  #put(value) {
    const buffer = this.#buffer;
    const at = this.#at;
    buffer[at] = value;
    buffer[at + 1] = value >>> 8;
    buffer[at + 2] = value >>> 16;
    buffer[at + 3] = value >>> 24;
    this.#at = at + 4;
  }

  #string(text, at) {
    const buffer = this.#buffer;
    const { length } = text;
    if (length >= SHORT) return buffer.utf8Write(text, at);
    for (let i = 0; i < length; i++) {
      const code = text.charCodeAt(i);
      if (code >= 128) return buffer.utf8Write(text, at);
      buffer[at + i] = code;
    }
    return length;
  }

  #room(size) {
    if (this.#buffer.length - this.#at >= size) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(2 * this.#buffer.length, this.#at + size));
    this.#buffer.copy(larger, 0, 0, this.#at);
    this.#buffer = larger;
  }
}
