/** The scratch disk of a VM in QEMU's block layer. */
import { join } from 'node:path';
import { overlayName } from '../vm/vm-files.ts';
import type { VmDisk } from '../vm/vmm.ts';
import { closeNode, findInserted, findNumber, listNodes, listNumbers } from './block-nodes.ts';
import { BASE_NODE, overlayNode, overlayNodes, SCRATCH_DEVICE } from './qemu-arguments.ts';
import { QmpError, type QmpClient, type QmpEvent } from './qmp-client.ts';

const JOB = 'flatten';
/** An overlay has two nodes, one for its format and one for its file. */
const NODE = /^disk-(\d{1,9})(?:-file)?$/u;
/** Limits the job, so that a sandbox that writes gets its share of the host's disk. */
const SPEED_BYTES_PER_S = 256 * 1024 * 1024;

export class QemuDisk implements VmDisk {
  readonly #qmp: QmpClient;
  /** The overlay directory, by the path that QEMU sees. Undefined for a VM without disks. */
  readonly #directory: string | undefined;
  /** The top overlay; undefined until it is needed, in an adopted VM. */
  #top: number | undefined;

  constructor(qmp: QmpClient, directory: string | undefined, top: number | undefined) {
    this.#qmp = qmp;
    this.#directory = directory;
    this.#top = top;
  }

  /** Others may be open too: a prepared one, and flattened ones that are not closed yet. */
  async listOverlays(): Promise<number[]> {
    const chain = await readChain(this.#qmp);
    this.#top = chain.at(-1);
    return chain;
  }

  async open(overlay: number): Promise<void> {
    const path = join(this.#directory ?? '', overlayName(overlay));
    for (const node of overlayNodes(overlay, { path, backing: null, isFrozen: false }))
      await this.#qmp.execute('blockdev-add', node);
  }

  async push(overlay: number): Promise<void> {
    const node = await this.#topNode();
    await this.#qmp.execute('blockdev-snapshot', { node, overlay: overlayNode(overlay) });
    this.#top = overlay;
  }

  /** An overlay is partly open if the process that opened or closed it was killed in between. */
  async close(overlay: number): Promise<void> {
    const node = overlayNode(overlay);
    for (const name of [node, `${node}-file`]) await closeNode(this.#qmp, name);
  }

  /** Throws QmpError if the job fails or is cancelled. */
  async flatten(): Promise<void> {
    await streamInto(this.#qmp, await this.#topNode());
  }

  async stopFlattening(): Promise<void> {
    try {
      await this.#qmp.execute('block-job-cancel', { device: JOB, force: true });
    } catch (error) {
      // There is no such job.
      if (!(error instanceof QmpError)) throw error;
    }
  }

  async grow(sizeBytes: number): Promise<void> {
    await this.#qmp.execute('block_resize', { 'node-name': await this.#topNode(), size: sizeBytes });
  }

  async #topNode(): Promise<string> {
    if (this.#top === undefined) await this.listOverlays();
    return overlayNode(this.#top ?? 0);
  }
}

/** Copies all overlays below `node` into it. */
async function streamInto(qmp: QmpClient, node: string): Promise<void> {
  const done = Promise.withResolvers<undefined>();
  const onEvent = ({ event, data }: QmpEvent): void => {
    if (data['device'] !== JOB) return;
    if (event === 'BLOCK_JOB_CANCELLED') done.reject(new QmpError('block-stream', 'ended early'));
    if (event !== 'BLOCK_JOB_COMPLETED') return;
    if (data['error'] === undefined) done.resolve(undefined);
    else done.reject(new QmpError('block-stream', JSON.stringify(data['error'])));
  };
  const onClose = (): void => done.reject(new QmpError('block-stream', 'QEMU closed the monitor'));
  qmp.on('event', onEvent).on('close', onClose);
  try {
    await qmp.execute('block-stream', {
      'job-id': JOB,
      device: node,
      'base-node': BASE_NODE,
      speed: SPEED_BYTES_PER_S,
    });
    await done.promise;
  } finally {
    qmp.off('event', onEvent).off('close', onClose);
  }
}

async function readChain(qmp: QmpClient): Promise<number[]> {
  const open = listNumbers(NODE, await listNodes(qmp));
  const inserted = await findInserted(qmp, SCRATCH_DEVICE);
  const top = findNumber(NODE, inserted?.['node-name']);
  // The number of files below the top overlay. It equals the number of overlays, as the base is one of these files.
  const depth = inserted?.['backing_file_depth'];
  if (top === undefined || typeof depth !== 'number' || depth < 1)
    throw new QmpError('query-block', 'there is no scratch disk');
  return open.filter((number) => number <= top).slice(-depth);
}
