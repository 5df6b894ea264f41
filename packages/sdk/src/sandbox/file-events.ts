import { readEventData } from '../streams/event-stream.ts';
import { parseFrame } from '../streams/stream-frame.ts';
import type { CallOptions } from '../transport/client-options.ts';
import { CoppiceError } from '../transport/errors.ts';
import type { Transport } from '../transport/transport.ts';
import { buildQuery, readFlag, readOptionalString, readString, type WireObject } from '../transport/wire.ts';

/** Options of `sandbox.files.watch()`. */
export interface WatchFilesOptions extends CallOptions {
  /** Also watches all directories below, at most 8192. Default false. */
  recursive?: boolean | undefined;
}

/** A change of a file, or a gap between changes. */
export type FileEvent =
  | {
      /** `modified` is the content, `attributes` mode, owner and times. */
      type: 'created' | 'modified' | 'attributes' | 'removed';
      /** Absolute path. */
      path: string;
      /** Whether it is a directory. */
      directory: boolean;
    }
  | {
      type: 'renamed';
      /** The new path. */
      path: string;
      /** The old path. */
      from: string;
      directory: boolean;
    }
  | {
      /** Changes are missing: list the directory. */
      type: 'lost';
      /** A directory that cannot be watched. Null: changes came faster than they were read. */
      path: string | null;
    };

/** In characters. An event has two paths of at most 4 KiB, escaped. */
const MAX_EVENT_LENGTH = 1 << 18;
/** The service sends a comment every 15 s. */
const STALL_MS = 60_000;

/**
 * Begins a watch, and resolves when it has begun. The generator returns when the directory is gone. `path` is that of the
 * files below the base URL.
 */
export async function watchFiles(
  transport: Transport,
  path: string,
  directory: string,
  { recursive, signal }: WatchFilesOptions,
): Promise<AsyncGenerator<FileEvent, void, undefined>> {
  const flag = recursive === undefined ? undefined : String(recursive);
  const body = await transport.callStream({
    method: 'GET',
    path: `${path}/watch`,
    query: buildQuery({ path: directory, recursive: flag }),
    headers: { accept: 'text/event-stream' },
    idempotent: true,
    stallMs: STALL_MS,
    signal,
  });
  return readFileEvents(body, `GET ${path}/watch`);
}

async function* readFileEvents(
  body: ReadableStream<Uint8Array>,
  label: string,
): AsyncGenerator<FileEvent, void, undefined> {
  for await (const text of readEventData(body, MAX_EVENT_LENGTH)) {
    const { type, frame } = parseFrame(text, { label, status: 200 });
    if (type === 'ended') return;
    const event = parseFileEvent(type, frame);
    if (event !== undefined) yield event;
  }
  throw new CoppiceError(`${label}: the stream ended before the directory`, {
    status: 0,
    code: 'connection_failed',
  });
}

/** Returns undefined for a type of a later version of the service. */
function parseFileEvent(type: string, frame: WireObject): FileEvent | undefined {
  switch (type) {
    case 'created':
    case 'modified':
    case 'attributes':
    case 'removed':
      return { type, path: readString(frame, 'path'), directory: readFlag(frame, 'directory') };
    case 'renamed': {
      const paths = { path: readString(frame, 'path'), from: readString(frame, 'from') };
      return { type, ...paths, directory: readFlag(frame, 'directory') };
    }
    case 'lost':
      return { type, path: readOptionalString(frame, 'path') };
    default:
      return undefined;
  }
}
