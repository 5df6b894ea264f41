/**
 * What a guest has sent on its ports and the host has not taken yet. QEMU goes on handing it over while the guest stands
 * still, and notes in the guest's memory what it has handed over. Devices that were saved before that, with the memory
 * of after it, would have a copy hand over the same buffer once more, and its kernel take the port for broken.
 */
import { QmpError, type QmpClient } from './qmp-client.ts';

const DEVICE = 'virtio-serial';
/** Queues from the guest to the host, of the two ports in the order of QEMU's arguments: the first pairs are not ports'. */
const OUTPUT_QUEUES = [5, 7];

/** Where QEMU has the device of the ports. */
export async function findPortsDevice(qmp: QmpClient): Promise<string> {
  const devices = await qmp.execute('x-query-virtio');
  const list = Array.isArray(devices) ? (devices as Partial<Record<string, unknown>>[]) : [];
  const path = list.find(({ name }) => name === DEVICE)?.['path'];
  if (typeof path !== 'string') throw new QmpError('x-query-virtio', `there is no ${DEVICE}`);
  return path;
}

/** Differs when QEMU has noted in the meantime that it handed over a buffer. */
export async function readHandedOver(qmp: QmpClient, path: string): Promise<string> {
  const used = OUTPUT_QUEUES.map(async (queue) => {
    const status = await qmp.execute('x-query-virtio-queue-status', { path, queue });
    const index = (status as Partial<Record<string, unknown>> | null)?.['used-idx'];
    if (typeof index !== 'number') throw new QmpError('x-query-virtio-queue-status', 'there is no used-idx');
    return index;
  });
  return (await Promise.all(used)).join(' ');
}
