/**
 * Reads the first request head of a plain HTTP connection (RFC 9112) byte by byte within fixed bounds, and parses it
 * once, when it is complete. The proxy relays the bytes unchanged, so they must contain nothing that a lenient server
 * could read differently: deviations that the RFC lets a server accept are refused.
 *
 *   lead → method → rest of the request line → fields → parsed
 *
 * Bytes that cannot become an HTTP request line are `not-http` as soon as that is certain.
 */
import { parseHttpHead } from './http-head-fields.ts';
import type { Authority } from '../names/host-name.ts';

export const MAX_HTTP_HEAD_BYTES = 16 * 1024;
const MAX_METHOD_BYTES = 32;
const INITIAL_BYTES = 1024;

const NUL = 0x00;
const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const DELETE = 0x7f;

export type HttpFault =
  | 'too-large'
  | 'line-ending'
  | 'control-character'
  | 'request-line'
  | 'field'
  | 'folded-field'
  | 'host'
  | 'host-mismatch'
  | 'framing';

/** The body after the head. */
export type HttpBody = { kind: 'none' } | { kind: 'length'; bytes: number } | { kind: 'chunked' };

/** A parsed request head. */
interface HttpHead {
  method: string;
  /** undefined only for HTTP/1.0, which needs no Host. */
  authority: Authority | undefined;
  body: HttpBody;
  /** True if the request offers an upgrade. If the server accepts it, another protocol follows. */
  upgrade: boolean;
  headBytes: number;
}

export type HttpHeadResult =
  | { kind: 'needs-more' }
  | ({ kind: 'http' } & HttpHead)
  /** HTTP/2 without TLS and with prior knowledge. Its names are compressed and differ between streams. */
  | { kind: 'h2c' }
  /** CONNECT: the guest treats the host, or a server, as a proxy. */
  | { kind: 'proxy-request' }
  | { kind: 'not-http' }
  | { kind: 'malformed'; fault: HttpFault };

type State = 'lead' | 'method' | 'request-line' | 'fields';

const NEEDS_MORE: HttpHeadResult = { kind: 'needs-more' };

/** The reader described above. */
export class HttpHeadReader {
  #bytes = Buffer.alloc(INITIAL_BYTES);
  #length = 0;
  #lineStart = 0;
  #hasLead = false;
  #state: State = 'lead';
  #result: HttpHeadResult = NEEDS_MORE;

  /** Reads a chunk. A result other than `needs-more` is final, and later bytes are ignored. */
  push(chunk: Uint8Array): HttpHeadResult {
    for (const byte of chunk) {
      if (this.#result.kind !== 'needs-more') break;
      this.#append(byte);
      this.#result = this.#readByte(byte);
      if (this.#result.kind === 'needs-more' && this.#length >= MAX_HTTP_HEAD_BYTES)
        this.#result = malformed('too-large');
    }
    return this.#result;
  }

  #append(byte: number): void {
    if (this.#length === this.#bytes.length)
      this.#bytes = Buffer.concat([this.#bytes], 2 * this.#bytes.length);
    this.#bytes[this.#length] = byte;
    this.#length += 1;
  }

  #readByte(byte: number): HttpHeadResult {
    if (this.#state === 'lead') return this.#readLead(byte);
    return this.#state === 'method' ? this.#readMethod(byte) : this.#readLine(byte);
  }

  /** Skips white space before a request as some servers do, so that a request after it is found and refused. */
  #readLead(byte: number): HttpHeadResult {
    if (byte === CR || byte === LF || byte === SPACE || byte === TAB) {
      this.#hasLead = true;
      return NEEDS_MORE;
    }
    this.#lineStart = this.#length - 1;
    this.#state = 'method';
    return this.#readMethod(byte);
  }

  #readMethod(byte: number): HttpHeadResult {
    const methodBytes = this.#length - 1 - this.#lineStart;
    if (isTokenByte(byte)) return methodBytes < MAX_METHOD_BYTES ? NEEDS_MORE : { kind: 'not-http' };
    if (!isBlank(byte) || methodBytes === 0) return { kind: 'not-http' };
    this.#state = 'request-line';
    return NEEDS_MORE;
  }

  #readLine(byte: number): HttpHeadResult {
    if (byte !== LF) return this.#state === 'fields' ? judgeByte(byte, this.#previousByte()) : NEEDS_MORE;
    const line = this.#bytes.toString('latin1', this.#lineStart, this.#length);
    if (this.#state === 'request-line') {
      const verdict = judgeRequestLine(line, this.#hasLead);
      if (verdict !== undefined) return verdict;
      this.#state = 'fields';
    } else if (!line.endsWith('\r\n')) return malformed('line-ending');
    this.#lineStart = this.#length;
    return line === '\r\n' ? parseHttpHead(this.#bytes.toString('latin1', 0, this.#length)) : NEEDS_MORE;
  }

  #previousByte(): number {
    return this.#bytes[this.#length - 2] ?? NUL;
  }
}

const REQUEST_LINE = /^[A-Z][A-Z-]* [\u0021-\u007e\u0080-\u00ff]+ HTTP\/1\.[01]\r\n$/u;
const H2C_PREFACE_LINE = 'PRI * HTTP/2.0\r\n';
/** A line that some server could read as a request line names a version, or has three parts and a usual method. */
const NAMES_A_VERSION = /HTTP\//iu;
const HAS_THREE_PARTS = /^(?:CONNECT|DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT|TRACE)\s+\S+\s+\S/u;

/** Judges a request line. Returns undefined if the fields must be read next. */
function judgeRequestLine(line: string, hasLead: boolean): HttpHeadResult | undefined {
  if (!NAMES_A_VERSION.test(line) && !HAS_THREE_PARTS.test(line)) return { kind: 'not-http' };
  if (line === H2C_PREFACE_LINE && !hasLead) return { kind: 'h2c' };
  if (/^CONNECT\s/iu.test(line)) return { kind: 'proxy-request' };
  return hasLead || !REQUEST_LINE.test(line) ? malformed('request-line') : undefined;
}

function judgeByte(byte: number, previous: number): HttpHeadResult {
  if (previous === CR) return malformed('line-ending');
  const isControl = byte < SPACE && byte !== TAB && byte !== CR;
  return isControl || byte === DELETE ? malformed('control-character') : NEEDS_MORE;
}

/** Returns true for bytes that some servers accept as the space of a request line (RFC 9112, 3). */
function isBlank(byte: number): boolean {
  return byte === SPACE || (byte >= TAB && byte <= CR && byte !== LF);
}

function isTokenByte(byte: number): boolean {
  return byte > SPACE && byte < DELETE && !'"(),/:;<=>?@[\\]{}'.includes(String.fromCharCode(byte));
}

function malformed(fault: HttpFault): HttpHeadResult {
  return { kind: 'malformed', fault };
}
