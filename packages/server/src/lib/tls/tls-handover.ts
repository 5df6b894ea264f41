/**
 * Hands certificate and key from the supervisor, which may read the key file, to control, which may not. They pass over
 * the IPC channel between the two processes, so that the key is in no other file, argument or environment.
 */
import { z } from 'zod';
import { withDeadline } from '../waiting/deadline.ts';
import { Secret } from '../secret.ts';
import type { TlsPair } from './tls-pair.ts';

const FIRST_PAIR_TIMEOUT_MS = 10_000;

const TlsMessage = z.object({ type: z.literal('tls'), cert: z.string(), key: z.string() });
export type TlsMessage = z.infer<typeof TlsMessage>;

export function buildTlsMessage({ cert, key }: TlsPair): TlsMessage {
  return { type: 'tls', cert, key: key.reveal() };
}

/** Control's end of the channel. */
export class TlsReceiver {
  readonly #first = Promise.withResolvers<TlsPair>();
  #latest: TlsPair | undefined;
  #follower: ((pair: TlsPair) => void) | undefined;

  constructor(channel: Pick<NodeJS.Process, 'on'>) {
    channel.on('message', (message: unknown) => this.#take(message));
  }

  /** The pair to start with. */
  first(): Promise<TlsPair> {
    return withDeadline('the certificate from the supervisor', FIRST_PAIR_TIMEOUT_MS, this.#first.promise);
  }

  /** Calls `follower` with the latest pair, if there is one, and with each later pair. */
  follow(follower: (pair: TlsPair) => void): void {
    this.#follower = follower;
    if (this.#latest !== undefined) follower(this.#latest);
  }

  #take(message: unknown): void {
    const parsed = TlsMessage.safeParse(message);
    if (!parsed.success) return;
    const { cert, key } = parsed.data;
    this.#latest = { cert, key: new Secret(key) };
    this.#first.resolve(this.#latest);
    this.#follower?.(this.#latest);
  }
}
