/**
 * Detects output that QEMU hands over from the guest's ports to the host. QEMU continues to hand it over while the
 * guest is stopped, and records that in the guest's memory. If the device state is saved before and the memory after, a
 * copy hands over the same buffer again, and its kernel considers the port broken.
 */
import { QmpError, type QmpClient } from './qmp-client.ts';

const DEVICE = 'virtio-serial';
/** Guest-to-host queues of the two ports, in the order of QEMU's arguments. The first queue pairs belong to no port. */
const OUTPUT_QUEUES = [5, 7];

/** Returns QEMU's path of the ports' device. Throws QmpError if there is none. */
export async function findPortsDevice(qmp: QmpClient): Promise<string> {
  const devices = await qmp.execute('x-query-virtio');
  const list = Array.isArray(devices) ? (devices as Partial<Record<string, unknown>>[]) : [];
  const path = list.find(({ name }) => name === DEVICE)?.['path'];
  if (typeof path !== 'string') throw new QmpError('x-query-virtio', `there is no ${DEVICE}`);
  return path;
}

/** Returns a value that changes whenever QEMU records that it handed over a buffer. */
export async function readHandedOver(qmp: QmpClient, path: string): Promise<string> {
  const used = OUTPUT_QUEUES.map(async (queue) => {
    const status = await qmp.execute('x-query-virtio-queue-status', { path, queue });
    const index = (status as Partial<Record<string, unknown>> | null)?.['used-idx'];
    if (typeof index !== 'number') throw new QmpError('x-query-virtio-queue-status', 'there is no used-idx');
    return index;
  });
  return (await Promise.all(used)).join(' ');
}
