/**
 * The first request head of a plain HTTP connection (RFC 9112), taken byte by byte within fixed bounds and read once,
 * when it is whole. What is relayed are the bytes themselves, so nothing may be in them that a lenient server could read
 * in another way than we do: what the RFC lets a server forgive is refused here.
 *
 *   lead → method → rest of the request line → fields → parsed
 *
 * Anything that does not become an HTTP request line is `not-http`, as soon as that is certain.
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

/** What follows the head and is its body. */
export type HttpBody = { kind: 'none' } | { kind: 'length'; bytes: number } | { kind: 'chunked' };

export interface HttpHead {
  method: string;
  /** undefined only for HTTP/1.0, which needs no Host. */
  authority: Authority | undefined;
  body: HttpBody;
  /** After an answer that agrees, what follows is another protocol. */
  upgrade: boolean;
  headBytes: number;
}

export type HttpHeadResult =
  | { kind: 'needs-more' }
  | ({ kind: 'http' } & HttpHead)
  /** HTTP/2 without TLS and with prior knowledge: its names are compressed and change from stream to stream. */
  | { kind: 'h2c' }
  /** CONNECT: the guest takes us, or a server, for a proxy. */
  | { kind: 'proxy-request' }
  | { kind: 'not-http' }
  | { kind: 'malformed'; fault: HttpFault };

type State = 'lead' | 'method' | 'request-line' | 'fields';

const NEEDS_MORE: HttpHeadResult = { kind: 'needs-more' };

export class HttpHeadReader {
  #bytes = Buffer.alloc(INITIAL_BYTES);
  #length = 0;
  #lineStart = 0;
  #hasLead = false;
  #state: State = 'lead';
  #result: HttpHeadResult = NEEDS_MORE;

  /** Once the result is another than `needs-more` it stays, and further bytes are not looked at. */
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

  /** Some servers skip white space before a request: it is skipped here too, to refuse what follows. */
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
/** What some server could take for a request line: it names a version, or has the three parts and a usual method. */
const NAMES_A_VERSION = /HTTP\//iu;
const HAS_THREE_PARTS = /^(?:CONNECT|DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT|TRACE)\s+\S+\s+\S/u;

/** undefined when the fields that follow are to be read. */
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

/** What servers have been seen to take for the space of a request line (RFC 9112, 3). */
function isBlank(byte: number): boolean {
  return byte === SPACE || (byte >= TAB && byte <= CR && byte !== LF);
}

function isTokenByte(byte: number): boolean {
  return byte > SPACE && byte < DELETE && !'"(),/:;<=>?@[\\]{}'.includes(String.fromCharCode(byte));
}

function malformed(fault: HttpFault): HttpHeadResult {
  return { kind: 'malformed', fault };
}
