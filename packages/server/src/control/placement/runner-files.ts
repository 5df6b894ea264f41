/** Calls of the agent, through the runner, about files, apart from their transfer (docs/reference/agent-protocol.md). */
import type { Readable } from 'node:stream';
import {
  AppError,
  FileChange,
  FileDetails,
  UnpackResult,
  type ArchiveQuery,
  type ChangeFileMode,
  type ChangeFileOwner,
  type MakeDirectory,
  type MoveFile,
  type RemoveFileQuery,
  type UnpackQuery,
  type WatchFilesQuery,
} from '@coppice/contract';
import { z } from 'zod';
import { agentPath, askGuest, readGuest, readGuestLines } from './guest-requests.ts';
import { get, send, type RunnerAnswer, type RunnerConnection } from './runner-connection.ts';

/** The agent ends a change of a tree after 45 s. */
const CHANGE_DEADLINE_MS = 60_000;
/** An entry has two paths of at most 4 KiB, escaped. */
const MAX_ENTRY_BYTES = 64 << 10;
const HEAD_DEADLINE_MS = 30_000;
/** The agent reads all directories first. */
const WATCH_DEADLINE_MS = 60_000;
/** A rename has two paths. */
const MAX_LINE_BYTES = 64 << 10;

const ENTRY = { schema: FileDetails, maxBytes: MAX_ENTRY_BYTES };

export interface Unpacking extends UnpackQuery {
  content: Readable;
  /** Deadline for the whole upload, up to the agent's answer. */
  deadlineMs: number;
  signal: AbortSignal;
}

export class RunnerFiles {
  readonly #connection: RunnerConnection;

  constructor(connection: RunnerConnection) {
    this.#connection = connection;
  }

  async stat(sandboxId: string, path: string): Promise<FileDetails> {
    return readGuest(this.#connection, get(agentPath(sandboxId, 'files/stat', { path })), ENTRY);
  }

  makeDirectory(sandboxId: string, body: MakeDirectory): Promise<FileDetails> {
    return this.#change(sandboxId, { route: 'mkdir', body });
  }

  move(sandboxId: string, body: MoveFile): Promise<FileDetails> {
    return this.#change(sandboxId, { route: 'move', body });
  }

  async remove(sandboxId: string, { path, recursive }: RemoveFileQuery): Promise<void> {
    const request = send(
      'POST',
      agentPath(sandboxId, 'files/remove'),
      { path, recursive },
      CHANGE_DEADLINE_MS,
    );
    await readGuest(this.#connection, request, { schema: z.object({}), maxBytes: MAX_ENTRY_BYTES });
  }

  changeMode(sandboxId: string, body: ChangeFileMode): Promise<FileDetails> {
    return this.#change(sandboxId, { route: 'chmod', body });
  }

  changeOwner(sandboxId: string, body: ChangeFileOwner): Promise<FileDetails> {
    return this.#change(sandboxId, { route: 'chown', body });
  }

  /** Returns an answer whose stream is the archive. */
  openArchive(sandboxId: string, { path, format }: ArchiveQuery): Promise<RunnerAnswer> {
    const request = get(agentPath(sandboxId, 'files/archive', { path, format }));
    return askGuest(this.#connection, { ...request, headDeadlineMs: HEAD_DEADLINE_MS });
  }

  async unpack(
    sandboxId: string,
    { path, format, user, content, deadlineMs, signal }: Unpacking,
  ): Promise<UnpackResult> {
    const request = {
      method: 'PUT' as const,
      path: agentPath(sandboxId, 'files/archive', { path, format, user }),
      headers: { 'content-type': 'application/octet-stream' },
      body: content,
      headDeadlineMs: deadlineMs,
      signal,
    };
    return readGuest(this.#connection, request, { schema: UnpackResult, maxBytes: MAX_ENTRY_BYTES });
  }

  /** Resolves when all changes from then on are reported, with an answer for {@link readChanges}. */
  openWatch(sandboxId: string, { path, recursive }: WatchFilesQuery): Promise<RunnerAnswer> {
    const request = get(agentPath(sandboxId, 'files/watch', { path, recursive: String(recursive) }));
    return askGuest(this.#connection, { ...request, headDeadlineMs: WATCH_DEADLINE_MS, isEndless: true });
  }

  async #change(
    sandboxId: string,
    { route, body }: { route: 'mkdir' | 'move' | 'chmod' | 'chown'; body: object },
  ): Promise<FileDetails> {
    const request = send('POST', agentPath(sandboxId, `files/${route}`), body, CHANGE_DEADLINE_MS);
    return readGuest(this.#connection, request, ENTRY);
  }
}

/** Yields changes until the stream ends. It may also have been cut off: only the change `ended` is an end. */
export async function* readChanges(answer: RunnerAnswer, signal: AbortSignal): AsyncGenerator<FileChange> {
  try {
    yield* readGuestLines(answer, { schema: FileChange, maxLineBytes: MAX_LINE_BYTES, signal });
  } catch (cause) {
    if (cause instanceof AppError) throw cause;
    throw new AppError('guest_unreachable', 'the watch of files was cut off', { cause });
  }
}
