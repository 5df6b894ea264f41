/**
 * A runner for tests of control: the real protocol (docs/reference/runner-protocol.md) over a real HTTP/2 socket, with
 * VMs that are entries in a map. Tests inject failures through `onCreate`, `onExec` and similar hooks.
 */
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { connect, type AddressInfo, type Socket } from 'node:net';
import http2, {
  type Http2SecureServer,
  type Http2Server,
  type SecureServerOptions,
  type ServerHttp2Stream,
} from 'node:http2';
import { AppError } from '@coppice/contract';
import { FakeBuiltImages } from './fake-built-images.ts';
import { FakeCommands } from './fake-commands.ts';
import { FakeFiles } from './fake-files.ts';
import { FakeMetrics } from './fake-metrics.ts';
import { FakeDisks } from './fake-disks.ts';
import { FakeCaptures } from './fake-captures.ts';
import { answer, answerError, noVm, readAll } from './fake-answers.ts';
import { passFence, reportHeartbeat, reportRoster, reportStatus } from './fake-status.ts';
import { encodeFrame, FRAME, FrameDecoder, type Frame } from '../../../lib/protocol/frames.ts';
import {
  NO_JUDGED_COUNTERS,
  VmEgress,
  type EgressCounters,
  type EgressNote,
} from '../../../lib/protocol/egress-protocol.ts';
import type { HostMoment } from '../../../lib/host-clock.ts';
import { PROTOCOL_VERSIONS } from '../../../lib/protocol/wire-headers.ts';
import { TRUSTED_PEER } from '../../../lib/process/trusted-peer.ts';
import {
  CreateVm,
  EventPlace,
  PrepareImage,
  RestoreVm,
  toBootMoment,
  VmShape,
  type Accelerator,
  type PrepareProgress,
  type PreparedImage,
  type RunnerEvent,
  type VmEnd,
  type VmInfo,
} from '../../../lib/protocol/runner-protocol.ts';

const HEARTBEAT_MS = 5_000;
const DIGEST = `sha256:${'a'.repeat(64)}`;
const PREPARED: PreparedImage = {
  image: `registry.test/library/node:22-slim@${DIGEST}`,
  digest: DIGEST,
  size_bytes: 1000,
  prepared_at: '2026-01-01T00:00:00.000Z',
  status: 'ready',
  shapes: [],
};

type EndEvent = Extract<RunnerEvent, { type: 'vm_ended' }>;

/** A fake command, under the control of a test. */
export interface FakeCommand {
  head: { command: string; timeout_ms: number; cwd?: string; env?: Record<string, string>; user?: string };
  stdin: string;
  /** Frames after the head, as they arrive; only with `startsAtHead`. */
  input: Frame[];
  stream: ServerHttp2Stream;
  stdout: (bytes: string | Buffer) => void;
  stderr: (bytes: string | Buffer) => void;
  exit: (exitCode: number, timedOut?: boolean) => void;
}

export interface FakeProcess {
  head: Record<string, unknown>;
  /** Frames after the head, as they arrive. */
  input: Frame[];
  stream: ServerHttp2Stream;
  send: (type: number, payload: string | Buffer) => void;
}

export class FakeRunner implements AsyncDisposable {
  /** Of the runner. */
  id = `runner-${'0'.repeat(32)}`;
  protocol = PROTOCOL_VERSIONS;
  /** The highest that a request has carried. Lower ones are refused. */
  epoch = 0;
  readonly socketPath: string;
  /** With which it listens on a port of this machine, instead of its socket. */
  readonly #tls: SecureServerOptions | undefined;
  /** Whether it keeps the requests that it receives. They take memory. */
  keepsRequests = true;
  readonly vms = new Map<string, VmInfo>();
  readonly disks: FakeDisks = new FakeDisks({ hasVm: (id) => this.vms.has(id), host: () => this.host?.() });
  readonly commands = new FakeCommands();
  readonly built = new FakeBuiltImages();
  readonly captures: FakeCaptures = new FakeCaptures({
    vms: this.vms,
    disks: this.disks,
    commands: this.commands,
    inherit: (id, from) => this.#inherit(id, from),
    host: () => this.host?.(),
  });
  readonly files = new FakeFiles();
  readonly metrics = new FakeMetrics((id) => this.vms.has(id));
  readonly requests: string[] = [];
  /** Headers `traceparent` of the requests that have one. */
  readonly traceparents: string[] = [];
  readonly ends = new Map<string, EndEvent>();
  /** Notes that are not acknowledged. */
  readonly notes = new Map<number, RunnerEvent>();
  readonly acknowledged: EventPlace[] = [];
  /** Returns the moment of a simulated host, from which ends and captures take their time. */
  host: (() => HostMoment) | undefined;
  /** The last outbound network of each VM; none for the default. */
  readonly egress = new Map<string, VmEgress>();
  counters: EgressCounters = { ...NO_JUDGED_COUNTERS, bytes_sent: 0, bytes_received: 0 };
  /** Called before a VM's outbound network changes; may throw the error to answer instead. */
  onEgress: (id: string, egress: VmEgress) => Promise<void> | void = () => undefined;
  /** Ports of guests, and the ports of this machine where their services really listen. */
  readonly ports = new Map<number, number>();
  maxVcpus = 32;
  maxMemMib = 262_144;
  /** Reason why sandboxes have no network; empty when they have one. */
  networkAbsence = '';
  accelerator: Accelerator = 'tcg';
  images: PreparedImage[] = [];
  /** Events of a preparation; an async iterable can delay them. */
  progress: Iterable<PrepareProgress> | AsyncIterable<PrepareProgress> = [
    { type: 'prepared', image: PREPARED },
  ];
  /** Received requests, newest last. */
  readonly creates: CreateVm[] = [];
  readonly preparations: PrepareImage[] = [];
  /** Number of preparations whose connection has ended, from either side. */
  closedPreparations = 0;
  /** Called before a VM is made; may throw the error that the create answers. */
  onCreate: (id: string, vm: CreateVm) => Promise<void> | void = () => undefined;
  /** Called before a VM is removed; may throw the error that the removal answers. */
  onDelete: (id: string) => Promise<void> | void = () => undefined;
  onExec: (command: FakeCommand) => void = (command) => {
    command.stdout(`ran ${command.head.command}\n`);
    command.exit(0);
  };
  /** Called when a shell, a terminal or SSH is requested. */
  onShell: (process: FakeProcess) => void = () => undefined;
  onTerminal: (process: FakeProcess) => void = () => undefined;
  onSsh: (process: FakeProcess) => void = () => undefined;
  hostKey = `ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI${'b'.repeat(43)}`;
  /** Number of connections to ports so far. */
  tunnels = 0;
  /** Whether commands start before their input has ended, as real ones do. */
  startsAtHead = false;
  /** Duration of the steps of each create. */
  timingsMs: Record<string, number> = {};
  /** Number of open admissions of creates. */
  holds = 0;
  /** May throw the error with which a create is refused before it begins. */
  onAdmission: () => void = () => undefined;
  /** Generation of the event spool. */
  #generation = 'fake-1';
  /** Called before the agent answers. Returns true when it has answered itself. */
  onAgent: (id: string, stream: ServerHttp2Stream) => boolean = () => false;
  readonly #sockets = new Set<Socket>();
  readonly #listeners = new Set<ServerHttp2Stream>();
  #server: Http2Server | Http2SecureServer | undefined;
  #port = 0;
  #seq = 0;

  constructor(socketPath: string, tls?: SecureServerOptions) {
    this.socketPath = socketPath;
    this.#tls = tls;
  }

  /** That of its first start. 0 without TLS. */
  get port(): number {
    return this.#port;
  }

  async start(): Promise<void> {
    const server =
      this.#tls === undefined
        ? http2.createServer(TRUSTED_PEER)
        : http2.createSecureServer({ ...TRUSTED_PEER, ...this.#tls });
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
    server.on('session', (session) => session.on('error', () => undefined));
    server.on('stream', (stream, headers) => {
      stream.on('error', () => undefined);
      const method = String(headers[':method']);
      const url = new URL(String(headers[':path']), 'http://runner');
      if (this.keepsRequests) this.requests.push(`${method} ${url.pathname}`);
      if (!passFence(this, stream, headers)) return;
      if (typeof headers['traceparent'] === 'string') this.traceparents.push(headers['traceparent']);
      this.#route(stream, { method, url, range: headers.range }).catch((error: unknown) =>
        answerError(stream, error),
      );
    });
    if (this.#tls === undefined) await rm(this.socketPath, { force: true });
    server.listen(
      this.#tls === undefined ? { path: this.socketPath } : { host: '127.0.0.1', port: this.#port },
    );
    await once(server, 'listening');
    if (this.#tls !== undefined) this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  /** Stops like a killed process: all connections break at once; VMs stay. */
  async stop(): Promise<void> {
    const closed = this.#server?.listening === true ? once(this.#server, 'close') : undefined;
    this.#server?.close();
    // Not sessions: one that is closing waits for the other end, and a handshake has none yet.
    for (const socket of this.#sockets) socket.destroy();
    this.#listeners.clear();
    await closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Ends a VM as the runner would: the event is kept until acknowledged, and sent to all listeners. */
  endVm(id: string, reason: VmEnd['reason'], endedAt: Date = this.#now()): VmEnd {
    const moment = this.host?.();
    const rollback = this.captures.rollbacks.get(id)?.at(-1);
    const end: VmEnd = {
      id,
      reason,
      cpu_ms: 1234,
      mem_peak_bytes: 56_000_000,
      ended_at: endedAt.toISOString(),
      ...(moment === undefined ? {} : { ended_on_boot: toBootMoment(moment) }),
      ...(rollback === undefined ? {} : { rollback }),
    };
    const event: EndEvent = { ...this.#nextPlace(), type: 'vm_ended', end };
    this.vms.delete(id);
    this.ends.set(id, event);
    this.egress.delete(id);
    this.#tell(event);
    return end;
  }

  /** Sends a note of the egress process, and keeps it until it is acknowledged. */
  note(id: string, note: EgressNote): EventPlace {
    const event: RunnerEvent = { ...this.#nextPlace(), type: 'egress_note', vm_id: id, note };
    this.notes.set(event.seq, event);
    this.#tell(event);
    return event;
  }

  /** Acts as if the spool directory was removed while the runner was away: sequence numbers start again. */
  loseSpool(): void {
    this.ends.clear();
    this.notes.clear();
    this.#generation = `fake-${Number(this.#generation.slice('fake-'.length)) + 1}`;
    this.#seq = 0;
  }

  /** Sends a heartbeat now. */
  beat(): void {
    for (const listener of this.#listeners) listener.write(`${JSON.stringify(reportHeartbeat(this))}\n`);
  }

  #now(): Date {
    return this.host === undefined ? new Date() : new Date(this.host().wallMs);
  }

  #nextPlace(): EventPlace {
    return { generation: this.#generation, seq: (this.#seq += 1) };
  }

  #tell(event: RunnerEvent): void {
    for (const listener of this.#listeners) listener.write(`${JSON.stringify(event)}\n`);
  }

  #inherit(id: string, from: VmEgress | string | undefined): void {
    const egress = typeof from === 'string' ? this.egress.get(from) : from;
    if (egress !== undefined) this.egress.set(id, egress);
  }

  async #answerEgress(stream: ServerHttp2Stream, method: string, id: string): Promise<void> {
    if (!this.vms.has(id)) throw noVm(id);
    if (method === 'GET') return answer(stream, 200, this.counters);
    const egress = VmEgress.parse(JSON.parse((await readAll(stream)).toString('utf8')));
    await this.onEgress(id, egress);
    this.egress.set(id, egress);
    stream.respond({ ':status': 204 }, { endStream: true });
  }

  async #route(stream: ServerHttp2Stream, request: Request): Promise<void> {
    const { method, url } = request;
    const [, id, rest = ''] = /^\/vms\/([^/]+)(\/.*)?$/.exec(url.pathname) ?? [];
    if (id !== undefined && rest === '/admission') return this.#admit(stream);
    if (id !== undefined && rest === '/metrics') return this.metrics.answerVm(stream, id, url);
    if (id !== undefined && rest === '/image')
      return this.built.answerVm(stream, method, this.vms.get(id)?.image ?? '');
    if (url.pathname === '/images/owned') return this.built.list(stream, url.searchParams);
    if (url.pathname.startsWith('/images/sha256:')) return this.built.answer(stream, method, url.pathname);
    if (id !== undefined && rest === '/egress') return this.#answerEgress(stream, method, id);
    if (await this.disks.take(stream, method, url)) return;
    if (await this.captures.take(stream, `${method} ${url.pathname}`)) return;
    if (id !== undefined && rest === '') return this.#answerVm(stream, method, id);
    if (id !== undefined) return this.#answerAgent(stream, { ...request, id, action: `${method} ${rest}` });
    switch (`${method} ${url.pathname}`) {
      case 'GET /status':
        return answer(stream, 200, reportStatus(this));
      case 'GET /metrics':
        return answer(stream, 200, this.metrics.runner);
      case 'GET /roster':
        return answer(stream, 200, reportRoster(this));
      case 'GET /vms':
        return answer(stream, 200, [...this.vms.values()]);
      case 'GET /events':
        return this.#streamEvents(stream);
      case 'POST /events/ack':
        return this.#acknowledge(stream);
      case 'GET /images':
        return answer(stream, 200, this.images);
      case 'POST /images/prepare':
        return this.#prepare(stream);
      default:
        throw new AppError('not_found', `no ${method} ${url.pathname}`);
    }
  }

  async #admit(stream: ServerHttp2Stream): Promise<void> {
    const { vcpus, mem_mib } = VmShape.parse(JSON.parse((await readAll(stream)).toString('utf8')));
    if (vcpus > this.maxVcpus)
      throw new AppError('invalid_request', `vcpus: must be at most ${this.maxVcpus} on this machine`);
    if (mem_mib > this.maxMemMib)
      throw new AppError(
        'invalid_request',
        `mem_mib: must be at most ${this.maxMemMib} (MiB) on this machine`,
      );
    this.onAdmission();
    this.holds += 1;
    stream.once('close', () => (this.holds -= 1));
    stream.respond({ ':status': 200 });
  }

  async #answerVm(stream: ServerHttp2Stream, method: string, id: string): Promise<void> {
    if (method === 'DELETE') {
      await this.onDelete(id);
      const end = this.vms.has(id) ? this.endVm(id, 'destroyed') : this.ends.get(id)?.end;
      if (end === undefined) throw noVm(id);
      return answer(stream, 200, end);
    }
    const given: unknown = JSON.parse((await readAll(stream)).toString('utf8'));
    const restore = RestoreVm.safeParse(given);
    if (restore.success) return answer(stream, 201, await this.captures.restore(id, restore.data));
    const body = CreateVm.parse(given);
    if (this.keepsRequests) this.creates.push(body);
    await this.onCreate(id, body);
    const { vcpus, mem_mib, disk_mib } = body;
    const workspace = this.disks.attach(id, body.workspace);
    const vm: VmInfo = {
      ...(workspace === undefined ? {} : { workspace }),
      vcpus,
      mem_mib,
      disk_mib,
      id,
      state: 'running',
      image: `registry.test/library/${body.image}@${DIGEST}`,
      timings_ms: this.timingsMs,
    };
    this.vms.set(id, vm);
    this.#inherit(id, body.egress);
    return answer(stream, 201, vm);
  }

  async #prepare(stream: ServerHttp2Stream): Promise<void> {
    this.preparations.push(PrepareImage.parse(JSON.parse((await readAll(stream)).toString('utf8'))));
    stream.respond({ ':status': 200 });
    stream.once('close', () => (this.closedPreparations += 1));
    for await (const event of this.progress) stream.write(`${JSON.stringify(event)}\n`);
    stream.end();
  }

  #streamEvents(stream: ServerHttp2Stream): void {
    stream.respond({ ':status': 200 });
    const events = [...this.ends.values(), ...this.notes.values()].toSorted((a, b) => a.seq - b.seq);
    for (const event of events) stream.write(`${JSON.stringify(event)}\n`);
    this.#listeners.add(stream);
    // Like the real runner: control abandons a stream on which nothing has arrived for 20 s.
    const beat = (): unknown => stream.write(`${JSON.stringify(reportHeartbeat(this))}\n`);
    beat();
    const heartbeat = setInterval(beat, HEARTBEAT_MS).unref();
    stream.on('close', () => {
      clearInterval(heartbeat);
      this.#listeners.delete(stream);
    });
  }

  async #acknowledge(stream: ServerHttp2Stream): Promise<void> {
    const { generation, seq } = EventPlace.parse(JSON.parse((await readAll(stream)).toString('utf8')));
    if (this.keepsRequests) this.acknowledged.push({ generation, seq });
    if (generation !== this.#generation) return answer(stream, 200, {});
    for (const [id, event] of this.ends) if (event.seq <= seq) this.ends.delete(id);
    for (const noted of this.notes.keys()) if (noted <= seq) this.notes.delete(noted);
    answer(stream, 200, {});
  }

  async #answerAgent(stream: ServerHttp2Stream, { id, action, url, range }: AgentRequest): Promise<void> {
    if (!this.vms.has(id)) throw noVm(id);
    if (this.onAgent(id, stream)) return undefined;
    if (await this.commands.take(stream, id, action, url.searchParams)) return undefined;
    if (await this.files.changes.take(stream, action, url.searchParams)) return undefined;
    if (this.files.watches.take(stream, action, url.searchParams)) return undefined;
    if (await this.files.archives.take(stream, action, url.searchParams)) return undefined;
    if (action === 'GET /agent/metrics') return this.metrics.answerGuest(stream);
    if (action === 'POST /agent/exec') return this.#exec(stream);
    if (action === 'POST /agent/shell') return this.#openProcess(stream, this.onShell);
    if (action === 'POST /agent/terminal') return this.#openProcess(stream, this.onTerminal);
    if (action === 'POST /agent/ssh') return this.#openProcess(stream, this.onSsh);
    if (action === 'GET /agent/ssh') return answer(stream, 200, { host_key: this.hostKey });
    if (action === 'POST /agent/tunnel') return this.#tunnel(stream, Number(url.searchParams.get('port')));
    if (action === 'PUT /agent/files') return this.files.upload(stream, url.searchParams);
    if (action === 'GET /agent/list') return this.files.list(stream, url.searchParams);
    return this.files.download(stream, url.searchParams.get('path') ?? '', range);
  }

  async #exec(stream: ServerHttp2Stream): Promise<void> {
    const decoder = new FrameDecoder();
    const frames: Frame[] = [];
    const started = Promise.withResolvers<void>();
    stream.on('data', (chunk: Buffer) => {
      frames.push(...decoder.push(chunk));
      if (this.startsAtHead && frames.length > 0) started.resolve();
    });
    stream.once('end', () => started.resolve());
    await started.promise;
    const [head] = frames.splice(0, 1);
    const stdin = frames.filter((frame) => frame.type === FRAME.stdin).map((frame) => frame.payload);
    stream.respond({ ':status': 200 });
    this.onExec({
      head: JSON.parse(String(head?.payload)) as FakeCommand['head'],
      stdin: Buffer.concat(stdin).toString('utf8'),
      input: frames,
      stream,
      stdout: (bytes) => stream.write(encodeFrame(FRAME.stdout, Buffer.from(bytes))),
      stderr: (bytes) => stream.write(encodeFrame(FRAME.stderr, Buffer.from(bytes))),
      exit: (exitCode, timedOut = false) =>
        stream.end(
          encodeFrame(FRAME.exit, Buffer.from(JSON.stringify({ exit_code: exitCode, timed_out: timedOut }))),
        ),
    });
  }

  /** Begins the process when its head has arrived. */
  async #openProcess(stream: ServerHttp2Stream, begin: (process: FakeProcess) => void): Promise<void> {
    const decoder = new FrameDecoder();
    const input: Frame[] = [];
    const started = Promise.withResolvers<void>();
    stream.on('data', (chunk: Buffer) => {
      input.push(...decoder.push(chunk));
      if (input.length > 0) started.resolve();
    });
    await started.promise;
    const head = JSON.parse(String(input.shift()?.payload)) as Record<string, unknown>;
    stream.respond({ ':status': 200 });
    begin({
      head,
      input,
      stream,
      send: (type, payload) => stream.write(encodeFrame(type, Buffer.from(payload))),
    });
  }

  async #tunnel(stream: ServerHttp2Stream, port: number): Promise<void> {
    const socket = connect({ host: '127.0.0.1', port: this.ports.get(port) ?? 1, allowHalfOpen: true });
    try {
      await once(socket, 'connect');
    } catch {
      throw new AppError('port_unreachable', `nothing in the sandbox listens on port ${port}`);
    }
    this.tunnels += 1;
    stream.respond({ ':status': 200 });
    socket.on('error', () => stream.close(2));
    socket.once('close', () => (stream.writableEnded ? undefined : stream.close(2)));
    stream.once('close', () => socket.destroy());
    stream.pipe(socket);
    socket.pipe(stream);
  }
}

interface Request {
  method: string;
  url: URL;
  range: string | undefined;
}

interface AgentRequest extends Request {
  id: string;
  action: string;
}
