/**
 * Serves the requests of a client from memory.
 *
 *     client ──► fetch ──► key ──► injected error ──► route ──► repeated Idempotency-Key ──► state
 *                                                       └──► CoppiceError `not_mocked`
 */
import { AppError } from '@coppice/contract';
import type { ServiceErrorCode } from '../transport/errors.ts';
import type { FetchFunction } from '../transport/client-options.ts';
import { exec, streamExec } from './exec-routes.ts';
import { downloadFile, listFiles, uploadFile } from './file-routes.ts';
import { answerError, type MockRequest } from './mock-request.ts';
import { MockState } from './mock-state.ts';
import type { ExecHandler } from './mock-types.ts';
import { refuse } from './refusal.ts';
import * as sandboxes from './sandbox-routes.ts';
import * as snapshots from './snapshot-routes.ts';

const API_KEY = `cop_live_us_${'0'.repeat(40)}`;
const BASE_URL = 'http://127.0.0.1:1';

type Route = (request: MockRequest) => Response | Promise<Response>;

/** A variable segment is written as `*`. */
const ROUTES: Readonly<Record<string, Route>> = {
  'POST /v1/runs': sandboxes.createSandbox,
  'GET /v1/runs': sandboxes.listSandboxes,
  'POST /v1/runs/restore': sandboxes.restoreSandbox,
  'GET /v1/runs/*': sandboxes.getSandbox,
  'PATCH /v1/runs/*': sandboxes.patchSandbox,
  'DELETE /v1/runs/*': sandboxes.destroySandbox,
  'POST /v1/runs/*/hibernate': sandboxes.hibernateSandbox,
  'POST /v1/runs/*/resume': sandboxes.resumeSandbox,
  'POST /v1/runs/*/fork': sandboxes.forkSandbox,
  'POST /v1/runs/*/snapshot': snapshots.takeSnapshot,
  'POST /v1/runs/*/rollback': snapshots.rollBack,
  'GET /v1/snapshots': snapshots.listSnapshots,
  'GET /v1/snapshots/*': snapshots.getSnapshot,
  'PATCH /v1/snapshots/*': snapshots.patchSnapshot,
  'DELETE /v1/snapshots/*': snapshots.deleteSnapshot,
  'POST /v1/runs/*/exec': exec,
  'POST /v1/runs/*/exec/stream': streamExec,
  'POST /v1/runs/*/files/upload': uploadFile,
  'GET /v1/runs/*/files/download': downloadFile,
  'GET /v1/runs/*/files': listFiles,
};

/** Options of the mock. */
export interface MockOptions {
  /** Decides what commands of `exec()` and `stream()` do. Without it they reject with code `not_mocked`. */
  onExec?: ExecHandler | undefined;
}

/** A request that the mock received. */
export interface SeenRequest {
  /** HTTP method. */
  method: string;
  /** Path with its query. */
  path: string;
}

interface Repeatable {
  body: string;
  answer: Promise<Response>;
}

/**
 * A service in memory, for unit tests of programs that use the client. It replaces only HTTP: the client, its checks and
 * its errors are the real ones, and requests are checked by the schemas of the service. It has sandboxes with their
 * states and copies, snapshots, files, and commands whose results your test decides. All else rejects with code
 * `not_mocked`: shells, terminals, SSH, spawned commands, ports, disks, images, usage and the audit logs.
 *
 * It has no virtual machines, no time limits and no quotas. Test what depends on these with a real service.
 *
 * @example
 * const service = new MockService({ onExec: ({ command }) => ({ stdout: `ran ${command}\n` }) });
 * const client = new Coppice(service.clientOptions);
 * const sandbox = await client.sandboxes.create({ name: 'test' });
 * console.log((await sandbox.exec('make')).stdout);
 */
export class MockService {
  /** Options of a client that uses this mock: `new Coppice(service.clientOptions)`. */
  readonly clientOptions: Readonly<{ apiKey: string; baseUrl: string; fetch: FetchFunction }>;
  /** The requests so far, oldest first. */
  readonly requests: SeenRequest[] = [];
  readonly #state = new MockState();
  readonly #onExec: ExecHandler | undefined;
  readonly #failures: AppError[] = [];
  readonly #repeatable = new Map<string, Repeatable>();

  constructor(options: MockOptions = {}) {
    this.#onExec = options.onExec;
    const fetch: FetchFunction = (url, init) => this.#fetch(url, init);
    this.clientOptions = { apiKey: API_KEY, baseUrl: BASE_URL, fetch };
  }

  /**
   * Makes the next request fail with an error of the service, before it has an effect. Several calls are served in turn.
   *
   * @example
   * const service = new MockService();
   * service.failNext('capacity');
   * const client = new Coppice(service.clientOptions);
   * await client.sandboxes.create().catch((error) => console.log(error.code)); // capacity
   */
  failNext(code: ServiceErrorCode, message = `failNext('${code}')`): void {
    this.#failures.push(new AppError(code, message));
  }

  async #fetch(address: string, init: RequestInit): Promise<Response> {
    const signal = init.signal ?? undefined;
    signal?.throwIfAborted();
    const url = new URL(address);
    const method = init.method ?? 'GET';
    this.requests.push({ method, path: `${url.pathname}${url.search}` });
    const body = new Uint8Array(await new Response(init.body ?? null).arrayBuffer());
    const headers = new Headers(init.headers);
    const { route, ids } = findRoute(method, url.pathname);
    const request = { method, path: url.pathname, query: url.searchParams, body, signal, ids };
    const answering = this.#answer({ ...request, state: this.#state, onExec: this.#onExec }, route, headers);
    return signal === undefined ? answering : untilAborted(answering, signal);
  }

  async #answer(request: MockRequest, route: Route, headers: Headers): Promise<Response> {
    try {
      if (headers.get('authorization') !== `Bearer ${API_KEY}`)
        throw new AppError('unauthorized', 'the API key is not that of the mock; use its clientOptions');
      const failure = this.#failures.shift();
      if (failure !== undefined) throw failure;
      const key = headers.get('idempotency-key');
      return await (key === null ? route(request) : this.#answerOnce(key, request, route));
    } catch (error) {
      if (error instanceof AppError) return answerError(error);
      throw error;
    }
  }

  /** Carries out a request with an Idempotency-Key once. An error is not kept: the request may be repeated. */
  async #answerOnce(key: string, request: MockRequest, route: Route): Promise<Response> {
    const place = `${request.path} ${key}`;
    const body = new TextDecoder().decode(request.body);
    const earlier = this.#repeatable.get(place);
    if (earlier !== undefined && earlier.body !== body)
      throw new AppError('idempotency_mismatch', 'Idempotency-Key: it was used with another body');
    const answer = earlier?.answer ?? Promise.resolve(route(request));
    this.#repeatable.set(place, { body, answer });
    try {
      return (await answer).clone();
    } catch (error) {
      this.#repeatable.delete(place);
      throw error;
    }
  }
}

function findRoute(method: string, path: string): { route: Route; ids: string[] } {
  const segments = path.split('/').map(decodeURIComponent);
  for (const [pattern, route] of Object.entries(ROUTES)) {
    const [routeMethod, routePath = ''] = pattern.split(' ');
    const parts = routePath.split('/');
    const fits =
      parts.length === segments.length && parts.every((part, at) => part === '*' || part === segments[at]);
    if (method === routeMethod && fits) return { route, ids: segments.filter((_, at) => parts[at] === '*') };
  }
  throw refuse(`${method} ${path}`);
}

/** Rejects with the reason of the signal when it is aborted first. */
function untilAborted(answering: Promise<Response>, signal: AbortSignal): Promise<Response> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error);
    signal.addEventListener('abort', onAbort, { once: true });
    answering.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
