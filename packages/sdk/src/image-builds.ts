import { followBuildLog } from './image-build-log.ts';
import { parseBuild, type ImageBuildEvent, type ImageBuildInfo } from './image-build-record.ts';
import type { CallOptions } from './transport/client-options.ts';
import { CoppiceError } from './transport/errors.ts';
import { postOnce, slowTimeoutMs, type CreateCallOptions } from './transport/post-once.ts';
import type { Transport } from './transport/transport.ts';
import { sendContent, type FileContent } from './transport/upload.ts';
import { buildWireBody, encodeSegment, readArray, readObject, readString } from './transport/wire.ts';
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
const CONTEXTS_PATH = '/v1/images/contexts';

/** Builds images from steps or Dockerfiles. Available as `client.builds`. Calls reject with {@link CoppiceError}. */
export class ImageBuilds {
  readonly #transport: Transport;

  /** Called by {@link Coppice} only. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Builds an image and resolves when it is there. Rejects with {@link CoppiceError} of code `build_failed` if a step fails.
   * An abort ends only the wait: to be able to cancel the build, use `start()` and `follow()`.
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
      path: CONTEXTS_PATH,
      idempotent: false,
      signal: options.signal,
    };
    const parse = (value: unknown): string => readString(readObject(value, 'the context'), 'id');
    return sendContent(this.#transport, request, { content, parse });
  }

  /**
   * Removes a context that no build uses. It makes room for another: the service keeps only some for an organization.
   *
   * @example
   * await client.builds.deleteContext('context0123456789abcdef0123');
   */
  async deleteContext(id: string, options: CallOptions = {}): Promise<void> {
    const path = `${CONTEXTS_PATH}/${encodeSegment(id, 'the id of the context')}`;
    await this.#transport.callEmpty({ method: 'DELETE', path, idempotent: true, signal: options.signal });
  }

  /**
   * Gets a build.
   *
   * @example
   * const { status, stepsDone } = await client.builds.get('build0123456789abcdef0123');
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
   * await client.builds.cancel('build0123456789abcdef0123');
   */
  async cancel(id: string, options: CallOptions = {}): Promise<ImageBuildInfo> {
    const call = {
      method: 'DELETE' as const,
      path: buildPath(id),
      idempotent: true,
      signal: options.signal,
      timeoutMs: slowTimeoutMs(this.#transport),
    };
    return (await this.#transport.callJson(call, parseBuild)).value;
  }

  /**
   * Yields the log of a build to its end, and continues after lost connections, without loss or repetition. `after` is the
   * `seq` of the last event that you have.
   *
   * @example
   * for await (const event of client.builds.follow('build0123456789abcdef0123')) {
   *   if (event.type === 'stdout' || event.type === 'stderr') console.log(event.data);
   * }
   */
  follow(
    id: string,
    options: CallOptions & { after?: number | undefined } = {},
  ): AsyncGenerator<ImageBuildEvent, void, undefined> {
    const get = (): Promise<ImageBuildInfo> => this.get(id, { signal: options.signal });
    return followBuildLog(this.#transport, `${buildPath(id)}/log`, { ...options, get });
  }
}

function buildPath(id: string): string {
  return `${PATH}/${encodeSegment(id, 'the id of the build')}`;
}

function toWireStep(step: BuildStep): object {
  return 'copy' in step ? { copy: buildWireBody(step.copy, COPY_FIELDS, 'builds: copy') } : step;
}
