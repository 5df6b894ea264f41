/**
 * The persistent disk of a VM in QEMU's block layer. QEMU's answers are the only record of what is open: an operation
 * that failed, timed out or was interrupted is completed by the next call, of this process or of a later one.
 *
 * QEMU changes nodes only when no request is in flight on them. While the block server is away a read of the guest is,
 * so that every operation here may take as long, and the guest waits with it.
 */
import { overlayName } from '../vm/vm-files.ts';
import type {
  WorkspaceDevice,
  WorkspaceDirectories,
  WorkspaceSource,
  WorkspaceVersion,
} from '../vm/workspace-device.ts';
import { VmmError } from '../vm/vmm.ts';
import { closeNode, ensureNode, findInserted, findNumber, listNodes, listNumbers } from './block-nodes.ts';
import type { QmpClient } from './qmp-client.ts';
import {
  buildFileNode,
  buildOverlayNode,
  buildVersionNode,
  EMPTY_NODE,
  OPEN_TIMEOUT_S,
  OVERLAY_PATTERN,
  VERSION_PATTERN,
  versionNode,
  WORKSPACE_DEVICE,
  workspaceNode,
} from './workspace-nodes.ts';

/** QEMU itself gives up earlier. */
const OPEN_VERSION_TIMEOUT_MS = (OPEN_TIMEOUT_S + 5) * 1000;

export interface QemuWorkspaceParts {
  qmp: QmpClient;
  /** By the paths that QEMU sees. Undefined for a VM without disks. */
  directories: WorkspaceDirectories | undefined;
  /** Lets QEMU write files for a disk of this size. */
  allowFileSize: (sizeBytes: number) => Promise<void>;
}

export class QemuWorkspace implements WorkspaceDevice {
  readonly #parts: QemuWorkspaceParts;

  constructor(parts: QemuWorkspaceParts) {
    this.#parts = parts;
  }

  async list(): Promise<{ overlays: number[]; versions: number[]; top: number | undefined }> {
    const names = await listNodes(this.#parts.qmp);
    return {
      overlays: listNumbers(OVERLAY_PATTERN, names),
      versions: listNumbers(VERSION_PATTERN, names),
      top: await this.#findTop(),
    };
  }

  async attach(source: WorkspaceSource): Promise<void> {
    await this.insert(source);
    await this.#resize(source.overlay, source.sizeBytes);
  }

  /**
   * Attaches a disk without telling the guest, which knows its size: a guest whose saved state is not loaded yet. The
   * nodes are not in QEMU's arguments, which all users of the host can read, because of the export's name.
   */
  async insert({ version, overlay, sizeBytes }: WorkspaceSource): Promise<void> {
    const { qmp, allowFileSize } = this.#parts;
    const top = await this.#findTop();
    if (top !== undefined && top !== overlay)
      throw new VmmError(`the VM has a disk already, with the overlay ${overlayName(top)}`);
    await allowFileSize(sizeBytes);
    await this.#openVersion(version);
    if (top === undefined) {
      await this.open(overlay);
      await qmp.execute('blockdev-snapshot', { node: EMPTY_NODE, overlay: workspaceNode(overlay) });
    }
    await this.#reopen(overlay, version);
    await closeNode(qmp, EMPTY_NODE);
  }

  async open(overlay: number): Promise<void> {
    const { qmp } = this.#parts;
    await ensureNode(qmp, buildFileNode(this.#directories.overlayDirectory, overlay));
    await ensureNode(qmp, buildOverlayNode(overlay, null));
  }

  async push(overlay: number): Promise<void> {
    const top = await this.#getTop();
    if (top === overlay) return;
    await this.#parts.qmp.execute('blockdev-snapshot', {
      node: workspaceNode(top),
      overlay: workspaceNode(overlay),
    });
  }

  async rebase(overlay: number, version: WorkspaceVersion): Promise<void> {
    await this.#openVersion(version);
    await this.#reopen(overlay, version);
  }

  async closeOverlay(overlay: number): Promise<void> {
    const node = workspaceNode(overlay);
    for (const name of [node, `${node}-file`]) await closeNode(this.#parts.qmp, name);
  }

  async closeVersion(version: number): Promise<void> {
    await closeNode(this.#parts.qmp, versionNode(version));
  }

  async grow(sizeBytes: number): Promise<void> {
    const top = await this.#getTop();
    await this.#parts.allowFileSize(sizeBytes);
    await this.#resize(top, sizeBytes);
  }

  /** QEMU waits for the server here, before the guest's disk depends on it. */
  async #openVersion(version: WorkspaceVersion): Promise<void> {
    const node = buildVersionNode(this.#directories.serverDirectory, version);
    await ensureNode(this.#parts.qmp, node, OPEN_VERSION_TIMEOUT_MS);
  }

  async #reopen(overlay: number, { number }: WorkspaceVersion): Promise<void> {
    await this.#parts.qmp.execute('blockdev-reopen', {
      options: [buildOverlayNode(overlay, versionNode(number))],
    });
  }

  async #resize(overlay: number, sizeBytes: number): Promise<void> {
    await this.#parts.qmp.execute('block_resize', { 'node-name': workspaceNode(overlay), size: sizeBytes });
  }

  async #findTop(): Promise<number | undefined> {
    const inserted = await findInserted(this.#parts.qmp, WORKSPACE_DEVICE);
    return findNumber(OVERLAY_PATTERN, inserted?.['node-name']);
  }

  async #getTop(): Promise<number> {
    const top = await this.#findTop();
    if (top === undefined) throw new VmmError('the VM has no disk');
    return top;
  }

  get #directories(): WorkspaceDirectories {
    const { directories } = this.#parts;
    if (directories === undefined) throw new VmmError('the VM was started without disks');
    return directories;
  }
}
