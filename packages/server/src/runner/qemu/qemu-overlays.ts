/** What QEMU says of the overlays of a VM's disk, and the job that copies the lower ones into the topmost. */
import { BASE_NODE, overlayNode, SCRATCH_DEVICE } from './qemu-arguments.ts';
import { QmpError, type QmpClient, type QmpEvent } from './qmp-client.ts';

const JOB = 'flatten';
/** An overlay has two nodes: of its format, and of the file that it is in. */
const NODE = /^disk-(\d{1,9})(?:-file)?$/u;
/** A sandbox that writes has its share of the host's disk while the job runs. */
const SPEED_BYTES_PER_S = 256 * 1024 * 1024;

/** Resolves when the job is done; rejects when it fails or is ended early. */
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

/** Does nothing when no such job is under way. */
export async function stopFlattening(qmp: QmpClient): Promise<void> {
  try {
    await qmp.execute('block-job-cancel', { device: JOB, force: true });
  } catch (error) {
    if (!(error instanceof QmpError)) throw error;
  }
}

/**
 * Numbers of the overlays that the disk is made of, ascending. Others may be open as well: a prepared one, and those that
 * were copied upward and not closed yet. An escaped guest answers here what it likes: it harms its own disk at most.
 */
export async function readChain(qmp: QmpClient): Promise<number[]> {
  const nodes = await listNodes(qmp);
  const open = [...new Set(nodes.flatMap((name) => findNumber(name) ?? []))].toSorted((a, b) => a - b);
  const devices = asRecords(await qmp.execute('query-block'));
  const scratch = devices.find(({ qdev }) => typeof qdev === 'string' && qdev.includes(SCRATCH_DEVICE));
  const [inserted] = asRecords([scratch?.['inserted']]);
  const top = findNumber(inserted?.['node-name']);
  // How many files are under the topmost overlay. As the base is one of them, there are as many overlays.
  const depth = inserted?.['backing_file_depth'];
  if (top === undefined || typeof depth !== 'number' || depth < 1)
    throw new QmpError('query-block', 'the scratch disk is not there');
  return open.filter((number) => number <= top).slice(-depth);
}

/** Closes an overlay that nobody uses. It may be open in part: whoever opened or closed it was killed in between. */
export async function closeOverlay(qmp: QmpClient, number: number): Promise<void> {
  const node = overlayNode(number);
  for (const name of [node, `${node}-file`]) await closeNode(qmp, name);
}

/** Nodes are listed only after a failure: QEMU looks into all files for that, which takes some 20 ms for a long chain. */
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
