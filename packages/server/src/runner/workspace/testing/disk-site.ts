/** The real block server on a directory store, with VMs that are only a graph of overlays. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import type { z } from 'zod';
import { readManifest } from '../../../config/manifest.ts';
import type { VmWorkspace } from '../../../lib/protocol/disk-protocol.ts';
import { pollUntil } from '../../../lib/waiting/deadline.ts';
import { BLOCK_SOCKET } from '../../vm/workspace-device.ts';
import type { Attachment } from '../attachment.ts';
import type { AttachedGuest } from '../attachment.types.ts';
import { DiskManifest } from '../block-requests.ts';
import { BlockServer, type BlockRequest } from '../block-server.ts';
import { Workspaces } from '../workspaces.ts';
import { OverlayGraph } from './overlay-graph.ts';

const MIB = 1024 * 1024;
export const DISK_BYTES = 16 * MIB;
const WAIT_MS = 20_000;
const log = pino({ level: 'silent' });

/** A VM with a disk, and what its guest should read. */
export interface DiskVm {
  unit: string;
  graph: OverlayGraph;
  guest: AttachedGuest;
  attachment: Attachment;
  /** Orders to the VM. */
  orders: string[];
  model: Buffer;
  write: (offset: number, length: number, byte: number) => Promise<void>;
}

/** Runs before and after each request; an error that it throws is that of the request. */
type Around = (operation: string, isDone: boolean) => void | Promise<void>;

export class DiskSite implements Disposable {
  readonly directory = mkdtempSync(join(tmpdir(), 'disk-'));
  readonly #objects = join(this.directory, 'objects');
  readonly mke2fs: string;
  readonly #program: string;
  #lastName = 0;

  constructor() {
    const assets = process.env['COPPICE_ASSETS_DIR'] ?? '/var/lib/coppice/assets';
    const { blocks, mke2fs } = readManifest(join(assets, 'manifest.json'));
    [this.#program, this.mke2fs] = [blocks.path, mke2fs.path];
    for (const name of ['workspaces', 'b']) mkdirSync(join(this.directory, name));
  }

  get overlays(): string {
    return join(this.directory, 'workspaces');
  }

  /** Returns the paths of all objects. */
  listObjects(): string[] {
    return readdirSync(this.#objects, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name));
  }

  openServer(around: Around = () => undefined): BlockServer {
    const server = new BlockServer({
      program: this.#program,
      store: 'directory',
      objectsDirectory: this.#objects,
      overlaysDirectory: this.overlays,
      socketPath: join(this.directory, 'b', BLOCK_SOCKET),
      exportKey: '00'.repeat(32),
      environment: {},
      log,
    });
    const ask = server.ask.bind(server);
    server.ask = async <T>(request: BlockRequest, answer: z.ZodType<T>, how?: { timeoutMs?: number }) => {
      await around(request.op, false);
      const result = await ask(request, answer, how);
      await around(request.op, true);
      return result;
    };
    return server;
  }

  /** Opens the disks of a runner process. Disposing the result ends the process's block server too. */
  open(server = this.openServer(), { maxDirtyBytes = 1024 * MIB } = {}): Workspaces {
    return new Workspaces({
      server,
      directory: this.overlays,
      serverDirectory: join(this.directory, 'b'),
      maxDirtyBytes,
      log,
    });
  }

  newDisk(): VmWorkspace {
    this.#lastName += 1;
    const disk = `disk${String(this.#lastName).padStart(20, '0')}`;
    return { organization: 'org', disk, durability: 'local' };
  }

  async makeDisk(server: BlockServer): Promise<VmWorkspace> {
    const asked = this.newDisk();
    const { organization: org, disk } = asked;
    await server.ask({ op: 'create', org, disk, size_bytes: DISK_BYTES }, DiskManifest);
    return asked;
  }

  newUnit(): string {
    this.#lastName += 1;
    return `u${this.#lastName.toString(16).padStart(16, '0')}`;
  }

  /** Gives a disk to a new VM, whose programs run once the disk survives a power loss. */
  async attach(workspaces: Workspaces, asked: VmWorkspace): Promise<DiskVm> {
    const unit = this.newUnit();
    const directories = workspaces.makePlace(unit);
    const taken = await workspaces.take(asked, `vm-${unit}`);
    const attachment = workspaces.bind(taken, { unit, uid: process.getuid?.() ?? 0 });
    const vm = newVm({ unit, attachment, graph: new OverlayGraph(directories) });
    await vm.graph.attach(attachment.source);
    attachment.join(vm.guest);
    await attachment.kept;
    return vm;
  }

  /** Gives the VM a replacement with the disk as it was in a kept version. */
  async replace(workspaces: Workspaces, old: DiskVm, version: number): Promise<DiskVm> {
    const unit = this.newUnit();
    const directories = workspaces.makePlace(unit);
    const place = { unit, uid: process.getuid?.() ?? 0 };
    const attachment = await workspaces.bindReplacement(old.attachment, version, place);
    const vm = newVm({ unit, attachment, graph: new OverlayGraph(directories) });
    await vm.graph.attach(attachment.source);
    attachment.join(vm.guest);
    await attachment.kept;
    return vm;
  }

  /** Returns the content of a version; of the newest one without a version. */
  exported(server: BlockServer, { organization, disk }: VmWorkspace, version?: number): Buffer {
    const how = { format: 'raw' as const, ...(version !== undefined && { version }) };
    const { command, args, env } = server.exportCommand({ organization, disk }, how);
    return execFileSync(command, args, { env, maxBuffer: 64 * MIB });
  }

  [Symbol.dispose](): void {
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 });
  }
}

function newVm({ unit, attachment, graph }: Pick<DiskVm, 'unit' | 'attachment' | 'graph'>): DiskVm {
  const orders: string[] = [];
  const guest: AttachedGuest = {
    device: graph,
    hold: async () => void orders.push('hold'),
    goOn: async () => void orders.push('go on'),
    end: () => void orders.push('end'),
  };
  const model = Buffer.alloc(DISK_BYTES);
  const vm: DiskVm = {
    unit,
    graph,
    guest,
    attachment,
    orders,
    model,
    write: async (offset, length, byte) => {
      await graph.write(offset, length, byte);
      vm.model.fill(byte, offset, offset + length);
    },
  };
  return vm;
}

export function until(step: string, check: () => boolean | Promise<boolean>): Promise<true> {
  return pollUntil({ step, timeoutMs: WAIT_MS, intervalMs: 10 }, async () =>
    (await check()) ? true : undefined,
  );
}
