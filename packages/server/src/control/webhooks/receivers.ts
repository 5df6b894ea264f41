/**
 * Where webhooks may be sent. A tenant chooses the URL, and so could make the service reach this host, its network, or
 * the metadata of a cloud. Therefore the name is resolved once, every address is judged, and only judged addresses are
 * dialled: a name that resolves differently a moment later changes nothing.
 */
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { AppError, compileReceiverAddresses, judgeReceiver, type ReceiverVerdict } from '@coppice/contract';
import { findAddresses, type FoundAddress } from './find-addresses.ts';

const CLOSED =
  'is private, reserved or of this host; the operator opens ranges with COPPICE_WEBHOOK_OPEN_RANGES';

export interface Receiver {
  url: URL;
  /** In the order in which they are tried. */
  addresses: readonly FoundAddress[];
}

/** Why nothing is sent to a receiver. Its message is shown to the owner of the webhook. */
export class ReceiverError extends Error {}

/** Resolves a name. Throws if it has no address. */
type FindAddresses = (name: string) => Promise<FoundAddress[]>;

export class Receivers {
  readonly #openRanges: readonly string[];
  readonly #find: FindAddresses;

  /** `openRanges` are those that the operator opens for webhooks, private or loopback. */
  constructor(openRanges: readonly string[], find: FindAddresses = findAddresses) {
    this.#openRanges = openRanges;
    this.#find = find;
  }

  /** Returns the URL in its canonical spelling. Throws `invalid_request` for one that can never be sent to. */
  checkUrl(text: string): string {
    const url = URL.canParse(text) ? new URL(text) : undefined;
    if (url === undefined || !/^https?:$/u.test(url.protocol))
      throw refused('must be an address such as https://example.com/hook');
    if (url.username !== '' || url.password !== '' || url.hash !== '')
      throw refused('must not contain a user, a password or a fragment');
    if (url.protocol === 'http:' && this.#openRanges.length === 0) throw refused('must begin with https://');
    const literal = literalOf(url);
    if (literal !== undefined) {
      const problem = findProblem(url, this.#judge([literal]));
      if (problem !== undefined) throw refused(problem);
    }
    return url.href;
  }

  /** Resolves and judges a URL. Throws {@link ReceiverError}. */
  async find(text: string): Promise<Receiver> {
    const url = new URL(text);
    const literal = literalOf(url);
    const addresses =
      literal === undefined
        ? await this.#resolve(url.hostname)
        : [{ address: literal, family: isIP(literal) }];
    const problem = findProblem(url, this.#judge(addresses.map(({ address }) => address)));
    if (addresses.length === 0 || (problem === CLOSED && literal === undefined)) throw unreachable();
    if (problem !== undefined) throw new ReceiverError(`the address of the receiver ${problem}`);
    return { url, addresses };
  }

  async #resolve(name: string): Promise<FoundAddress[]> {
    try {
      return await this.#find(name);
    } catch (cause) {
      throw unreachable(cause);
    }
  }

  #judge(addresses: readonly string[]): ReceiverVerdict[] {
    const own = Object.values(networkInterfaces()).flatMap((found = []) =>
      found.filter(({ scopeid }) => scopeid === undefined || scopeid === 0).map(({ address }) => address),
    );
    const judged = compileReceiverAddresses(this.#openRanges, own);
    return addresses.map((address) => judgeReceiver(judged, address));
  }
}

/** One closed address closes the name: which one is dialled would be up to its owner. */
function findProblem({ protocol }: URL, verdicts: readonly ReceiverVerdict[]): string | undefined {
  if (verdicts.includes('closed')) return CLOSED;
  if (protocol === 'http:' && verdicts.includes('public'))
    return 'is public, so the URL must begin with https://';
  return undefined;
}

function literalOf({ hostname }: URL): string | undefined {
  const host = hostname.replace(/^\[|\]$/gu, '');
  return isIP(host) === 0 ? undefined : host;
}

/** One text for both: it would tell a tenant which names exist in the networks of the operator. */
function unreachable(cause?: unknown): ReceiverError {
  return new ReceiverError(`the host name cannot be resolved, or ${CLOSED}`, { cause });
}

function refused(problem: string): AppError {
  return new AppError('invalid_request', `url: ${problem}`);
}
