/**
 * Reads the log of a build to its end.
 *
 *   log ──► connection lost ──► wait ──► log after the last event
 *    │
 *    ├────► closed, the build runs ──► the same
 *    └────► closed, the build has ended ──► log once more ──► closed again ──► an end from the record of the build
 */
import { parseBuildEvent, type ImageBuildEvent, type ImageBuildInfo } from './image-build-record.ts';
import { readEventData } from './streams/event-stream.ts';
import { parseFrame } from './streams/stream-frame.ts';
import type { CallOptions } from './transport/client-options.ts';
import { CoppiceError } from './transport/errors.ts';
import { Persistence } from './transport/lost-connection.ts';
import { labelOf, type CallRequest, type Transport } from './transport/transport.ts';
import { buildQuery } from './transport/wire.ts';

/** In characters. An event has at most 64 KiB of output, which JSON can make six times as long. */
const MAX_EVENT_LENGTH = 1 << 20;
/** The service sends an event or a comment at least every 15 s. */
const SILENCE_MS = 60_000;
/** Attempts to continue, one after the other, before the error is the caller's. */
const MAX_FAILURES = 8;

/** Options of {@link followBuildLog}. */
export interface FollowBuildOptions extends CallOptions {
  /** `seq` of the last event that the caller has. Default 0. */
  after?: number | undefined;
  /** Gets the record of the build. */
  get: () => Promise<ImageBuildInfo>;
}

/** Yields the events of the log at `path`. After a lost connection it continues where it was: nothing is repeated or left out. */
export async function* followBuildLog(
  transport: Transport,
  path: string,
  { after = 0, get, signal }: FollowBuildOptions,
): AsyncGenerator<ImageBuildEvent, void, undefined> {
  let last = after;
  let ended: ImageBuildInfo | undefined;
  const persistence = new Persistence(MAX_FAILURES);
  for (;;) {
    try {
      for await (const event of readLog(transport, path, { after: last, persistence, signal })) {
        persistence.noteProgress();
        last = event.seq;
        yield event;
        if (event.type === 'end') return;
      }
      if (ended !== undefined) {
        yield { type: 'end', seq: last + 1, build: ended };
        return;
      }
      ended = await getIfEnded(get);
      // Events may have come between the end of the log and that of the build.
      if (ended !== undefined) continue;
      throw new CoppiceError(`GET ${path}: the log ended before the build`, {
        status: 0,
        code: 'connection_failed',
      });
    } catch (error) {
      await persistence.waitAfter(error, signal);
    }
  }
}

async function getIfEnded(get: () => Promise<ImageBuildInfo>): Promise<ImageBuildInfo | undefined> {
  const build = await get();
  return build.endedAt === null ? undefined : build;
}

async function* readLog(
  transport: Transport,
  path: string,
  { after, persistence, signal }: CallOptions & { after: number; persistence: Persistence },
): AsyncGenerator<ImageBuildEvent, void, undefined> {
  const request = {
    method: 'GET' as const,
    path,
    query: buildQuery({ after }),
    headers: { accept: 'text/event-stream' },
    idempotent: true,
    signal,
    stallMs: Math.max(SILENCE_MS, transport.timeoutMs),
  };
  const stream = await transport.callStream(request);
  for await (const text of persistence.watch(readEventData(stream, MAX_EVENT_LENGTH))) {
    const event = parseEvent(text, request);
    if (event !== undefined) yield event;
  }
}

/** Throws {@link CoppiceError}, also for an event that says that the log has failed. */
function parseEvent(text: string, request: CallRequest): ImageBuildEvent | undefined {
  const label = labelOf(request);
  try {
    const { type, frame } = parseFrame(text, { label, status: 200 });
    return parseBuildEvent(type, frame);
  } catch (error) {
    if (error instanceof CoppiceError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new CoppiceError(`${label}: invalid log of a build: ${why}`, {
      status: 200,
      code: 'invalid_response',
      cause: error,
    });
  }
}
