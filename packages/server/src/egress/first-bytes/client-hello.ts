/**
 * Reads the server name from the first flight of a TLS client (RFC 8446, 5.1 and 4.1.2; RFC 6066, 3). The hello may
 * arrive in any chunks and may be split over records. The reader assembles it within fixed bounds and parses it once,
 * when it is complete.
 *
 *   record header (5) → fragment → … → complete handshake message → parsed
 *
 * The parser is stricter than servers have to be, so that no server reads another name: extensions must not repeat, the
 * name list has one entry, lengths add up exactly, and nothing follows the hello in its record.
 */
import { parseClientHello } from './client-hello-body.ts';

const RECORD_HEADER_BYTES = 5;
const HANDSHAKE_HEADER_BYTES = 4;
const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const MAJOR_VERSION = 3;
const MAX_RECORD_BYTES = 0x40_00;
/** A hello with the largest key shares in use takes under 4 KiB. */
export const MAX_CLIENT_HELLO_BYTES = 16 * 1024;
/**
 * Clients that split their hello to hide the name use a few records. One byte per record is an attack on this reader.
 */
export const MAX_CLIENT_HELLO_RECORDS = 16;

export type ClientHelloFault =
  | 'sslv2'
  | 'record'
  | 'not-a-client-hello'
  | 'too-large'
  | 'too-many-records'
  | 'structure'
  | 'server-name';

export type ClientHelloResult =
  | { kind: 'needs-more' }
  /**
   * `encryptedName`: the hello has an ECH or ESNI extension (browsers also send meaningless ones). `name` is the outer
   * name.
   */
  | { kind: 'tls'; name: string | undefined; encryptedName: boolean }
  | { kind: 'not-tls' }
  | { kind: 'malformed'; fault: ClientHelloFault };

const NEEDS_MORE: ClientHelloResult = { kind: 'needs-more' };

/** The reader described above. */
export class ClientHelloReader {
  readonly #header = Buffer.alloc(RECORD_HEADER_BYTES);
  #headerBytes = 0;
  #recordCount = 0;
  /** Bytes left in the current record. */
  #bytesLeft = 0;
  #message = Buffer.alloc(0);
  #messageBytes = 0;
  #result: ClientHelloResult = NEEDS_MORE;

  /** Reads a chunk. A result other than `needs-more` is final, and later bytes are ignored. */
  push(chunk: Uint8Array): ClientHelloResult {
    let offset = 0;
    while (this.#result.kind === 'needs-more' && offset < chunk.length) {
      if (this.#bytesLeft === 0) this.#result = this.#readHeaderByte(chunk[offset++] ?? 0);
      else {
        const fragment = chunk.subarray(offset, offset + this.#bytesLeft);
        offset += fragment.length;
        this.#result = this.#readFragment(fragment);
      }
    }
    return this.#result;
  }

  #readHeaderByte(byte: number): ClientHelloResult {
    this.#header[this.#headerBytes++] = byte;
    const verdict = judgeHeader(this.#header.subarray(0, this.#headerBytes), this.#recordCount === 0);
    if (verdict.kind !== 'needs-more' || this.#headerBytes < RECORD_HEADER_BYTES) return verdict;
    this.#bytesLeft = this.#header.readUInt16BE(3);
    this.#headerBytes = 0;
    this.#recordCount += 1;
    return this.#recordCount > MAX_CLIENT_HELLO_RECORDS ? malformed('too-many-records') : NEEDS_MORE;
  }

  #readFragment(fragment: Uint8Array): ClientHelloResult {
    this.#append(fragment);
    this.#bytesLeft -= fragment.length;
    if (this.#message[0] !== CLIENT_HELLO) return malformed('not-a-client-hello');
    if (this.#messageBytes < HANDSHAKE_HEADER_BYTES) return NEEDS_MORE;
    const end = HANDSHAKE_HEADER_BYTES + this.#message.readUIntBE(1, 3);
    if (end > MAX_CLIENT_HELLO_BYTES) return malformed('too-large');
    // This uses the declared end of the record and not the received bytes, so that the verdict does not depend on
    // chunks.
    if (this.#messageBytes + this.#bytesLeft > end) return malformed('structure');
    if (this.#messageBytes < end) return NEEDS_MORE;
    return parseClientHello(this.#message.subarray(HANDSHAKE_HEADER_BYTES, end)) ?? malformed('structure');
  }

  /** Appends to a buffer that doubles, so that copying stays linear. The record limit and the length check bound it. */
  #append(fragment: Uint8Array): void {
    const needed = this.#messageBytes + fragment.length;
    if (needed > this.#message.length) {
      const larger = Buffer.alloc(Math.max(needed, 2 * this.#message.length));
      this.#message.copy(larger, 0, 0, this.#messageBytes);
      this.#message = larger;
    }
    this.#message.set(fragment, this.#messageBytes);
    this.#messageBytes = needed;
  }
}

/**
 * Judges the header byte by byte, so that a client of another protocol, which may wait for an answer, is found at once.
 */
function judgeHeader(header: Buffer, isFirst: boolean): ClientHelloResult {
  const [type = 0, major] = header;
  if (isFirst && (type & 0x80) !== 0) return judgeOldHeader(header);
  const otherwise: ClientHelloResult = isFirst ? { kind: 'not-tls' } : malformed('record');
  if (type !== HANDSHAKE_RECORD || (major !== undefined && major !== MAJOR_VERSION)) return otherwise;
  if (header.length < RECORD_HEADER_BYTES) return NEEDS_MORE;
  const length = header.readUInt16BE(3);
  // Empty handshake records are forbidden, and would make this reader wait forever.
  return length === 0 || length > MAX_RECORD_BYTES ? malformed('record') : NEEDS_MORE;
}

/**
 * Judges a hello in SSL 2 framing: a length with its first bit set, message type 1, a version. It cannot carry a name.
 */
function judgeOldHeader(header: Buffer): ClientHelloResult {
  const [, , type, major, minor] = header;
  if (type !== undefined && type !== CLIENT_HELLO) return { kind: 'not-tls' };
  if (major !== undefined && major !== 0 && major !== MAJOR_VERSION) return { kind: 'not-tls' };
  if (minor === undefined) return NEEDS_MORE;
  return major === MAJOR_VERSION || minor === 2 ? malformed('sslv2') : { kind: 'not-tls' };
}

function malformed(fault: ClientHelloFault): ClientHelloResult {
  return { kind: 'malformed', fault };
}
