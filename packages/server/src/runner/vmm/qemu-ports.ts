/**
 * What a guest has sent on its ports and the host has not taken yet. QEMU goes on handing it over while the guest stands
 * still, and notes in the guest's memory what it has handed over: a state of the devices that were saved before that,
 * with the memory of after it, would have a copy hand over the same buffer twice. Its kernel takes the port for broken.
 */
import { AppError } from '@coppice/contract';
import { DeadlineError, pollUntil } from '../../lib/deadline.ts';
import { QmpError, type QmpClient } from './qmp-client.ts';

const DEVICE = 'virtio-serial';
/** Queues from the guest to the host, of the two ports in the order of QEMU's arguments: the first pairs are not ports'. */
const OUTPUT_QUEUES = [5, 7];
const TIMEOUT_MS = 5000;
const INTERVAL_MS = 1;

/** Where QEMU has the device of the ports. */
export async function findPortsDevice(qmp: QmpClient): Promise<string> {
  const devices = await qmp.execute('x-query-virtio');
  const list = Array.isArray(devices) ? (devices as Partial<Record<string, unknown>>[]) : [];
  const path = list.find(({ name }) => name === DEVICE)?.['path'];
  if (typeof path !== 'string') throw new QmpError('x-query-virtio', `there is no ${DEVICE}`);
  return path;
}

/** Of a guest that stands still; the host must be reading. Throws `unavailable` if that takes long. */
export async function drainPorts(qmp: QmpClient, device: string, timeoutMs = TIMEOUT_MS): Promise<void> {
  const isDrained = async (): Promise<true | undefined> => {
    const waiting = await Promise.all(OUTPUT_QUEUES.map((queue) => countWaiting(qmp, device, queue)));
    return waiting.every((count) => count === 0) ? true : undefined;
  };
  const step = 'taking what the guest has sent';
  await pollUntil({ step, timeoutMs, intervalMs: INTERVAL_MS }, isDrained).catch((error: unknown) => {
    if (!(error instanceof DeadlineError)) throw error;
    const message = 'the sandbox sends more than its host can take at this moment; try again';
    throw new AppError('unavailable', message, { cause: error });
  });
}

/** A buffer that QEMU is handing over: when there is none, it has taken all that there are. */
async function countWaiting(qmp: QmpClient, path: string, queue: number): Promise<unknown> {
  const status = await qmp.execute('x-query-virtio-queue-status', { path, queue });
  return (status as Partial<Record<string, unknown>> | null)?.['inuse'];
}
