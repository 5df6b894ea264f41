/** QEMU's block nodes. An escaped guest can answer anything here, which harms only its own disks. */
import { QmpError, type QmpClient } from './qmp-client.ts';

/** Returns the names of all nodes. QEMU inspects the files of all, some 20 ms if they are many. */
export async function listNodes(qmp: QmpClient): Promise<string[]> {
  const nodes = asRecords(await qmp.execute('query-named-block-nodes', { flat: true }));
  return nodes.flatMap(({ 'node-name': name }) => (typeof name === 'string' ? [name] : []));
}

/** Adds a node if it does not exist. Lists nodes only after a failure. */
export async function ensureNode(
  qmp: QmpClient,
  node: Record<string, unknown> & { 'node-name': string },
  timeoutMs?: number,
): Promise<void> {
  try {
    await qmp.execute('blockdev-add', node, timeoutMs);
  } catch (error) {
    if (!(error instanceof QmpError) || !(await listNodes(qmp)).includes(node['node-name'])) throw error;
  }
}

/** Removes a node if it exists. Lists nodes only after a failure. */
export async function closeNode(qmp: QmpClient, name: string): Promise<void> {
  try {
    await qmp.execute('blockdev-del', { 'node-name': name });
  } catch (error) {
    if ((await listNodes(qmp)).includes(name)) throw error;
  }
}

/** Returns what QEMU says of the medium in a disk, which has its topmost node. Undefined if there is no such disk. */
export async function findInserted(
  qmp: QmpClient,
  deviceId: string,
): Promise<Record<string, unknown> | undefined> {
  const devices = asRecords(await qmp.execute('query-block'));
  const device = devices.find(({ qdev }) => typeof qdev === 'string' && qdev.includes(deviceId));
  const [inserted] = asRecords([device?.['inserted']]);
  return inserted;
}

/** Returns the number in a node's name. */
export function findNumber(pattern: RegExp, name: unknown): number | undefined {
  const digits = typeof name === 'string' ? pattern.exec(name)?.[1] : undefined;
  return digits === undefined ? undefined : Number(digits);
}

/** Returns the numbers in the names of nodes, ascending and each once. */
export function listNumbers(pattern: RegExp, names: readonly string[]): number[] {
  const numbers = names.flatMap((name) => findNumber(pattern, name) ?? []);
  return [...new Set(numbers)].toSorted((a, b) => a - b);
}

function asRecords(value: unknown): Record<string, unknown>[] {
  const list: unknown[] = Array.isArray(value) ? value : [];
  return list.filter((each): each is Record<string, unknown> => typeof each === 'object' && each !== null);
}
