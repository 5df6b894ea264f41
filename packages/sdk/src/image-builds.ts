import { readEventData } from './streams/event-stream.ts';
import type { CallOptions } from './transport/client-options.ts';
import { CoppiceError } from './transport/errors.ts';
import { postOnce, type CreateCallOptions } from './transport/post-once.ts';
import { sleep } from './transport/sleep.ts';
import type { Transport } from './transport/transport.ts';
import { sendContent, type FileContent } from './transport/upload.ts';
import {
  buildQuery,
  buildWireBody,
  encodeSegment,
  readArray,
  readNumber,
  readObject,
  readOptionalNumber,
  readOptionalString,
  readString,
  type WireObject,
} from './transport/wire.ts';
import type { Shape } from './images.ts';

/** Files that a step copies into the image. */
export interface CopyStep {
  /** File or directory of the context; `*` and `?` stand for characters of a name. Of a directory, the content is copied. */
  fromPath: string;
  /** Target in the image; with a slash at its end, or if it is a directory: into it. */
  to: string;
  /** Name, uid, `name:group` or `uid:gid`. Default `0:0`. */
  owner?: string | undefined;
  /** Permissions in octal, such as `755`. Default: those in the context. */
  mode?: string | undefined;
}

/** One step of a build. */
export type BuildStep =
  /** A command for `/bin/sh -c`, or a program and its arguments. It must end with exit code 0. */
  | { run: string | readonly string[] }
  | { copy: CopyStep }
  /** Variables for the later steps and for the sandboxes of the image. */
  | { env: Readonly<Record<string, string>> }
  /** Directory for the later steps and for the sandboxes of the image. */
  | { workdir: string }
  /** User of the later steps and of the sandboxes of the image. */
  | { user: string };

/** Fields of all builds. */
interface BuildRequestBase extends Shape {
  /** Name of the new image, `app:1`. Sandboxes are created from `built/app:1`. A later build with the name replaces it. */
  name: string;
  /** Id of `uploadContext()`: the files that the steps copy. */
  context?: string | undefined;
  /** If true, all steps run. By default, a build begins with what the same first steps left in an earlier build. */
  noCache?: boolean | undefined;
  /** Seconds after which the build fails, 1–14 400. Default 1800. */
  timeout?: number | undefined;
  /** Network profile of the sandbox of the build. */
  networkProfile?: string | undefined;
}

/** Options of `client.builds.start()` and `run()`: an image and steps, or a Dockerfile. */
export type BuildRequest = BuildRequestBase &
  (
    | { from: string; steps: readonly BuildStep[]; dockerfile?: undefined }
    | { dockerfile: string; buildArgs?: Readonly<Record<string, string>> | undefined; from?: undefined }
  );

/** A build of an image from steps. */
export interface ImageBuildInfo {
  /** Id of the build. */
  id: string;
  /** `running`, `done`, `failed` or `cancelled`. A newer service may have more values. */
  status: string;
  /** Name of the image, `built/app:1`. */
  name: string;
  /** The image that the steps begin with. */
  from: string;
  /** Reference of the new image with its digest. Null until the build is done. */
  image: string | null;
  /** Size of the image as stored. Null until the build is done. */
  sizeBytes: number | null;
  /** Id of the sandbox of the build, which is destroyed at its end. There is none if all steps are cached. */
  sandboxId: string;
  /** Number of steps. */
  steps: number;
  /** Number of steps that are done. */
  stepsDone: number;
  /** Why it failed. */
  error: { code: string; message: string } | null;
  /** ISO 8601 UTC. */
  createdAt: string;
  /** ISO 8601 UTC. Null until then. */
  endedAt: string | null;
}

/** An event in the log of a build. `end` is the last. A newer service may have more types, which are left out. */
export type ImageBuildEvent =
  /** `cached`: the step does not run, because an earlier build has run the same steps. */
  | { type: 'step'; seq: number; step: number; text: string; cached: boolean }
  | { type: 'stdout' | 'stderr'; seq: number; step: number; data: string }
  | { type: 'note'; seq: number; text: string }
  | { type: 'end'; seq: number; build: ImageBuildInfo };

/** Options of `client.builds.run()`. */
export interface RunBuildOptions extends CreateCallOptions {
  /** Called with each event of the log. */
  onEvent?: ((event: ImageBuildEvent) => void) | undefined;
}

const FIELDS = {
  from: 'from',
  name: 'name',
  dockerfile: 'dockerfile',
  buildArgs: 'build_args',
  context: 'context',
  noCache: 'no_cache',
  timeout: 'timeout',
  networkProfile: 'network_profile',
  vcpus: 'vcpus',
  memMiB: 'mem_mib',
  diskMiB: 'disk_mib',
} as const;
const COPY_FIELDS = { fromPath: 'from_path', to: 'to', owner: 'owner', mode: 'mode' } as const;
const PATH = '/v1/images/builds';
const MAX_EVENT_LENGTH = 1 << 20;
/** Errors that may be over in a moment: the service starts again, or the network failed. */
const BROKEN: ReadonlySet<string> = new Set([
  'connection_failed',
  'connection_refused',
  'timeout',
  'unavailable',
]);
/** Attempts to continue a log that broke off without a new event. */
const MAX_BREAKS = 5;
const BREAK_MS = 1000;

/** Builds images from steps or Dockerfiles. Available as `client.builds`. Calls reject with {@link CoppiceError}. */
export class ImageBuilds {
  readonly #transport: Transport;

  /** Called by {@link Coppice} only. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Builds an image and resolves when it is there. Rejects with {@link CoppiceError} of code `build_failed` if a step fails.
   *
   * @example
   * await client.builds.run({ from: 'node:22-slim', name: 'app:1', steps: [{ run: 'npm install -g pnpm' }] });
   */
  async run(request: BuildRequest, options: RunBuildOptions = {}): Promise<ImageBuildInfo> {
    const { onEvent, ...call } = options;
    const { id } = await this.start(request, call);
    for await (const event of this.follow(id, { signal: options.signal })) onEvent?.(event);
    const build = await this.get(id, { signal: options.signal });
    if (build.status === 'done') return build;
    const reason = build.error?.message ?? `the build is ${build.status}`;
    throw new CoppiceError(`build ${id}: ${reason}`, { status: 0, code: 'build_failed', detail: reason });
  }

  /**
   * Starts a build, which continues without its client.
   *
   * @example
   * const { id } = await client.builds.start({ dockerfile: 'FROM node:22-slim\nRUN npm i -g pnpm', name: 'app:1' });
   */
  async start(request: BuildRequest, options: CreateCallOptions = {}): Promise<ImageBuildInfo> {
    const { steps, ...rest } = request as BuildRequest & { steps?: readonly BuildStep[] };
    const body = {
      ...buildWireBody(rest, FIELDS, 'builds.start'),
      detached: true,
      ...(steps !== undefined && { steps: steps.map(toWireStep) }),
    };
    return postOnce(this.#transport, { path: '/v1/images/build', body, call: options }, parseBuild);
  }

  /**
   * Uploads a tar with the files that a build copies. Returns its id, for one build within an hour.
   *
   * @example
   * const context = await client.builds.uploadContext(await openAsBlob('context.tar'));
   */
  async uploadContext(content: FileContent, options: CallOptions = {}): Promise<string> {
    const request = {
      method: 'POST' as const,
      path: '/v1/images/contexts',
      idempotent: false,
      signal: options.signal,
    };
    const parse = (value: unknown): string => readString(readObject(value, 'the context'), 'id');
    return sendContent(this.#transport, request, { content, parse });
  }

  /**
   * Gets a build.
   *
   * @example
   * const { status, stepsDone } = await client.builds.get(id);
   */
  async get(id: string, options: CallOptions = {}): Promise<ImageBuildInfo> {
    const path = buildPath(id);
    const call = { method: 'GET' as const, path, idempotent: true, signal: options.signal };
    return (await this.#transport.callJson(call, parseBuild)).value;
  }

  /**
   * Lists the newest 100 builds.
   *
   * @example
   * for (const { name, status } of await client.builds.list()) console.log(name, status);
   */
  async list(options: CallOptions = {}): Promise<ImageBuildInfo[]> {
    const call = { method: 'GET' as const, path: PATH, idempotent: true, signal: options.signal };
    return (await this.#transport.callJson(call, (value) => readArray(value, 'the builds', parseBuild)))
      .value;
  }

  /**
   * Cancels a build that runs. Resolves when its sandbox is destroyed.
   *
   * @example
   * await client.builds.cancel(id);
   */
  async cancel(id: string, options: CallOptions = {}): Promise<ImageBuildInfo> {
    const path = buildPath(id);
    const call = { method: 'DELETE' as const, path, idempotent: true, signal: options.signal };
    return (await this.#transport.callJson(call, parseBuild)).value;
  }

  /**
   * Yields the log of a build to its end, and continues where it broke off. `after` is the `seq` of the last event that you
   * have.
   *
   * @example
   * for await (const event of client.builds.follow(id)) {
   *   if (event.type === 'stdout' || event.type === 'stderr') console.log(event.data);
   * }
   */
  async *follow(
    id: string,
    { after = 0, signal }: CallOptions & { after?: number | undefined } = {},
  ): AsyncGenerator<ImageBuildEvent, void, undefined> {
    let last = after;
    for (let breaks = 0; ; breaks += 1) {
      try {
        for await (const event of this.#readLog(id, last, signal)) {
          breaks = 0;
          last = event.seq;
          yield event;
          if (event.type === 'end') return;
        }
      } catch (error) {
        const isBroken = error instanceof CoppiceError && BROKEN.has(error.code);
        if (!isBroken || breaks >= MAX_BREAKS) throw error;
      }
      if (breaks >= MAX_BREAKS)
        throw new CoppiceError(`build ${id}: its log has no end`, { status: 0, code: 'invalid_response' });
      await sleep(BREAK_MS, signal);
    }
  }

  async *#readLog(
    id: string,
    after: number,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<ImageBuildEvent, void, undefined> {
    const stream = await this.#transport.callStream({
      method: 'GET',
      path: `${buildPath(id)}/log`,
      query: buildQuery({ after }),
      headers: { accept: 'text/event-stream' },
      idempotent: true,
      signal,
    });
    for await (const data of readEventData(stream, MAX_EVENT_LENGTH)) {
      const event = parseEvent(readObject(JSON.parse(data), 'an event'));
      if (event !== undefined) yield event;
    }
  }
}

function buildPath(id: string): string {
  return `${PATH}/${encodeSegment(id, 'the id of the build')}`;
}

function toWireStep(step: BuildStep): object {
  return 'copy' in step ? { copy: buildWireBody(step.copy, COPY_FIELDS, 'builds: copy') } : step;
}

function parseEvent(event: WireObject): ImageBuildEvent | undefined {
  const type = event['type'];
  if (type === 'end') return { type, seq: readNumber(event, 'seq'), build: parseBuild(event['build']) };
  if (type === 'note') return { type, seq: readNumber(event, 'seq'), text: readString(event, 'text') };
  if (type !== 'step' && type !== 'stdout' && type !== 'stderr') return undefined;
  const place = { seq: readNumber(event, 'seq'), step: readNumber(event, 'step') };
  if (type === 'step')
    return { type, ...place, text: readString(event, 'text'), cached: event['cached'] === true };
  return { type, ...place, data: readString(event, 'data') };
}

function parseBuild(value: unknown): ImageBuildInfo {
  const record = readObject(value, 'the build');
  const error = record['error'] === null ? null : readObject(record['error'], 'the error of the build');
  return {
    id: readString(record, 'id'),
    status: readString(record, 'status'),
    name: readString(record, 'name'),
    from: readString(record, 'from'),
    image: readOptionalString(record, 'image'),
    sizeBytes: readOptionalNumber(record, 'size_bytes'),
    sandboxId: readString(record, 'run_id'),
    steps: readNumber(record, 'steps'),
    stepsDone: readNumber(record, 'steps_done'),
    error: error && { code: readString(error, 'code'), message: readString(error, 'message') },
    createdAt: readString(record, 'created_at'),
    endedAt: readOptionalString(record, 'ended_at'),
  };
}
