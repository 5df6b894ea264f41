/** The runner's side of docs/reference/runner-protocol.md. Only control, on the same machine, can connect. */
import { chmodSync, rmSync } from 'node:fs';
import http2 from 'node:http2';
import net from 'node:net';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { z, ZodError } from 'zod';
import { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import {
  CaptureId,
  CaptureRequest,
  CreateVm,
  EventPlace,
  ForkVm,
  PrepareImage,
  RestoreVm,
  RollbackVm,
  VmShape,
  type RunnerStatus,
} from '../../lib/protocol/runner-protocol.ts';
import { explainFullDisk } from '../host/full-disk.ts';
import { TRUSTED_PEER } from '../../lib/process/trusted-peer.ts';
import type { EventSpool } from '../driver/event-spool.ts';
import type { AgentSession } from '../agent-client/agent-session.ts';
import type { Fleet } from '../driver/fleet.ts';
import type { VmDriver } from '../driver/vm-driver.ts';
import type { VmCopies } from '../driver/vm-copies.ts';
import type { VmRollbacks } from '../driver/vm-rollbacks.ts';
import type { ImageBuilds } from '../driver/image-builds.ts';
import type { TemplatePlan } from '../driver/template-plan.ts';
import type { ImageStore } from '../image/store/image-store.ts';
import { holdPlace, readJson, respondEmpty, respondError, respondJson } from './exchange.ts';
import { streamEvents } from './event-stream.ts';
import { streamPreparation, toWire } from './prepare-stream.ts';
import { tunnelToAgent } from './agent-tunnel.ts';
import { WillingSocket } from './willing-socket.ts';

const VM_ID = /^run[0-9a-f]{20}$/u;
const STREAM_WINDOW_BYTES = 1 << 20;
/** High, because the number of shells and proxied connections is not limited. */
const MAX_STREAMS = 100_000;
const AGENT_ROUTES: Record<string, readonly string[]> = {
  exec: ['POST'],
  shell: ['POST'],
  terminal: ['POST'],
  tunnel: ['POST'],
  files: ['PUT', 'GET'],
  list: ['GET'],
  metrics: ['GET'],
};

export interface RunnerServerParts {
  fleet: Fleet;
  copies: VmCopies;
  rollbacks: VmRollbacks;
  spool: EventSpool;
  images: ImageStore;
  builds: ImageBuilds;
  plan: TemplatePlan;
  status: () => RunnerStatus;
  log: Logger;
}

interface Exchange {
  stream: http2.ServerHttp2Stream;
  headers: http2.IncomingHttpHeaders;
  method: string;
  segments: string[];
  url: URL;
}

export class RunnerServer {
  readonly #parts: RunnerServerParts;
  readonly #server = http2.createServer({
    ...TRUSTED_PEER,
    settings: {
      initialWindowSize: STREAM_WINDOW_BYTES,
      maxConcurrentStreams: MAX_STREAMS,
      maxHeaderListSize: 65_536,
    },
  });
  readonly #listener = net.createServer((socket) => {
    this.#server.emit('connection', new WillingSocket(socket));
  });
  readonly #sessions = new Set<http2.ServerHttp2Session>();

  private constructor(parts: RunnerServerParts) {
    this.#parts = parts;
    this.#server.on('session', (session) => {
      this.#sessions.add(session);
      session.setLocalWindowSize(1 << 30);
      session.on('close', () => this.#sessions.delete(session));
      session.on('error', (error) => parts.log.debug({ err: error }, 'control connection failed'));
    });
    this.#server.on('stream', (stream, headers) => this.#onStream(stream, headers));
  }

  static async listen(parts: RunnerServerParts, socketPath: string): Promise<RunnerServer> {
    const runner = new RunnerServer(parts);
    rmSync(socketPath, { force: true });
    const listening = Promise.withResolvers<undefined>();
    runner.#listener.once('error', (error) => listening.reject(error));
    runner.#listener.listen(socketPath, () => listening.resolve(undefined));
    await listening.promise;
    chmodSync(socketPath, 0o600);
    return runner;
  }

  async close(): Promise<void> {
    const closed = Promise.withResolvers<undefined>();
    this.#listener.close(() => closed.resolve(undefined));
    for (const session of this.#sessions) session.destroy();
    await closed.promise;
  }

  #onStream(stream: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders): void {
    stream.on('error', (error) => this.#parts.log.debug({ err: error }, 'stream of control failed'));
    const path = headers[':path'] ?? '/';
    this.#serve(stream, headers, path).catch((error: unknown) =>
      respondError(stream, this.#toAppError(error, path)),
    );
  }

  async #serve(
    stream: http2.ServerHttp2Stream,
    headers: http2.IncomingHttpHeaders,
    path: string,
  ): Promise<void> {
    if (!URL.canParse(path, 'http://runner'))
      throw new AppError('invalid_request', 'the path cannot be parsed');
    const url = new URL(path, 'http://runner');
    const segments = url.pathname.split('/').slice(1);
    await this.#route({ stream, headers, method: headers[':method'] ?? 'GET', segments, url });
  }

  #toAppError(cause: unknown, path: string): AppError {
    const error = explainFullDisk(cause) ?? cause;
    if (error instanceof AppError) {
      if (error.cause !== undefined) this.#parts.log.warn({ err: error, path }, error.message);
      return error;
    }
    if (error instanceof ZodError) return new AppError('invalid_request', z.prettifyError(error));
    this.#parts.log.error({ err: error, path }, 'request of control failed');
    return new AppError('internal', 'the runner failed; its log has the details');
  }

  async #route(exchange: Exchange): Promise<void> {
    const { stream, method, segments } = exchange;
    switch (segments[0]) {
      case 'status':
        return respondJson(stream, 200, this.#parts.status());
      case 'vms':
        return segments.length === 1
          ? respondJson(stream, 200, this.#parts.fleet.vms.list())
          : this.#routeVm(exchange);
      case 'captures':
        return this.#routeCaptures(exchange);
      case 'events':
        return this.#routeEvents(exchange);
      case 'images':
        return this.#routeImages(exchange);
      default:
        throw new AppError('not_found', `no route ${method} ${exchange.url.pathname}`);
    }
  }

  async #routeVm(exchange: Exchange): Promise<void> {
    const { stream, method, segments } = exchange;
    const { fleet, copies } = this.#parts;
    const id = segments[1] ?? '';
    if (!VM_ID.test(id)) throw new AppError('invalid_request', 'the VM id is malformed');
    if (segments[2] === 'agent') return this.#routeAgent(exchange, id, segments[3] ?? '');
    if (segments[2] === 'admission') {
      return holdPlace(stream, fleet.admit(id, VmShape.parse(await readJson(stream))));
    }
    if (segments[2] === 'egress') return this.#routeEgress(exchange, id);
    if (segments[2] !== undefined) return this.#routeCopy(exchange, id, segments[2]);
    if (method === 'PUT') {
      const request = z.union([RestoreVm, CreateVm]).parse(await readJson(stream));
      const made =
        'capture_id' in request
          ? copies.restore(id, request.capture_id, request.egress)
          : fleet.create(id, request);
      return respondJson(stream, 201, await made);
    }
    if (method === 'DELETE') return respondJson(stream, 200, await fleet.destroy(id));
    return respondJson(stream, 200, fleet.vms.get(id).info);
  }

  async #routeEgress({ stream, method }: Exchange, id: string): Promise<void> {
    const { fleet } = this.#parts;
    if (method === 'GET') return respondJson(stream, 200, await fleet.readEgress(id));
    if (method !== 'PUT') throw new AppError('not_found', `no route ${method} egress`);
    await fleet.setEgress(id, VmEgress.parse(await readJson(stream)));
    return respondEmpty(stream);
  }

  /** Answers without a deadline of its own: control has one, and repeats the request if this runner was killed. */
  async #routeCopy({ stream, method }: Exchange, id: string, what: string): Promise<void> {
    const { copies, rollbacks } = this.#parts;
    if (method !== 'POST') throw new AppError('not_found', `no route ${method} ${what}`);
    const body = await readJson(stream);
    const captureId = (): string => CaptureRequest.parse(body).capture_id;
    switch (what) {
      case 'snapshot':
        return respondJson(stream, 201, await copies.snapshot(id, captureId()));
      case 'hibernate':
        return respondJson(stream, 200, await copies.hibernate(id, captureId()));
      case 'rollback':
        return respondJson(stream, 200, await rollbacks.rollBack(id, RollbackVm.parse(body)));
      case 'fork':
        return respondJson(stream, 200, await copies.fork(id, ForkVm.parse(body).children));
      default:
        throw new AppError('not_found', `no route ${what}`);
    }
  }

  async #routeCaptures({ stream, method, segments }: Exchange): Promise<void> {
    const { copies } = this.#parts;
    const [, id] = segments;
    if (id === undefined) return respondJson(stream, 200, copies.listCaptures());
    if (method !== 'DELETE') throw new AppError('not_found', `no route ${method} captures`);
    await copies.removeCapture(CaptureId.parse(id));
    return respondJson(stream, 200, {});
  }

  async #routeAgent(exchange: Exchange, id: string, route: string): Promise<void> {
    const { stream, headers, method, url } = exchange;
    if (AGENT_ROUTES[route]?.includes(method) !== true)
      throw new AppError('not_found', `no agent route ${method} ${route}`);
    const driver = this.#parts.fleet.vms.get(id);
    if (!driver.isUp) throw new AppError('invalid_state', `the sandbox is ${driver.phase}`);
    if (driver.isPaused) throw paused();
    const session = await openSession(driver);
    const passed: http2.OutgoingHttpHeaders = {};
    for (const name of ['range', 'content-length'] as const) {
      if (headers[name] !== undefined) passed[name] = headers[name];
    }
    return tunnelToAgent(stream, session, { method, path: `/${route}${url.search}`, headers: passed });
  }

  async #routeEvents(exchange: Exchange): Promise<void> {
    const { stream, segments } = exchange;
    const { spool } = this.#parts;
    if (segments[1] !== 'ack') return streamEvents(stream, spool);
    spool.acknowledge(EventPlace.parse(await readJson(stream)));
    return respondJson(stream, 200, {});
  }

  async #routeImages(exchange: Exchange): Promise<void> {
    const { stream, segments } = exchange;
    const { images, plan } = this.#parts;
    if (segments[1] === 'prepare')
      return streamPreparation(stream, this.#parts, PrepareImage.parse(await readJson(stream)));
    const prepared = images.list().map((image) => toWire(image, plan.listReady(image)));
    return respondJson(stream, 200, prepared);
  }
}

function paused(): AppError {
  return new AppError(
    'unavailable',
    'the sandbox is paused because the disk of its host is full; it continues when there is room; try again later',
  );
}

async function openSession(driver: VmDriver): Promise<AgentSession> {
  try {
    return await driver.session();
  } catch (error) {
    throw new AppError('guest_unreachable', 'the agent in the sandbox does not answer', { cause: error });
  }
}
