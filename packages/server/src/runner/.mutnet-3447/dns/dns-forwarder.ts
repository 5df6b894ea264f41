/**
 * The only resolver a guest has. It listens on the instance's resolver address, on ports of its own to which the
 * ruleset translates port 53, and passes messages on unread but for their header and question.
 *
 * A question over a guest's quota is dropped, not refused: the guest's own retry is then the brake.
 */
import { once } from 'node:events';
import { createSocket, type RemoteInfo, type Socket as UdpSocket } from 'node:dgram';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import type { Logger } from 'pino';
import { exchange, type Transport } from './dns-exchange.ts';
import { buildErrorAnswer, classifyQuery, RCODE } from './dns-message.ts';
import { DnsStreamDecoder, encodeStreamMessage } from './dns-stream.ts';
import { GuestQuota, type QuotaLimits } from './guest-quota.ts';
import type { UpstreamResolver } from './upstream-resolvers.ts';

const MAX_QUERY_BYTES = 4096;
const MAX_IN_FLIGHT = 1024;
const MAX_CONNECTIONS = 512;
/** An idle or slow TCP client is cut off; also the longest a pipelined question waits to be read. */
const CONNECTION_IDLE_MS = 10_000;
/** A guest's own resolver gives up after 5 s: two resolvers, each asked twice, must fit. */
const ATTEMPT_TIMEOUT_MS = 1200;
const MAX_ATTEMPTS = 4;

const DEFAULT_LIMITS: QuotaLimits = { ratePerSecond: 100, burst: 500, inFlight: 64, connections: 16 };

export interface DnsForwarderOptions {
  /** Where to listen. */
  address: string;
  listUpstreams(): Promise<readonly UpstreamResolver[]>;
  log: Logger;
  limits?: QuotaLimits;
}

export class DnsForwarder implements AsyncDisposable {
  readonly #options: DnsForwarderOptions;
  readonly #quota: GuestQuota;
  readonly #udp: UdpSocket;
  readonly #tcp: Server;
  readonly #connections = new Set<Socket>();
  #inFlight = 0;
  /** Address that answered last; asked first, so that a dead one costs its timeout only once. */
  #lastGood: string | undefined;

  private constructor(options: DnsForwarderOptions) {
    this.#options = options;
    this.#quota = new GuestQuota(options.limits ?? DEFAULT_LIMITS);
    this.#udp = createSocket('udp4');
    this.#tcp = createServer({ allowHalfOpen: true }, (socket) => this.#serveConnection(socket));
    this.#tcp.maxConnections = MAX_CONNECTIONS;
  }

  static async listen(options: DnsForwarderOptions): Promise<DnsForwarder> {
    const forwarder = new DnsForwarder(options);
    await forwarder.#listen();
    return forwarder;
  }

  get ports(): { udp: number; tcp: number } {
    return { udp: this.#udp.address().port, tcp: (this.#tcp.address() as AddressInfo).port };
  }

  /** The address has no guest any more. */
  forgetGuest(address: string): void {
    this.#quota.forget(address);
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
    this.#udp.on('error', (error) => log.warn({ err: error }, 'DNS forwarder: UDP socket'));
    this.#tcp.on('error', (error) => log.warn({ err: error }, 'DNS forwarder: TCP socket'));
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
    const giveBack = this.#quota.takeConnection(guest);
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

  /** One question at a time: what the guest pipelines waits in its socket. */
  async *#answerStream(chunks: AsyncIterable<Buffer>, guest: string): AsyncGenerator<Buffer> {
    const decoder = new DnsStreamDecoder(MAX_QUERY_BYTES);
    for await (const chunk of chunks) {
      for (const query of decoder.push(chunk)) {
        const answer = await this.#answer('tcp', query, guest);
        if (answer === undefined) return;
        yield encodeStreamMessage(answer);
      }
    }
  }

  /** undefined when the guest gets no answer. */
  async #answer(transport: Transport, query: Buffer, guest: string): Promise<Buffer | undefined> {
    const verdict = classifyQuery(query);
    if (verdict.kind === 'ignore' || query.length > MAX_QUERY_BYTES || this.#inFlight >= MAX_IN_FLIGHT)
      return undefined;
    const giveBack = this.#quota.takeQuestion(guest);
    if (giveBack === undefined) return undefined;
    this.#inFlight += 1;
    try {
      if (verdict.kind === 'refuse') return buildErrorAnswer(query, verdict.rcode);
      return (await this.#forward(transport, query)) ?? buildErrorAnswer(query, RCODE.serverFailure);
    } finally {
      this.#inFlight -= 1;
      giveBack();
    }
  }

  async #forward(transport: Transport, query: Buffer): Promise<Buffer | undefined> {
    for (const upstream of await this.#attempts()) {
      try {
        const answer = await exchange(transport, upstream, query, ATTEMPT_TIMEOUT_MS);
        this.#lastGood = upstream.address;
        return answer;
      } catch (error) {
        this.#options.log.debug(
          { err: error, upstream: upstream.address },
          'no answer from upstream resolver',
        );
      }
    }
    return undefined;
  }

  async #attempts(): Promise<UpstreamResolver[]> {
    const known = await this.#listUpstreams();
    const isLastGood = (upstream: UpstreamResolver) => upstream.address === this.#lastGood;
    const ordered = [...known.filter(isLastGood), ...known.filter((upstream) => !isLastGood(upstream))];
    return [...ordered, ...ordered].slice(0, MAX_ATTEMPTS);
  }

  async #listUpstreams(): Promise<readonly UpstreamResolver[]> {
    try {
      return await this.#options.listUpstreams();
    } catch (error) {
      this.#options.log.warn({ err: error }, "the host's DNS resolvers cannot be read");
      return [];
    }
  }
}
