/** Operations on persistent disks that control asks for, on disks that are attached here and on those that are not. */
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { AppError } from '@coppice/contract';
import type { z } from 'zod';
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
import type { Attachment } from './attachment.ts';
import type { SealedMoment } from './sealed-moment.ts';
import { DiskManifest, Nothing } from './block-requests.ts';
import { BlockServerError } from './block-server.ts';
import { DiskImports, type DiskImportsParts, type DiskKey, type ImageLimits } from './disk-imports.ts';
import { growWorkspace, syncWorkspace, whileFrozen } from './guest-workspace.ts';
import type { Workspaces } from './workspaces.ts';
import { keepMoment } from './disk-moments.ts';

const COLLECT_TIMEOUT_MS = 30 * 60_000;
/** Counting what a disk stores reads all maps of its family. */
const STORED_TIMEOUT_MS = 10 * 60_000;
/** A disk of this runner is described also while the object store does not answer. */
const HELD_TIMEOUT_MS = 2000;

export interface DiskOperationsParts extends DiskImportsParts {
  workspaces: Workspaces;
  /** Returns the session with the agent of a VM. */
  sessionOf: (vmId: string) => Promise<AgentSession>;
}

export class DiskOperations {
  readonly #parts: DiskOperationsParts;
  readonly #creates = new SingleFlight<DiskState>();
  readonly #imports: DiskImports;

  constructor(parts: DiskOperationsParts) {
    this.#parts = parts;
    this.#imports = new DiskImports(parts);
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
    await this.#imports.format(key, sizeBytes);
    return this.state(key);
  }

  /** Makes a disk from an image. Throws `invalid_request` if it cannot be used, `payload_too_large`, or `capacity`. */
  async import(key: DiskKey, content: AsyncIterable<Buffer>, how: ImageLimits): Promise<DiskState> {
    await this.#imports.receive(key, content, how);
    return this.state(key);
  }

  /** Returns a version as a stream of bytes. */
  export(key: DiskKey, how: { version?: number; format: DiskFormat }): Readable {
    const { command, args, env } = this.#parts.server.exportCommand(key, how);
    const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    return Readable.from(readAll(child), { objectMode: false });
  }

  /** Waits for an import of the disk, which would otherwise make it later. */
  async remove(key: DiskKey): Promise<void> {
    await this.#imports.settle(key);
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
