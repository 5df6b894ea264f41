/**
 * Persistent disks of the fake runner: entries in a map. Like the real runner it gives a disk to one VM at a time, keeps
 * it until what the VM wrote is stored, and does each id once.
 */
import type { ServerHttp2Stream } from 'node:http2';
import { AppError } from '@coppice/contract';
import { hostMoment, type HostMoment } from '../../../lib/host-clock.ts';
import {
  ExportDisk,
  ForkDisk,
  GrowDisk,
  ImportDisk,
  NewDisk,
  TakeSnapshot,
  type CapturedWorkspace,
  type DiskState,
  type DiskVersion,
  type MountedWorkspace,
  type VmWorkspace,
} from '../../../lib/protocol/disk-protocol.ts';
import { answer, readAll } from './fake-answers.ts';

const NOTHING = (): void => undefined;
const DIRTY_BYTES = 4096;

export interface FakeDisk {
  organization: string;
  id: string;
  version: number;
  sizeBytes: number;
  /** By version. A version that is not here has the size of the last one before it. */
  sizes: Map<number, number>;
  drainedAt: string;
  /** The VM that has it, or had it until its writes are stored. */
  holder: string | undefined;
  /** How often it is still shown as detaching after its VM is gone. */
  polls: number;
  /** Whether the VM may have written since the last capture. */
  isDirty: boolean;
  parent: string | undefined;
  /** Versions by snapshot. */
  snapshots: Map<string, DiskVersion>;
  storedBytes: number;
  content: Buffer;
}

export interface FakeDisksParts {
  hasVm: (id: string) => boolean;
  host: () => HostMoment | undefined;
}

export class FakeDisks {
  readonly all = new Map<string, FakeDisk>();
  /** Disks that another service holds. */
  readonly elsewhere = new Set<string>();
  /** Number of answers that show a disk as detaching after its VM is gone. */
  pollsUntilDetached = 1;
  /** Why disks do not become free; null if they do. */
  waitsFor: string | null = null;
  /** VMs that start with a disk whose last holder was lost. */
  isRecovered = false;
  /** Size of imported disks, if not that of the body. */
  importedBytes: number | undefined;
  readonly collected: string[] = [];
  /** Called before the action, with for example `POST fork` and the id of the disk; may throw the error to answer. */
  onRequest: (what: string, id: string) => Promise<void> | void = NOTHING;
  /** Called after the action, before it is answered. */
  beforeAnswer: (what: string, id: string) => Promise<void> | void = NOTHING;
  readonly #parts: FakeDisksParts;

  constructor(parts: FakeDisksParts) {
    this.#parts = parts;
  }

  /** Removes all hooks, so that nothing fails from now on. */
  reset(): void {
    this.onRequest = NOTHING;
    this.beforeAnswer = NOTHING;
    this.waitsFor = null;
    this.isRecovered = false;
    this.pollsUntilDetached = 1;
    this.elsewhere.clear();
  }

  /** Answers a request about disks. Returns false for any other request. */
  async take(stream: ServerHttp2Stream, method: string, url: URL): Promise<boolean> {
    const [, organization = '', id = '', rest = ''] =
      /^\/disks\/([^/]+)\/([^/]+)(\/.*)?$/u.exec(url.pathname) ?? [];
    if (organization === '') return false;
    const [, action = '', version] = /^\/(\w+)(?:\/(\d+))?$/u.exec(rest) ?? [];
    const what = `${method}${action === '' ? '' : ` ${action}`}`;
    const body = await readAll(stream);
    await this.onRequest(what, id);
    const query = Object.fromEntries(url.searchParams);
    if (what === 'GET export') {
      ExportDisk.parse(query);
      stream.respond({ ':status': 200, 'content-type': 'application/octet-stream' });
      stream.end(this.#get(id).content);
      return true;
    }
    const result =
      id === 'collect'
        ? this.#collect(organization)
        : this.#act(what, { organization, id, body, query, version });
    await this.beforeAnswer(what, id);
    answer(stream, 200, result);
    return true;
  }

  /** Gives a disk to a VM. Throws `disk_in_use` or `disk_changed`. */
  attach(vmId: string, workspace: VmWorkspace | undefined): MountedWorkspace | undefined {
    if (workspace === undefined) return undefined;
    const disk = this.#get(workspace.disk);
    this.#look(disk);
    if (this.elsewhere.has(disk.id)) throw new AppError('disk_in_use', 'another service holds the disk');
    if (disk.holder !== undefined && disk.holder !== vmId)
      throw new AppError('disk_in_use', `the VM ${disk.holder} holds the disk`);
    if (workspace.version !== undefined && workspace.version !== disk.version)
      throw new AppError('disk_changed', `the disk is at version ${disk.version}`);
    const { version, drainedAt } = disk;
    disk.holder = vmId;
    disk.isDirty = true;
    disk.polls = this.pollsUntilDetached;
    return { disk: disk.id, version, drained_at: drainedAt, is_recovered: this.isRecovered };
  }

  /** Stores what a VM has written, and returns the version of that moment. */
  capture(vmId: string): CapturedWorkspace | undefined {
    const disk = this.#findOf(vmId);
    if (disk === undefined) return undefined;
    const { version } = this.#seal(disk);
    disk.isDirty = false;
    return { organization: disk.organization, disk: disk.id, version, size_bytes: disk.sizeBytes };
  }

  /** Makes the disk of a fork's child. */
  forkFor(childId: string, parentVm: string, diskId: string | undefined): MountedWorkspace | undefined {
    const parent = this.#findOf(parentVm);
    if (parent === undefined) return undefined;
    if (diskId === undefined) throw new AppError('invalid_request', 'disks: is required');
    const { version } = this.#seal(parent);
    this.#fork(parent, { version, to: diskId });
    return this.attach(childId, { organization: parent.organization, disk: diskId, durability: 'local' });
  }

  /** Sets the disk of a VM back to a version. It keeps its size. */
  rollBack(vmId: string, workspace: VmWorkspace | undefined): void {
    const disk = this.#findOf(vmId);
    if (disk === undefined) return;
    if (workspace?.disk !== disk.id || workspace.version === undefined || workspace.version > disk.version)
      throw new AppError('invalid_request', 'workspace: is not that of the snapshot');
    this.#seal(disk);
  }

  /** The VM that holds the disk; undefined if it is free. */
  holderOf(id: string): string | undefined {
    const disk = this.all.get(id);
    return disk?.holder;
  }

  #act(
    what: string,
    {
      organization,
      id,
      body,
      query,
      version,
    }: { organization: string; id: string; body: Buffer; query: object; version: string | undefined },
  ): unknown {
    const parsed = (): unknown => JSON.parse(body.toString('utf8') || '{}');
    switch (what) {
      case 'PUT':
        return this.#show(this.#create(organization, id, NewDisk.parse(parsed()).size_bytes));
      case 'GET':
        return this.#show(this.#get(id));
      case 'DELETE':
        return this.#remove(id);
      case 'GET stored':
        return { stored_bytes: this.#get(id).storedBytes };
      case 'POST snapshots':
        return this.#snapshot(this.#get(id), TakeSnapshot.parse(parsed()).snapshot);
      case 'DELETE snapshots':
        return this.#removeSnapshot(this.#get(id), Number(version));
      case 'POST fork':
        return this.#show(this.#fork(this.#get(id), ForkDisk.parse(parsed())));
      case 'POST flush':
        return this.#show(this.#seal(this.#get(id)));
      case 'POST grow':
        return this.#show(this.#grow(this.#get(id), GrowDisk.parse(parsed()).size_bytes));
      case 'POST import':
        return this.#show(this.#import({ organization, id, body }, ImportDisk.parse(query)));
      default:
        throw new AppError('not_found', `no ${what}`);
    }
  }

  #create(organization: string, id: string, sizeBytes: number): FakeDisk {
    const there = this.all.get(id);
    if (there !== undefined) return there;
    const disk: FakeDisk = {
      organization,
      id,
      version: 1,
      sizeBytes,
      sizes: new Map([[1, sizeBytes]]),
      drainedAt: this.#now(),
      holder: undefined,
      polls: 0,
      isDirty: false,
      parent: undefined,
      snapshots: new Map(),
      storedBytes: 0,
      content: Buffer.alloc(0),
    };
    this.all.set(id, disk);
    return disk;
  }

  #fork(parent: FakeDisk, { version, to }: { version: number; to: string }): FakeDisk {
    if (version > parent.version) throw new AppError('not_found', `there is no version ${version}`);
    const disk = this.#create(parent.organization, to, sizeAt(parent, version));
    disk.parent = parent.id;
    disk.content = parent.content;
    return disk;
  }

  #snapshot(disk: FakeDisk, id: string): DiskVersion {
    const there = disk.snapshots.get(id);
    if (there !== undefined) return there;
    const { version, sizeBytes } = this.#seal(disk);
    const taken = { version, size_bytes: sizeBytes, created_at: this.#now() };
    disk.snapshots.set(id, taken);
    return taken;
  }

  #removeSnapshot(disk: FakeDisk, version: number): object {
    for (const [id, taken] of disk.snapshots) if (taken.version === version) disk.snapshots.delete(id);
    return {};
  }

  #remove(id: string): object {
    const disk = this.#get(id);
    this.#look(disk);
    if (disk.holder !== undefined || this.elsewhere.has(id))
      throw new AppError('disk_in_use', 'the disk is in use');
    if ([...this.all.values()].some(({ parent }) => parent === id))
      throw new AppError('disk_has_forks', 'the disk has forks');
    this.all.delete(id);
    return {};
  }

  #grow(disk: FakeDisk, sizeBytes: number): FakeDisk {
    if (sizeBytes < disk.sizeBytes) throw new AppError('invalid_request', 'size_bytes: a disk can only grow');
    return this.#seal(disk, sizeBytes);
  }

  #import(
    { organization, id, body }: { organization: string; id: string; body: Buffer },
    { max_bytes: maxBytes }: ImportDisk,
  ): FakeDisk {
    if (body.length === 0) throw new AppError('invalid_request', 'body: is no ext4 file system');
    const sizeBytes = this.importedBytes ?? body.length;
    if (sizeBytes > maxBytes)
      throw new AppError('payload_too_large', `body: the image has more than ${maxBytes} bytes`);
    const disk = this.#create(organization, id, sizeBytes);
    disk.content = body;
    return disk;
  }

  #seal(disk: FakeDisk, sizeBytes = disk.sizeBytes): FakeDisk {
    disk.version += 1;
    disk.sizeBytes = sizeBytes;
    disk.sizes.set(disk.version, sizeBytes);
    disk.drainedAt = this.#now();
    return disk;
  }

  #collect(organization: string): object {
    this.collected.push(organization);
    return { deleted_objects: 0, deleted_bytes: 0 };
  }

  /** Frees a disk whose VM is gone, after some looks. */
  #look(disk: FakeDisk): void {
    if (disk.holder === undefined || this.#parts.hasVm(disk.holder) || this.waitsFor !== null) return;
    if (disk.polls > 0) disk.polls -= 1;
    else {
      disk.holder = undefined;
      if (disk.isDirty) this.#seal(disk);
    }
  }

  #show(disk: FakeDisk): DiskState {
    this.#look(disk);
    const { id, version, sizeBytes, drainedAt, holder } = disk;
    const isThere = holder !== undefined && this.#parts.hasVm(holder);
    return {
      disk: id,
      version,
      size_bytes: sizeBytes,
      drained_at: drainedAt,
      attachment:
        holder === undefined
          ? null
          : {
              vm_id: holder,
              state: isThere ? 'attached' : 'detaching',
              dirty_bytes: DIRTY_BYTES,
              drained_version: version,
              drained_at: drainedAt,
              waits_for: this.waitsFor,
            },
      is_held_elsewhere: this.elsewhere.has(id),
    };
  }

  #findOf(vmId: string): FakeDisk | undefined {
    return [...this.all.values()].find(({ holder }) => holder === vmId);
  }

  #get(id: string): FakeDisk {
    const disk = this.all.get(id);
    if (disk === undefined) throw new AppError('not_found', `there is no disk ${id}`);
    return disk;
  }

  #now(): string {
    return new Date((this.#parts.host() ?? hostMoment()).wallMs).toISOString();
  }
}

function sizeAt({ sizes, sizeBytes }: FakeDisk, version: number): number {
  const [, size = sizeBytes] = [...sizes].findLast(([number]) => number <= version) ?? [];
  return size;
}
