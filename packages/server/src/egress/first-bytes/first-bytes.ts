/**
 * What a guest says first on a connection, and which name it says. Both readers look at the same bytes; the first that
 * knows its protocol decides. The bytes are kept, to be sent on when the connection is allowed.
 *
 *   bytes → named | unnamed | refused
 *   silence → unnamed, but the reading goes on: a name that comes late is refused, for another address has been dialled
 *
 * Without that last rule a guest would only have to hold its first bytes back until the wait is over.
 */
import { ClientHelloReader, type ClientHelloFault, type ClientHelloResult } from './client-hello.ts';
import type { Host } from '../names/host-name.ts';
import { HttpHeadReader, type HttpFault, type HttpHeadResult } from './http-head.ts';

export type FirstBytesProtocol = 'tls' | 'http' | 'h2c' | 'other';

export type FirstBytesRefusal =
  | `tls-${ClientHelloFault}`
  | `http-${HttpFault}`
  | 'proxy-request'
  /** Bytes came that begin a hello or a request, and then no more. */
  | 'incomplete'
  /** A name came after the connection had been judged without one. */
  | 'late-name';

export type FirstBytesResult =
  | { kind: 'needs-more' }
  /** `host` may be an address literal (of a Host field): it names nothing, but is what the guest asked for. */
  | { kind: 'named'; protocol: 'tls' | 'http'; host: Host; encryptedName: boolean }
  /** No name can be known: to be judged by the address alone. */
  | { kind: 'unnamed'; protocol: FirstBytesProtocol; encryptedName: boolean }
  | { kind: 'refused'; reason: FirstBytesRefusal };

const NEEDS_MORE: FirstBytesResult = { kind: 'needs-more' };

export class FirstBytesReader {
  readonly #hello = new ClientHelloReader();
  readonly #head = new HttpHeadReader();
  #chunks: Uint8Array[] = [];
  #hasBytes = false;
  #wasSilent = false;
  #result: FirstBytesResult = NEEDS_MORE;

  /** Hold the bytes back while the result is `needs-more`. Once it is decided by bytes, push no more. */
  push(chunk: Uint8Array): FirstBytesResult {
    if (chunk.length === 0) return this.#result;
    this.#chunks.push(chunk);
    if (this.#result.kind !== 'needs-more' && !this.#isListeningOn()) return this.#result;
    this.#hasBytes = true;
    this.#result = this.#judge(this.#hello.push(chunk), this.#head.push(chunk));
    return this.#result;
  }

  /** The wait is over (see `planFirstBytesWait`), or the guest has ended its direction. */
  endWait(): FirstBytesResult {
    if (this.#result.kind !== 'needs-more') return this.#result;
    this.#wasSilent ||= !this.#hasBytes;
    this.#result = this.#hasBytes
      ? { kind: 'refused', reason: 'incomplete' }
      : { kind: 'unnamed', protocol: 'other', encryptedName: false };
    return this.#result;
  }

  /** All that was pushed since it was last called; bounded by the readers' limits and one chunk. */
  takeBytes(): Buffer {
    const bytes = Buffer.concat(this.#chunks);
    this.#chunks = [];
    return bytes;
  }

  /** After silence the first bytes are still to come. */
  #isListeningOn(): boolean {
    return this.#wasSilent && !this.#hasBytes;
  }

  #judge(hello: ClientHelloResult, head: HttpHeadResult): FirstBytesResult {
    const verdict = judge(hello, head);
    if (!this.#wasSilent || verdict.kind === 'refused' || verdict.kind === 'needs-more') return verdict;
    return verdict.kind === 'named' ? { kind: 'refused', reason: 'late-name' } : verdict;
  }
}

/** No byte begins both a hello and a request, so at most one of the two has something to say. */
function judge(hello: ClientHelloResult, head: HttpHeadResult): FirstBytesResult {
  return hello.kind === 'not-tls' ? judgeHead(head) : judgeHello(hello);
}

function judgeHead(head: HttpHeadResult): FirstBytesResult {
  if (head.kind === 'needs-more') return NEEDS_MORE;
  if (head.kind === 'proxy-request') return { kind: 'refused', reason: 'proxy-request' };
  if (head.kind === 'malformed') return { kind: 'refused', reason: `http-${head.fault}` };
  if (head.kind === 'http' && head.authority !== undefined)
    return { kind: 'named', protocol: 'http', host: head.authority.host, encryptedName: false };
  const protocol = head.kind === 'not-http' ? 'other' : head.kind;
  return { kind: 'unnamed', protocol, encryptedName: false };
}

function judgeHello(hello: Exclude<ClientHelloResult, { kind: 'not-tls' }>): FirstBytesResult {
  if (hello.kind === 'needs-more') return NEEDS_MORE;
  if (hello.kind === 'malformed') return { kind: 'refused', reason: `tls-${hello.fault}` };
  const { name, encryptedName } = hello;
  if (name === undefined) return { kind: 'unnamed', protocol: 'tls', encryptedName };
  return { kind: 'named', protocol: 'tls', host: { kind: 'name', name }, encryptedName };
}
