/**
 * Client of the runner (docs/reference/runner-protocol.md). Every call has a deadline and validates the answer. Errors
 * are AppErrors with the runner's own codes, `unavailable` if the request did not reach the runner, and
 * `outcome_unknown` if it did and the runner did not answer.
 */
import { constants, type ClientHttp2Stream } from 'node:http2';
import type { Readable } from 'node:stream';
import { AppError, FileEntry, FilesCursor, SshHost, UploadResult } from '@coppice/contract';
import { z } from 'zod';
import { EgressCounters, type VmEgress } from '../../lib/protocol/egress-protocol.ts';
import {
  type PrepareImage,
  PrepareProgress,
  PreparedImage,
  EventLine,
  Roster,
  RunnerIdentity,
  RunnerStatus,
  VmEnd,
  VmInfo,
  type CreateVm,
  type EventPlace,
  type ImageAccess,
  type VmShape,
} from '../../lib/protocol/runner-protocol.ts';
import { describeVersions, findCommonVersion, PROTOCOL_VERSIONS } from '../../lib/protocol/wire-headers.ts';
import type { RegistryLogin } from '../registries/registries.ts';
import type { OpenCalls } from './open-calls.ts';
import { RunnerCaptures } from './runner-captures.ts';
import { RunnerCommands } from './runner-commands.ts';
import { RunnerDisks } from './runner-disks.ts';
import { RunnerFiles } from './runner-files.ts';
import { RunnerImages } from './runner-images.ts';
import { RunnerMeasures } from './runner-measures.ts';
import { agentPath, askGuest, brokenProtocol, readGuest, readGuestBody } from './guest-requests.ts';
import {
  get,
  parseRunnerJson,
  send,
  vmPath,
  type RunnerAnswer,
  type RunnerConnection,
} from './runner-connection.ts';
import { readLines } from './read-stream.ts';

const DELETE_DEADLINE_MS = 30_000;
const AGENT_HEAD_DEADLINE_MS = 30_000;
const MAX_RESULT_BYTES = 64 << 10;
const MAX_SSH_HOST_BYTES = 4096;
/** Pages end after 4 MiB. An agent that was saved by an older version lists 100 000 entries at once, about 18 MB. */
const MAX_LISTING_BYTES = 32 << 20;
const MAX_LINE_BYTES = 1 << 20;
/** The runner sends a heartbeat every 5 s. */
const EVENTS_IDLE_MS = 20_000;
/**
 * The runner reports each step when it begins. A pull, a flattening, or the wait for a queue slot may take 15 min each.
 */
const PREPARE_IDLE_MS = 1_200_000;

/** The caller's access to an image. Without a login the registry is asked anonymously. */
interface ImageLogin {
  login?: RegistryLogin | undefined;
}

export type NewVm = Omit<CreateVm, 'access'> & ImageLogin;
export type NewImage = Omit<PrepareImage, 'access'> & ImageLogin;

export interface UploadOptions {
  path: string;
  mode?: string | undefined;
  user?: string | undefined;
  content: Readable;
  /** Deadline for the whole upload, up to the agent's answer. */
  deadlineMs: number;
  signal: AbortSignal;
}

export interface DownloadOptions {
  path: string;
  range?: string;
}

export interface ListOptions {
  path: string;
  limit: number;
  /** Cursor from the previous page. */
  cursor?: string | undefined;
}

export interface FilesPage {
  entries: FileEntry[];
  /** Cursor of the next page, if there is one. */
  cursor: string | undefined;
}

export type ProcessKind = 'exec' | 'shell' | 'terminal' | 'ssh';

export class RunnerClient {
  readonly captures: RunnerCaptures;
  readonly commands: RunnerCommands;
  readonly disks: RunnerDisks;
  readonly files: RunnerFiles;
  readonly images: RunnerImages;
  readonly measures: RunnerMeasures;
  readonly #connection: RunnerConnection;

  constructor(connection: RunnerConnection) {
    this.#connection = connection;
    this.captures = new RunnerCaptures(connection);
    this.commands = new RunnerCommands(connection);
    this.disks = new RunnerDisks(connection);
    this.files = new RunnerFiles(connection);
    this.images = new RunnerImages(connection);
    this.measures = new RunnerMeasures(connection);
  }

  /** Requests whose answers have not ended, without those in the background. */
  get openCalls(): Pick<OpenCalls, 'count' | 'longestMs'> {
    return this.#connection.openCalls;
  }

  /** Asks which runner this is, and agrees on a version of the protocol. Throws `unavailable` if there is no common one. */
  async identify(): Promise<RunnerIdentity> {
    const identity = await this.#connection.callJson(get('/status'), RunnerIdentity);
    const common = findCommonVersion(identity.protocol);
    if (common === undefined)
      throw new AppError(
        'unavailable',
        `the runner ${identity.runner_id} speaks ${describeVersions(identity.protocol)} of the protocol, and this control ` +
          `${describeVersions(PROTOCOL_VERSIONS)}: install the same version of Coppice on both machines`,
      );
    this.#connection.protocol = common;
    return identity;
  }

  /** The epoch that requests carry; undefined before this control owns the runner. */
  get epoch(): number | undefined {
    return this.#connection.epoch;
  }

  /** Sets the epoch that later requests carry. */
  useEpoch(epoch: number): void {
    this.#connection.epoch = epoch;
  }

  status(): Promise<RunnerStatus> {
    return this.#connection.callJson(get('/status'), RunnerStatus);
  }

  /**
   * Reserves capacity for a create until the result is disposed, at the end of the create, or this process ends. Throws
   * `invalid_request` or `capacity` if there is none.
   */
  async admitVm(id: string, { vcpus, mem_mib, disk_mib }: VmShape): Promise<Disposable> {
    const request = send('POST', `${vmPath(id)}/admission`, { vcpus, mem_mib, disk_mib });
    const { stream } = await this.#connection.request({ ...request, isRepeatable: true, isEndless: true });
    stream.resume();
    return { [Symbol.dispose]: () => stream.close(constants.NGHTTP2_CANCEL) };
  }

  /** Creates a VM, and resolves when a first command could run. A second call with the same id joins the create. */
  createVm(id: string, { login, ...vm }: NewVm, deadlineMs: number): Promise<VmInfo> {
    const create: CreateVm = { ...vm, access: revealAccess({ login }) };
    return this.#connection.callJson(send('PUT', vmPath(id), create, deadlineMs), VmInfo);
  }

  /** Sets policy and credentials, and resolves when they apply, also to open connections. */
  async setEgress(id: string, egress: VmEgress): Promise<void> {
    const request = send('PUT', egressPath(id), egress);
    await this.#connection.callBytes({ ...request, isRepeatable: true });
  }

  getEgressCounters(id: string): Promise<EgressCounters> {
    return this.#connection.callJson(get(egressPath(id)), EgressCounters);
  }

  /** Reads which runner this is, the moment of its host, and its VMs. */
  readRoster(): Promise<Roster> {
    return this.#connection.callJson(get('/roster'), Roster);
  }

  listVms(): Promise<VmInfo[]> {
    return this.#connection.callJson(get('/vms'), z.array(VmInfo));
  }

  /** Kills the VM in any state. Throws `not_found` if it never existed or its end was acknowledged. */
  deleteVm(id: string): Promise<VmEnd> {
    const request = { method: 'DELETE', path: vmPath(id), headDeadlineMs: DELETE_DEADLINE_MS } as const;
    return this.#connection.callJson(request, VmEnd);
  }

  /**
   * Starts a process in the guest. `frames` is its input, the answer's body its output, both as frames. With `isAwaited` a
   * caller waits for its end, and a runner that stops does, too.
   */
  async openProcess(
    id: string,
    kind: ProcessKind,
    frames: Readable,
    { isAwaited = false } = {},
  ): Promise<RunnerAnswer> {
    return askGuest(this.#connection, {
      method: 'POST',
      path: agentPath(id, kind),
      headers: { 'content-type': 'application/octet-stream' },
      body: frames,
      headDeadlineMs: AGENT_HEAD_DEADLINE_MS,
      isEndless: !isAwaited,
    });
  }

  /** Opens a TCP connection to a port in the guest, as a two-way stream. Throws `port_unreachable` if that fails. */
  async openTunnel(id: string, port: number): Promise<ClientHttp2Stream> {
    const answer = await askGuest(this.#connection, {
      method: 'POST',
      path: agentPath(id, 'tunnel', { port: String(port) }),
      body: 'written by the caller',
      headDeadlineMs: AGENT_HEAD_DEADLINE_MS,
      isRepeatable: true,
      isEndless: true,
    });
    return answer.stream;
  }

  /** Throws `agent_outdated` if the agent is of a version without SSH. */
  readSshHost(id: string): Promise<SshHost> {
    const request = { ...get(agentPath(id, 'ssh')), headDeadlineMs: AGENT_HEAD_DEADLINE_MS };
    return readGuest(this.#connection, request, { schema: SshHost, maxBytes: MAX_SSH_HOST_BYTES });
  }

  async uploadFile(
    id: string,
    { path, mode, user, content, deadlineMs, signal }: UploadOptions,
  ): Promise<UploadResult> {
    const request = {
      method: 'PUT' as const,
      path: agentPath(id, 'files', { path, mode, user }),
      headers: { 'content-type': 'application/octet-stream' },
      body: content,
      headDeadlineMs: deadlineMs,
      signal,
    };
    return readGuest(this.#connection, request, { schema: UploadResult, maxBytes: MAX_RESULT_BYTES });
  }

  /** Returns an answer of 200 or 206 with the content as its stream. */
  async downloadFile(id: string, { path, range }: DownloadOptions): Promise<RunnerAnswer> {
    return askGuest(this.#connection, {
      method: 'GET',
      path: agentPath(id, 'files', { path }),
      ...(range === undefined ? {} : { headers: { range } }),
      headDeadlineMs: AGENT_HEAD_DEADLINE_MS,
    });
  }

  async listFiles(id: string, { path, limit, cursor }: ListOptions): Promise<FilesPage> {
    const answer = await askGuest(this.#connection, {
      method: 'GET',
      path: agentPath(id, 'list', { path, limit: String(limit), after: cursor }),
      headDeadlineMs: AGENT_HEAD_DEADLINE_MS,
    });
    const schema = z.array(FileEntry);
    const entries = await readGuestBody(answer, { schema, maxBytes: MAX_LISTING_BYTES });
    const next = FilesCursor.optional().safeParse(answer.headers['coppice-next']);
    if (!next.success) throw brokenProtocol(next.error);
    return { entries, cursor: next.data };
  }

  /** `withBuilt`: also the images that organizations have built. */
  listImages({ withBuilt = false } = {}): Promise<PreparedImage[]> {
    return this.#connection.callJson(
      get(withBuilt ? '/images?built=true' : '/images'),
      z.array(PreparedImage),
    );
  }

  /**
   * Pulls and prepares an image, and makes templates of it. The last element has type `done` or `error`. `signal` ends
   * it early: the runner then makes no more templates.
   */
  async *prepareImage({ login, ...image }: NewImage, signal?: AbortSignal): AsyncGenerator<PrepareProgress> {
    const prepare: PrepareImage = { ...image, access: revealAccess({ login }) };
    const request = send('POST', '/images/prepare', prepare, AGENT_HEAD_DEADLINE_MS);
    const { stream } = await this.#connection.request({ ...request, isRepeatable: true });
    const limits = { maxLineBytes: MAX_LINE_BYTES, idleDeadlineMs: PREPARE_IDLE_MS, signal };
    yield* parseLines(readLines(stream, limits), PrepareProgress);
  }

  /**
   * Opens the stream of events: first those that are not acknowledged yet, then new ones until `signal`; heartbeats in
   * between.
   */
  async openEvents(signal: AbortSignal): Promise<AsyncIterable<EventLine>> {
    const { stream } = await this.#connection.request({
      ...get('/events'),
      signal,
      isBackground: true,
      isEndless: true,
    });
    const lines = readLines(stream, { maxLineBytes: MAX_LINE_BYTES, idleDeadlineMs: EVENTS_IDLE_MS, signal });
    return parseLines(lines, EventLine);
  }

  /** Allows the runner to forget events up to this one. Call only when they are committed. */
  async acknowledgeEvents({ generation, seq }: EventPlace): Promise<void> {
    const ack = send('POST', '/events/ack', { generation, seq });
    await this.#connection.callBytes({ ...ack, isRepeatable: true });
  }
}

function egressPath(id: string): string {
  return `${vmPath(id)}/egress`;
}

/** Reveals a password. This is the only place where one leaves this process: into the runner's socket. */
function revealAccess({ login }: ImageLogin): ImageAccess {
  if (login === undefined) return {};
  return { credentials: { username: login.username, password: login.password.reveal() } };
}

async function* parseLines<T>(lines: AsyncIterable<string>, schema: z.ZodType<T>): AsyncGenerator<T> {
  for await (const line of lines) yield parseRunnerJson(line, schema);
}
