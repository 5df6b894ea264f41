/**
 * `coppice images build`: uploads the context, starts the build, and shows its log.
 *
 *   upload ── Ctrl-C ─► the upload ends ─► exit
 *   start ─── Ctrl-C ─► its answer is awaited, for the id ─┐
 *   log ───── Ctrl-C ─────────────────────────────────────┴─► the build is cancelled ── Ctrl-C ─► exit, the build may continue
 */
import { Readable } from 'node:stream';
import {
  CoppiceError,
  type BuildRequest,
  type Coppice,
  type ImageBuildInfo,
} from '../../../sdk/src/index.ts';
import { Ended, withSignals } from '../attach/signals.ts';
import { describeFailure, Failure } from '../output/failure.ts';
import type { Output } from '../output/output.ts';
import { readBuildFiles } from './build-files.ts';
import { BuildLogView } from './build-log-view.ts';
import { packContext } from './pack-context.ts';

/** The service waits at most a minute for the end of the sandbox. */
const CANCEL_MS = 90_000;
const DROP_MS = 10_000;
/** Statuses with which the service refuses a build before it begins. */
const REFUSALS: ReadonlySet<number> = new Set([400, 401, 402, 403, 404, 413, 422, 429, 503]);

export interface BuildCall {
  client: Coppice;
  out: Output;
  directory: string;
  /** Path of the Dockerfile; by default that of the directory. */
  file: string | undefined;
  /** The request, apart from the Dockerfile and the context. */
  request: Omit<Extract<BuildRequest, { dockerfile: string }>, 'dockerfile' | 'context'>;
  /** True: returns as soon as the build runs. */
  isDetached: boolean;
}

/** Resolves with the finished build, or with the one that runs. Rejects with the reason if it fails. */
export async function buildFromDirectory(call: BuildCall): Promise<ImageBuildInfo> {
  const { client, directory, file } = call;
  const files = await readBuildFiles(directory, file);
  const attempt = new Attempt(call);
  return withSignals(attempt, async () => {
    const archive = Readable.toWeb(Readable.from(packContext(directory, files.rules)));
    const uploading = client.builds.uploadContext(archive as ReadableStream<Uint8Array>, {
      signal: attempt.signal,
    });
    const context = await call.out.during('uploading the context …', uploading);
    const { dockerfile } = files;
    const build = await attempt.start({ ...call.request, dockerfile, context });
    return call.isDetached ? build : attempt.follow(build);
  });
}

/** One build, from the start to the end. Signals call its handlers. */
class Attempt {
  readonly #client: Coppice;
  readonly #out: Output;
  readonly #ending = new AbortController();
  /** Whether the service may have started a build. */
  #isRequested = false;
  #id: string | undefined;

  constructor({ client, out }: Pick<BuildCall, 'client' | 'out'>) {
    this.#client = client;
    this.#out = out;
  }

  /** Fires when a signal has asked for the end. */
  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  readonly onEnd = (reason: Ended): void => {
    if (this.#isRequested && this.#id === undefined && !this.signal.aborted)
      this.#out.note('coppice: waiting for the start of the build, to cancel it …');
    this.#ending.abort(reason);
  };

  readonly onInterrupt = (count: number): void => {
    const reason = new Ended('SIGINT');
    this.onEnd(reason);
    if (count === 1) return;
    if (this.#id !== undefined) this.#noteLeft(this.#id);
    else if (this.#isRequested)
      this.#out.note('coppice: the build may have started: "coppice images builds" lists it');
    process.exit(reason.exitCode);
  };

  /** Starts the build. If it is refused, its context is removed: it would wait for an hour and count towards the limit. */
  async start(request: BuildRequest & { context: string }): Promise<ImageBuildInfo> {
    const { builds } = this.#client;
    try {
      this.signal.throwIfAborted();
      this.#isRequested = true;
      const build = await builds.start(request);
      this.#id = build.id;
      this.#out.note(`build ${build.id}; "coppice images build-log ${build.id}" shows this log again`);
      if (this.signal.aborted) await this.#cancel(build.id);
      return build;
    } catch (error) {
      if (isRefusal(error) || !this.#isRequested)
        // If this fails, too, the service removes it in an hour. The reason of the refusal counts.
        await builds
          .deleteContext(request.context, { signal: AbortSignal.timeout(DROP_MS) })
          .catch(() => undefined);
      throw error;
    }
  }

  /** Shows the log on standard error, so that the result alone is on standard output. */
  async follow({ id }: ImageBuildInfo): Promise<ImageBuildInfo> {
    const view = new BuildLogView(process.stderr);
    let ended: ImageBuildInfo | undefined;
    try {
      for await (const event of this.#client.builds.follow(id, { signal: this.signal })) {
        await view.show(event);
        if (event.type === 'end') ended = event.build;
      }
      if (ended === undefined) throw new Failure(`the log of build ${id} has no end`);
    } catch (error) {
      // It fails if the reader of the log has left.
      await view.end().catch(() => undefined);
      if (this.signal.aborted) return this.#cancel(id);
      this.#noteLeft(id);
      throw error;
    }
    return requireDone(ended);
  }

  /** The build outlives this process, and is billed. */
  #noteLeft(id: string): void {
    this.#out.note(`coppice: the build may continue: "coppice images cancel ${id}" cancels it`);
  }

  /** Throws Ended. */
  async #cancel(id: string): Promise<never> {
    this.#out.note('coppice: cancelling the build …');
    try {
      const build = await this.#client.builds.cancel(id, { signal: AbortSignal.timeout(CANCEL_MS) });
      const state = build.status === 'cancelled' ? 'is cancelled' : `had ended before: ${build.status}`;
      this.#out.note(`coppice: build ${id} ${state}`);
    } catch (error) {
      this.#out.note(
        `coppice: the build could not be cancelled: ${describeFailure(error)}; "coppice images cancel ${id}" tries again`,
      );
    }
    throw this.signal.reason;
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof CoppiceError && REFUSALS.has(error.status);
}

function requireDone(build: ImageBuildInfo): ImageBuildInfo {
  if (build.status === 'done') return build;
  throw new Failure(reasonOf(build) ?? `the build is ${build.status}`);
}

/** Returns in one line why a build failed. Undefined: it has not. */
export function reasonOf({ error }: ImageBuildInfo): string | undefined {
  return error?.message.replaceAll('\n', ' ');
}
