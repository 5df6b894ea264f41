/**
 * The credential proxy with a guest at 127.0.0.1, servers for the names of services, and a captured log. Every test
 * fails if the secret occurs in the log, in a note or in data that the guest received.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import {
  request as sendRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestOptions,
} from 'node:http';
import { connect, type Socket } from 'node:net';
import { inspect } from 'node:util';
import { pino } from 'pino';
import { BUILTIN_SERVICES } from '../../../lib/credential-services/builtin-services.ts';
import { CredentialService } from '../../../lib/credential-services/credential-service.ts';
import { pollUntil } from '../../../lib/waiting/deadline.ts';
import type { ToldGrant } from '../request/compile-grants.ts';
import { CredentialProxy } from '../credential-proxy.ts';
import type { ProxyLimits } from '../request/proxy-limits.ts';
import { TestGuest, TestGuests } from './test-guest.ts';
import { VendorNetwork } from './vendor-server.ts';

/** Secret that tests look for where no secret may occur. */
export const CANARY = 'sk-canary-7f3a9b1c5d';
const TIMEOUT_MS = 5_000;

export interface Answered {
  status: number;
  headers: IncomingHttpHeaders;
  rawHeaders: string[];
  trailers: NodeJS.Dict<string>;
  body: string;
}

export interface Asked extends RequestOptions {
  body?: string | Buffer;
}

export class ProxyFixture implements AsyncDisposable {
  readonly guest = new TestGuest('127.0.0.1');
  /** A guest without grants. */
  readonly other = new TestGuest('127.0.0.2');
  readonly network = new VendorNetwork();
  readonly log: string[] = [];
  readonly #received: string[] = [];
  readonly #clients: RawClient[] = [];
  #proxy: CredentialProxy | undefined;

  static async start(limits: Partial<ProxyLimits> = {}): Promise<ProxyFixture> {
    const fixture = new ProxyFixture();
    fixture.#proxy = await CredentialProxy.listen({
      address: '127.0.0.1',
      guests: new TestGuests(fixture.guest, fixture.other),
      upstream: fixture.network,
      trust: fixture.network.trust,
      log: pino({ level: 'trace' }, { write: (line: string) => void fixture.log.push(line) }),
      limits,
    });
    return fixture;
  }

  get port(): number {
    return this.#proxy?.port ?? 0;
  }

  url(path: string): string {
    return `http://127.0.0.1:${this.port}/proxy/${path}`;
  }

  async ask(path: string, { body, ...options }: Asked = {}): Promise<Answered> {
    const request = sendRequest(this.url(path), { agent: false, timeout: TIMEOUT_MS, ...options });
    request.once('timeout', () => request.destroy(new Error('no answer in time')));
    request.end(body);
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    const answer = {
      status: response.statusCode ?? 0,
      headers: response.headers,
      rawHeaders: response.rawHeaders,
      trailers: response.trailers,
      body: Buffer.concat(chunks).toString(),
    };
    this.#received.push(JSON.stringify(answer));
    return answer;
  }

  /** Opens a connection on which the test writes raw bytes. */
  async open(localAddress = '127.0.0.1'): Promise<RawClient> {
    const socket = connect({ port: this.port, host: '127.0.0.1', localAddress });
    const client = new RawClient(socket);
    this.#clients.push(client);
    await once(socket, 'connect');
    return client;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#proxy?.[Symbol.asyncDispose]();
    await this.network[Symbol.asyncDispose]();
    for (const text of [...this.log, ...this.#received, ...this.#clients.map(({ received }) => received)])
      assert.ok(!text.includes(CANARY), 'the secret was revealed');
    assert.ok(!inspect(this.guest.notes, { depth: 9 }).includes(CANARY), 'the secret was noted');
  }
}

export class RawClient {
  readonly socket: Socket;
  received = '';
  isClosed = false;

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => (this.received += chunk.toString('latin1')));
    socket.on('error', () => (this.isClosed = true));
    socket.on('close', () => (this.isClosed = true));
  }

  write(text: string): void {
    this.socket.write(text, 'latin1');
  }

  async until(expected: RegExp): Promise<string> {
    await waitFor(`${String(expected)} in ${JSON.stringify(this.received)}`, () =>
      expected.test(this.received),
    );
    return this.received;
  }

  async closed(): Promise<string> {
    await waitFor('end of the connection', () => this.isClosed);
    return this.received;
  }
}

export async function waitFor(step: string, check: () => boolean): Promise<void> {
  await pollUntil({ step, timeoutMs: TIMEOUT_MS, intervalMs: 5 }, () => (check() ? true : undefined));
}

export function grantOf(service: string, more: Partial<ToldGrant> = {}): ToldGrant {
  return { service: serviceOf(service), endpoints: null, secret: CANARY, ...more };
}

export function serviceOf(name: string): CredentialService {
  const service = BUILTIN_SERVICES.find((one) => one.name === name);
  if (service !== undefined) return service;
  return CredentialService.parse({
    name,
    host: `api.${name}.example`,
    authentication: { kind: 'basic', username: 'x-access-token' },
  });
}
