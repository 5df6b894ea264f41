/**
 * Reads the first bytes of a guest on a connection and finds the name in them. Both readers read the same bytes; the
 * first that recognizes its protocol decides. The bytes are kept and are forwarded if the connection is allowed.
 *
 *   bytes → named | unnamed | refused
 *   silence → unnamed, but reading continues: a late name is refused, because another address has been dialled
 *
 * Without that last rule a guest could bypass name rules by holding its first bytes back until the wait is over.
 */
import { ClientHelloReader, type ClientHelloFault, type ClientHelloResult } from './client-hello.ts';
import type { Host } from '../names/host-name.ts';
import { HttpHeadReader, type HttpFault, type HttpHeadResult } from './http-head.ts';

type FirstBytesProtocol = 'tls' | 'http' | 'h2c' | 'other';

type FirstBytesRefusal =
  | `tls-${ClientHelloFault}`
  | `http-${HttpFault}`
  | 'proxy-request'
  /** The bytes start a hello or a request but do not complete it. */
  | 'incomplete'
  /** A name arrived after the connection was judged without one. */
  | 'late-name';

export type FirstBytesResult =
  | { kind: 'needs-more' }
  /** `host` may be an address literal of a Host field: not a name, but the destination that the guest requested. */
  | { kind: 'named'; protocol: 'tls' | 'http'; host: Host; encryptedName: boolean }
  /** No name can be found. The connection is judged by its address alone. */
  | { kind: 'unnamed'; protocol: FirstBytesProtocol; encryptedName: boolean }
  | { kind: 'refused'; reason: FirstBytesRefusal };

const NEEDS_MORE: FirstBytesResult = { kind: 'needs-more' };

/** The reader described above. */
export class FirstBytesReader {
  readonly #hello = new ClientHelloReader();
  readonly #head = new HttpHeadReader();
  #chunks: Uint8Array[] = [];
  #hasBytes = false;
  #wasSilent = false;
  #result: FirstBytesResult = NEEDS_MORE;

  /**
   * Reads a chunk. Hold the bytes back while the result is `needs-more`. Do not call it after bytes decided the result.
   */
  push(chunk: Uint8Array): FirstBytesResult {
    if (chunk.length === 0) return this.#result;
    this.#chunks.push(chunk);
    if (this.#result.kind !== 'needs-more' && !this.#isListeningOn()) return this.#result;
    this.#hasBytes = true;
    this.#result = this.#judge(this.#hello.push(chunk), this.#head.push(chunk));
    return this.#result;
  }

  /** Ends the wait: its time is over (see `planFirstBytesWait`), or the guest has closed its direction. */
  endWait(): FirstBytesResult {
    if (this.#result.kind !== 'needs-more') return this.#result;
    this.#wasSilent ||= !this.#hasBytes;
    this.#result = this.#hasBytes
      ? { kind: 'refused', reason: 'incomplete' }
      : { kind: 'unnamed', protocol: 'other', encryptedName: false };
    return this.#result;
  }

  /** Returns the bytes pushed since the last call. Their size is bounded by the readers' limits and one chunk. */
  takeBytes(): Buffer {
    const bytes = Buffer.concat(this.#chunks);
    this.#chunks = [];
    return bytes;
  }

  /** Returns true if the wait ended in silence and the first bytes have not yet arrived. */
  #isListeningOn(): boolean {
    return this.#wasSilent && !this.#hasBytes;
  }

  #judge(hello: ClientHelloResult, head: HttpHeadResult): FirstBytesResult {
    const verdict = judge(hello, head);
    if (!this.#wasSilent || verdict.kind === 'refused' || verdict.kind === 'needs-more') return verdict;
    return verdict.kind === 'named' ? { kind: 'refused', reason: 'late-name' } : verdict;
  }
}

/** Combines both results. No byte starts both a hello and a request, so at most one reader recognizes its protocol. */
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
