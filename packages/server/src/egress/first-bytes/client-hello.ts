/**
 * The server name in the first flight of a TLS client (RFC 8446, 5.1 and 4.1.2; RFC 6066, 3). The hello may come in any
 * chunks and be split over records; it is put together within fixed bounds and read once, when it is whole.
 *
 *   record header (5) → fragment → … → handshake message whole → parsed
 *
 * Stricter than a server has to be, so that no server reads another name than we do: extensions do not repeat, the name
 * list has one entry, lengths add up exactly, and nothing follows the hello in its record.
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
/** Clients that hide the name by splitting their hello use a few records; one byte in each is an attack on us. */
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
  /** `encryptedName`: an ECH or ESNI extension is there (browsers send a meaningless one too); `name` is the outer one. */
  | { kind: 'tls'; name: string | undefined; encryptedName: boolean }
  | { kind: 'not-tls' }
  | { kind: 'malformed'; fault: ClientHelloFault };

const NEEDS_MORE: ClientHelloResult = { kind: 'needs-more' };

export class ClientHelloReader {
  readonly #header = Buffer.alloc(RECORD_HEADER_BYTES);
  #headerBytes = 0;
  #recordCount = 0;
  /** Of the current record. */
  #bytesLeft = 0;
  #message = Buffer.alloc(0);
  #messageBytes = 0;
  #result: ClientHelloResult = NEEDS_MORE;

  /** Once the result is another than `needs-more` it stays, and further bytes are not looked at. */
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
    // By the record's declared end, not by what has come of it: the verdict is not to depend on chunking.
    if (this.#messageBytes + this.#bytesLeft > end) return malformed('structure');
    if (this.#messageBytes < end) return NEEDS_MORE;
    return parseClientHello(this.#message.subarray(HANDSHAKE_HEADER_BYTES, end)) ?? malformed('structure');
  }

  /** The buffer doubles, so that copying stays linear. A record's bound and the check of the length bound it. */
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

/** Byte by byte, so that a client of another protocol that waits for its answer is not waited for. */
function judgeHeader(header: Buffer, isFirst: boolean): ClientHelloResult {
  const [type = 0, major] = header;
  if (isFirst && (type & 0x80) !== 0) return judgeOldHeader(header);
  const otherwise: ClientHelloResult = isFirst ? { kind: 'not-tls' } : malformed('record');
  if (type !== HANDSHAKE_RECORD || (major !== undefined && major !== MAJOR_VERSION)) return otherwise;
  if (header.length < RECORD_HEADER_BYTES) return NEEDS_MORE;
  const length = header.readUInt16BE(3);
  // Empty handshake records are forbidden, and would be a way to make us wait for ever.
  return length === 0 || length > MAX_RECORD_BYTES ? malformed('record') : NEEDS_MORE;
}

/** A hello in SSL 2 framing: a length with its first bit set, the message type 1, a version. It can carry no name. */
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
