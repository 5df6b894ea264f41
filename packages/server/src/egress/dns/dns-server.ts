/**
 * The only resolver of a guest. It listens on the resolver address of the instance, on kernel-chosen ports to which the
 * ruleset translates port 53. `GuestAnswers` decides the answers; this server enforces the limits of each guest.
 *
 * A question over a guest's quota is dropped and not refused, so that the guest waits for its own retry timer.
 */
import { once } from 'node:events';
import { createSocket, type RemoteInfo, type Socket as UdpSocket } from 'node:dgram';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import type { Logger } from 'pino';
import type { Transport } from './dns-exchange.ts';
import { MAX_DNS_QUERY_BYTES } from './dns-query.ts';
import { DnsStreamDecoder, encodeStreamMessage } from './dns-stream.ts';
import type { GuestQuota } from './guest-quota.ts';

const MAX_IN_FLIGHT = 1024;
const MAX_CONNECTIONS = 512;
/** Closes idle and slow TCP connections. It also limits how long a pipelined question waits to be read. */
const CONNECTION_IDLE_MS = 10_000;

/** Answers a question. Resolves with undefined when the guest gets no answer. */
type AnswerQuestion = (
  transport: Transport,
  query: Buffer,
  guestAddress: string,
) => Promise<Buffer | undefined>;

export interface DnsServerOptions {
  /** Address to listen on. */
  address: string;
  answer: AnswerQuestion;
  quota: GuestQuota;
  log: Logger;
}

/** The server described above. */
export class DnsServer implements AsyncDisposable {
  readonly #options: DnsServerOptions;
  readonly #udp: UdpSocket;
  readonly #tcp: Server;
  readonly #connections = new Set<Socket>();
  #inFlight = 0;

  private constructor(options: DnsServerOptions) {
    this.#options = options;
    this.#udp = createSocket('udp4');
    this.#tcp = createServer({ allowHalfOpen: true }, (socket) => this.#serveConnection(socket));
    this.#tcp.maxConnections = MAX_CONNECTIONS;
  }

  static async listen(options: DnsServerOptions): Promise<DnsServer> {
    const server = new DnsServer(options);
    await server.#listen();
    return server;
  }

  get ports(): { udp: number; tcp: number } {
    return { udp: this.#udp.address().port, tcp: (this.#tcp.address() as AddressInfo).port };
  }

  /** Closes the connections of a guest and deletes its quota, when its address becomes free. */
  forgetGuest(address: string): void {
    this.#options.quota.forget(address);
    for (const socket of this.#connections) if (socket.remoteAddress === address) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#connections) socket.destroy();
    const closed = [once(this.#udp, 'close'), once(this.#tcp, 'close')];
    this.#udp.close();
    this.#tcp.close();
    await Promise.all(closed);
  }

  async #listen(): Promise<void> {
    const { address, log } = this.#options;
    this.#udp.bind({ address, port: 0, exclusive: true });
    this.#tcp.listen({ host: address, port: 0, exclusive: true });
    await Promise.all([once(this.#udp, 'listening'), once(this.#tcp, 'listening')]);
    this.#udp.on('error', (error) => log.warn({ err: error }, 'DNS server: UDP socket'));
    this.#tcp.on('error', (error) => log.warn({ err: error }, 'DNS server: TCP socket'));
    this.#udp.on('message', (message, from) => void this.#serveDatagram(message, from));
  }

  async #serveDatagram(query: Buffer, from: RemoteInfo): Promise<void> {
    const answer = await this.#answer('udp', query, from.address);
    if (answer === undefined) return;
    this.#udp.send(answer, from.port, from.address, (error) => {
      if (error !== null) this.#options.log.debug({ err: error, guest: from.address }, 'DNS answer not sent');
    });
  }

  #serveConnection(socket: Socket): void {
    const guest = socket.remoteAddress ?? '';
    const giveBack = this.#options.quota.takeConnection(guest);
    if (giveBack === undefined) {
      socket.destroy();
      return;
    }
    this.#connections.add(socket);
    socket.setTimeout(CONNECTION_IDLE_MS, () => socket.destroy());
    socket.on('close', () => {
      this.#connections.delete(socket);
      giveBack();
    });
    pipeline(socket, (chunks: AsyncIterable<Buffer>) => this.#answerStream(chunks, guest), socket).catch(
      (error: unknown) => this.#options.log.debug({ err: error, guest }, 'DNS connection'),
    );
  }

  /** Answers one question at a time. Pipelined questions wait in the guest's socket. */
  async *#answerStream(chunks: AsyncIterable<Buffer>, guest: string): AsyncGenerator<Buffer> {
    const decoder = new DnsStreamDecoder(MAX_DNS_QUERY_BYTES);
    for await (const chunk of chunks) {
      for (const query of decoder.push(chunk)) {
        const answer = await this.#answer('tcp', query, guest);
        if (answer === undefined) return;
        yield encodeStreamMessage(answer);
      }
    }
  }

  async #answer(transport: Transport, query: Buffer, guest: string): Promise<Buffer | undefined> {
    if (query.length > MAX_DNS_QUERY_BYTES || this.#inFlight >= MAX_IN_FLIGHT) return undefined;
    const giveBack = this.#options.quota.takeQuestion(guest);
    if (giveBack === undefined) return undefined;
    this.#inFlight += 1;
    try {
      return await this.#options.answer(transport, query, guest);
    } finally {
      this.#inFlight -= 1;
      giveBack();
    }
  }
}
