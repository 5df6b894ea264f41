/** Reads the overlay chain of a VM's disk from QEMU, and runs the job that copies lower overlays into the top one. */
import { BASE_NODE, overlayNode, SCRATCH_DEVICE } from './qemu-arguments.ts';
import { QmpError, type QmpClient, type QmpEvent } from './qmp-client.ts';

const JOB = 'flatten';
/** An overlay has two nodes, one for its format and one for its file. */
const NODE = /^disk-(\d{1,9})(?:-file)?$/u;
/** Limits the job, so that a sandbox that writes gets its share of the host's disk. */
const SPEED_BYTES_PER_S = 256 * 1024 * 1024;

/** Flattens the overlays into `top`. Throws QmpError if the job fails or is cancelled. */
export async function flattenOverlays(qmp: QmpClient, top: number): Promise<void> {
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
      device: overlayNode(top),
      'base-node': BASE_NODE,
      speed: SPEED_BYTES_PER_S,
    });
    await done.promise;
  } finally {
    qmp.off('event', onEvent).off('close', onClose);
  }
}

/** Cancels a running flatten job; does nothing without one. */
export async function stopFlattening(qmp: QmpClient): Promise<void> {
  try {
    await qmp.execute('block-job-cancel', { device: JOB, force: true });
  } catch (error) {
    if (!(error instanceof QmpError)) throw error;
  }
}

/**
 * Returns the numbers of the overlays that form the disk, ascending. Others may be open too: a prepared one, and
 * flattened ones that are not closed yet. An escaped guest can answer anything here, which harms only its own disk.
 */
export async function readChain(qmp: QmpClient): Promise<number[]> {
  const nodes = await listNodes(qmp);
  const open = [...new Set(nodes.flatMap((name) => findNumber(name) ?? []))].toSorted((a, b) => a - b);
  const devices = asRecords(await qmp.execute('query-block'));
  const scratch = devices.find(({ qdev }) => typeof qdev === 'string' && qdev.includes(SCRATCH_DEVICE));
  const [inserted] = asRecords([scratch?.['inserted']]);
  const top = findNumber(inserted?.['node-name']);
  // The number of files below the top overlay. It equals the number of overlays, as the base is one of these files.
  const depth = inserted?.['backing_file_depth'];
  if (top === undefined || typeof depth !== 'number' || depth < 1)
    throw new QmpError('query-block', 'there is no scratch disk');
  return open.filter((number) => number <= top).slice(-depth);
}

/** Closes an unused overlay. It may be partly open, if the process that opened or closed it was killed in between. */
export async function closeOverlay(qmp: QmpClient, number: number): Promise<void> {
  const node = overlayNode(number);
  for (const name of [node, `${node}-file`]) await closeNode(qmp, name);
}

/** Closes a node if it is open. Lists nodes only after a failure: QEMU then inspects all files, some 20 ms if many. */
async function closeNode(qmp: QmpClient, name: string): Promise<void> {
  try {
    await qmp.execute('blockdev-del', { 'node-name': name });
  } catch (error) {
    if ((await listNodes(qmp)).includes(name)) throw error;
  }
}

async function listNodes(qmp: QmpClient): Promise<unknown[]> {
  const nodes = asRecords(await qmp.execute('query-named-block-nodes', { flat: true }));
  return nodes.map((node) => node['node-name']);
}

function findNumber(name: unknown): number | undefined {
  const digits = typeof name === 'string' ? NODE.exec(name)?.[1] : undefined;
  return digits === undefined ? undefined : Number(digits);
}

function asRecords(value: unknown): Record<string, unknown>[] {
  const list: unknown[] = Array.isArray(value) ? value : [];
  return list.filter((each): each is Record<string, unknown> => typeof each === 'object' && each !== null);
}
