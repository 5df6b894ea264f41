/**
 * Finds the destination that a redirected connection had. The kernel keeps it with the address translation and reveals it
 * only to a process with privileges: `hostctl originals`, which the runner connects to this process and which answers
 * nothing else.
 */
import { isIPv4, Socket } from 'node:net';
import { z } from 'zod';
import { JsonLineClient } from '../../lib/streams/json-line-client.ts';

/** The kernel answers within a system call. */
const ANSWER_TIMEOUT_MS = 5000;
const MAX_PORT = 65_535;

export interface Endpoint {
  address: string;
  port: number;
}

const Found = z
  .string()
  .transform((text) => {
    const [address = '', port = ''] = text.split(':');
    return { address, port: Number(port) };
  })
  .refine(({ address, port }) => isIPv4(address) && Number.isInteger(port) && port >= 0 && port <= MAX_PORT)
  .nullable();

export class OriginalDestinations {
  readonly #client: JsonLineClient;

  constructor(client: JsonLineClient) {
    this.#client = client;
  }

  /** `descriptors` are the ends of two pipes of hostctl: its input and its output. */
  static open({ input, output }: { input: number; output: number }): OriginalDestinations {
    return new OriginalDestinations(
      new JsonLineClient({
        // Neither keeps the process alive.
        input: new Socket({ fd: output, readable: true, writable: false }).unref(),
        output: new Socket({ fd: input, readable: false, writable: true }).unref(),
        timeoutMs: ANSWER_TIMEOUT_MS,
      }),
    );
  }

  /** Settles when hostctl has ended: no connection can be judged any more. */
  get ended(): Promise<string> {
    return this.#client.ended;
  }

  /** Returns undefined for a connection that was not redirected, whose translation is gone, or that has closed. */
  async find({ localAddress, localPort, remoteAddress, remotePort }: Socket): Promise<Endpoint | undefined> {
    if (localAddress === undefined || remoteAddress === undefined) return undefined;
    const [local, remote] = [`${localAddress}:${localPort}`, `${remoteAddress}:${remotePort}`];
    const answer = await this.#client.ask('finding a destination', { op: 'original', local, remote });
    return Found.parse(answer) ?? undefined;
  }
}
