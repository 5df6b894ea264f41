/** Operations on persistent disks that control asks for, on disks that are attached here and on those that are not. */
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { AppError } from '@coppice/contract';
import type { z } from 'zod';
import { runCommand } from '../../lib/process/run-command.ts';
import {
  CollectedDisks,
  StoredDisk,
  type CapturedWorkspace,
  type DiskFormat,
  type DiskState,
  type DiskVersion,
  type ForkDisk,
  type TakeSnapshot,
} from '../../lib/protocol/disk-protocol.ts';
import { DeadlineError } from '../../lib/waiting/deadline.ts';
import { SingleFlight } from '../../lib/waiting/single-flight.ts';
import type { AgentSession } from '../agent-client/agent-session.ts';
import type { DiskGuard } from '../capacity/disk-guard.ts';
import type { Attachment } from './attachment.ts';
import type { SealedMoment } from './sealed-moment.ts';
import { DiskManifest, Nothing } from './block-requests.ts';
import { BlockServerError, type BlockServer } from './block-server.ts';
import { growWorkspace, syncWorkspace, whileFrozen } from './guest-workspace.ts';
import type { Workspaces } from './workspaces.ts';
import { keepMoment } from './disk-moments.ts';

const FORMAT_OPTIONS = 'lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0';
const IMPORT_TIMEOUT_MS = 60 * 60_000;
const COLLECT_TIMEOUT_MS = 30 * 60_000;
/** Counting what a disk stores reads all maps of its family. */
const STORED_TIMEOUT_MS = 10 * 60_000;
/** A disk of this runner is described also while the object store does not answer. */
const HELD_TIMEOUT_MS = 2000;
const MIB = 1024 * 1024;

export interface DiskOperationsParts {
  server: BlockServer;
  workspaces: Workspaces;
  /** Directory of images in the making; below that of the overlays. */
  directory: string;
  /** Name of that directory below that of the overlays. */
  name: string;
  mke2fs: string;
  disk: DiskGuard;
  /** Returns the session with the agent of a VM. */
  sessionOf: (vmId: string) => Promise<AgentSession>;
}

export interface DiskKey {
  organization: string;
  disk: string;
}

export class DiskOperations {
  readonly #parts: DiskOperationsParts;
  readonly #creates = new SingleFlight<DiskState>();
  #lastImage = 0;

  constructor(parts: DiskOperationsParts) {
    this.#parts = parts;
    // Of an earlier process.
    rmSync(parts.directory, { recursive: true, force: true });
    mkdirSync(parts.directory, { recursive: true, mode: 0o711 });
  }

  async state(key: DiskKey): Promise<DiskState> {
    const { workspaces } = this.#parts;
    const attachment = workspaces.find(key.organization, key.disk);
    try {
      const how = attachment === undefined ? undefined : { timeoutMs: HELD_TIMEOUT_MS };
      const head = await this.#ask({ op: 'stat' }, key, DiskManifest, how);
      return {
        disk: key.disk,
        version: head.version,
        size_bytes: head.size_bytes,
        drained_at: new Date(head.drained_ms).toISOString(),
        attachment: attachment?.describe() ?? null,
        is_held_elsewhere: head.runner !== '' && head.runner !== workspaces.runner,
      };
    } catch (error) {
      if (attachment === undefined || !isAway(error)) throw error;
      return describeHeld(attachment);
    }
  }

  /** Creates a disk with an empty file system. A repeated request joins one that is running. */
  create(key: DiskKey, sizeBytes: number): Promise<DiskState> {
    const flight = `${key.organization}/${key.disk}/${sizeBytes}`;
    return this.#creates.run(flight, () => this.#create(key, sizeBytes));
  }

  async #create(key: DiskKey, sizeBytes: number): Promise<DiskState> {
    const { mke2fs } = this.#parts;
    const { name, path } = this.#newImage();
    try {
      writeFileSync(path, '', { mode: 0o644 });
      truncateSync(path, sizeBytes);
      await runCommand(mke2fs, ['-t', 'ext4', '-F', '-q', '-m', '0', '-E', FORMAT_OPTIONS, path]);
      await this.#importFile(key, { name, format: 'raw', sizeBytes });
    } finally {
      rmSync(path, { force: true });
    }
    return this.state(key);
  }

  /** Makes a disk from an image that `content` sends. Throws `invalid_request` if it is not of the format. */
  async import(
    key: DiskKey,
    content: Readable,
    how: { format: DiskFormat; sizeBytes: number },
  ): Promise<DiskState> {
    const { disk } = this.#parts;
    const { name, path } = this.#newImage();
    try {
      let sizeBytes = 0;
      let sinceCheck = 0;
      const meter = async function* (source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
        for await (const chunk of source) {
          sizeBytes += chunk.length;
          assertImageSize(sizeBytes, how);
          sinceCheck += chunk.length;
          if (sinceCheck > 64 * MIB) {
            disk.assertRoom(128);
            sinceCheck = 0;
          }
          yield chunk;
        }
      };
      await pipeline(content, meter, createWriteStream(path, { mode: 0o644 }));
      await this.#importFile(key, { name, ...how });
    } finally {
      rmSync(path, { force: true });
    }
    return this.state(key);
  }

  /** A name of its own for each attempt: control repeats a request while the first is still reading its file. */
  #newImage(): { name: string; path: string } {
    this.#lastImage += 1;
    const name = `${this.#lastImage}.image`;
    return { name, path: join(this.#parts.directory, name) };
  }

  async #importFile(
    key: DiskKey,
    image: { name: string; format: DiskFormat; sizeBytes: number },
  ): Promise<void> {
    const { name, format, sizeBytes: size_bytes } = image;
    const overlay = join(this.#parts.name, name);
    const how = { timeoutMs: IMPORT_TIMEOUT_MS };
    // An import is done once, however often it is asked for.
    const source = `import-${key.disk}`;
    await this.#ask({ op: 'import', size_bytes, overlay, format, source }, key, DiskManifest, how);
  }

  /** Returns a version as a stream of bytes. */
  export(key: DiskKey, how: { version?: number; format: DiskFormat }): Readable {
    const { command, args, env } = this.#parts.server.exportCommand(key, how);
    const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    return Readable.from(readAll(child), { objectMode: false });
  }

  async remove(key: DiskKey): Promise<void> {
    await this.#assertFree(key);
    try {
      await this.#ask({ op: 'delete' }, key, Nothing);
    } catch (error) {
      // A repeated request.
      if (!(error instanceof BlockServerError) || error.reason !== 'no_disk') throw error;
    }
  }

  stored(key: DiskKey): Promise<StoredDisk> {
    return this.#ask({ op: 'stored' }, key, StoredDisk, { timeoutMs: STORED_TIMEOUT_MS });
  }

  async snapshot(key: DiskKey, { snapshot, sync }: TakeSnapshot): Promise<DiskVersion> {
    const attachment = this.#parts.workspaces.find(key.organization, key.disk);
    const keep = async (): Promise<{ version: number; size_bytes: number }> => {
      if (attachment?.hasGuest === true) return this.#keepSealed(attachment, { snapshot, sync });
      await this.#assertFree(key);
      return this.#ask({ op: 'snapshot', name: snapshot }, key, DiskManifest);
    };
    const kept = await keep();
    return { version: kept.version, size_bytes: kept.size_bytes, created_at: new Date().toISOString() };
  }

  async #keepSealed(attachment: Attachment, { snapshot, sync }: TakeSnapshot): Promise<CapturedWorkspace> {
    using moment = sync ? await this.#sealSynced(attachment) : await attachment.seal();
    return await keepMoment(attachment, moment, snapshot);
  }

  async #sealSynced(attachment: Attachment): Promise<SealedMoment> {
    const session = await this.#parts.sessionOf(attachment.record.vm_id);
    await using sealing = await attachment.beginSeal();
    using undo = new DisposableStack();
    const moment = await whileFrozen(session, async () => undo.use(await sealing.push()));
    undo.move();
    return moment;
  }

  /** Waits for a rollback to that version, which needs it. */
  async removeSnapshot(key: DiskKey, version: number): Promise<void> {
    const needed = this.#parts.workspaces.findReverting(key.organization, key.disk, version);
    if (needed?.isReplacement === true)
      throw new AppError('unavailable', 'the sandbox is being rolled back to this snapshot; try again later');
    await needed?.revert();
    await this.#ask({ op: 'remove_snapshot', version }, key, Nothing);
  }

  /** The version of a capture need not be kept any more; the disk may be gone. */
  async forgetVersion({ organization, disk, version }: CapturedWorkspace): Promise<void> {
    try {
      await this.removeSnapshot({ organization, disk }, version);
    } catch (error) {
      const isGone = error instanceof BlockServerError && ['no_disk', 'no_data'].includes(error.reason);
      if (!isGone) throw error;
    }
  }

  async fork(key: DiskKey, { version, to }: ForkDisk): Promise<DiskState> {
    try {
      await this.#ask({ op: 'fork', version, to }, key, DiskManifest);
    } catch (error) {
      // A repeated request: ids are never used again.
      if (!(error instanceof BlockServerError) || error.reason !== 'exists') throw error;
    }
    return this.state({ ...key, disk: to });
  }

  /** Waits until everything that the guest has written is in the object store. */
  async flush(key: DiskKey): Promise<DiskState> {
    const attachment = this.#parts.workspaces.find(key.organization, key.disk);
    if (attachment?.hasGuest === true) {
      await syncWorkspace(await this.#parts.sessionOf(attachment.record.vm_id));
      await attachment.flush();
    } else await this.#assertFree(key);
    return this.state(key);
  }

  async grow(key: DiskKey, sizeBytes: number): Promise<DiskState> {
    const attachment = this.#parts.workspaces.find(key.organization, key.disk);
    if (attachment?.hasGuest === true) {
      await attachment.grow(sizeBytes);
      await growWorkspace(await this.#parts.sessionOf(attachment.record.vm_id), sizeBytes);
    } else {
      await this.#assertFree(key);
      await this.#ask({ op: 'grow', size_bytes: sizeBytes }, key, DiskManifest);
    }
    return this.state(key);
  }

  collect(organization: string): Promise<z.infer<typeof CollectedDisks>> {
    const request = { op: 'collect', org: organization };
    return this.#parts.server.ask(request, CollectedDisks, { timeoutMs: COLLECT_TIMEOUT_MS });
  }

  /** Throws `disk_in_use`. Releases a disk that this runner took for a VM which never came to be. */
  async #assertFree(key: DiskKey): Promise<void> {
    const { workspaces } = this.#parts;
    const attachment = workspaces.find(key.organization, key.disk);
    if (attachment === undefined) return workspaces.releaseUnused(key);
    const { vm_id, state } = attachment.describe();
    throw new AppError('disk_in_use', `the sandbox ${vm_id} has the disk (${state})`);
  }

  #ask<T>(
    request: { op: string } & Record<string, string | number>,
    { organization: org, disk }: DiskKey,
    answer: z.ZodType<T>,
    how?: { timeoutMs: number },
  ): Promise<T> {
    return this.#parts.server.ask({ org, disk, ...request }, answer, how);
  }
}

/** Whether the object store or the block server did not answer in time. */
function isAway(error: unknown): boolean {
  return error instanceof DeadlineError || (error instanceof AppError && error.code === 'unavailable');
}

/** Describes a disk without the object store: why it does not answer is what callers want to know then. */
function describeHeld(attachment: Attachment): DiskState {
  const { disk, version, size_bytes, drained_at } = attachment.record;
  const described = attachment.describe();
  return { disk, version, size_bytes, drained_at, attachment: described, is_held_elsewhere: false };
}

/** A qcow2 file is larger than its content, and may have more of it than the disk. */
const QCOW2_OVERHEAD = 2;

function assertImageSize(
  bytes: number,
  { format, sizeBytes }: { format: DiskFormat; sizeBytes: number },
): void {
  const limit = format === 'raw' ? sizeBytes : QCOW2_OVERHEAD * sizeBytes + 64 * MIB;
  if (bytes > limit)
    throw new AppError(
      'invalid_request',
      `the image has more than ${limit} bytes, and the disk ${sizeBytes}`,
    );
}

/** Yields the output of a program. Its end is the end of the content only if the program succeeds. */
async function* readAll(child: ChildProcessByStdio<null, Readable, Readable>): AsyncGenerator<Buffer> {
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => (said = (said + chunk.toString('utf8')).slice(-2000)));
  // Also rejects if the program cannot be started.
  const ended = once(child, 'close') as Promise<[code: number | null]>;
  ended.catch(() => undefined);
  try {
    for await (const chunk of child.stdout) yield chunk as Buffer;
    const [code] = await ended;
    if (code !== 0) throw new AppError('internal', `the disk was not exported: ${said.trim()}`);
  } finally {
    child.kill();
  }
}
