/**
 * Saves the device state of a stopped VM. QEMU continues to hand over output of the guest's ports to the host while the
 * guest is stopped, and records that in the guest's memory. If that happens between the devices and the memory, a copy
 * hands over the same buffer again, and its kernel considers the port broken. So both are saved again
 * (docs/decisions/0030-session-markers.md).
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { QmpError, type QmpClient } from './qmp-client.ts';

/** A stopped guest sends nothing more: its pending output is soon handed over, or never if the host does not read. */
const ATTEMPTS = 10;
/** QEMU writes the state to this file of its socket directory, the only place where it may create one. */
const FILE_NAME = 'devices';
/** The state takes some hundred KiB with two vCPUs. */
const MAX_BYTES = 16 * 1024 * 1024;
/** An escaped guest owns the directory: the file of this name may be a link to anything, or a FIFO. */
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const PORTS_DEVICE = 'virtio-serial';
/** Guest-to-host queues of the two ports, in the order of QEMU's arguments. The first queue pairs belong to no port. */
const OUTPUT_QUEUES = [5, 7];

export interface StateSaverParts {
  qmp: QmpClient;
  /** The socket directory, on the host and as QEMU sees it. */
  socketDirectory: string;
  seenDirectory: string;
}

export class StateSaver {
  readonly #parts: StateSaverParts;
  #portsDevice: string | undefined;

  constructor(parts: StateSaverParts) {
    this.#parts = parts;
  }

  async save(statePath: string, copyMemory?: () => Promise<void>): Promise<void> {
    if (copyMemory === undefined) return this.#saveDevices(statePath);
    for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
      const before = await this.#readHandedOver();
      await this.#saveDevices(statePath);
      await copyMemory();
      if ((await this.#readHandedOver()) === before) return;
    }
    throw new AppError('unavailable', 'the sandbox has sent too much to be saved at this moment; try again');
  }

  /** Replaces the result of an earlier attempt. With `live` QEMU would run on. */
  async #saveDevices(statePath: string): Promise<void> {
    const { qmp, socketDirectory, seenDirectory } = this.#parts;
    const filename = join(seenDirectory, FILE_NAME);
    await qmp.execute('xen-save-devices-state', { filename, live: false });
    takeOut(join(socketDirectory, FILE_NAME), statePath);
  }

  /** Returns a value that changes whenever QEMU records that it handed over a buffer. */
  async #readHandedOver(): Promise<string> {
    const { qmp } = this.#parts;
    this.#portsDevice ??= await findPortsDevice(qmp);
    const path = this.#portsDevice;
    const used = OUTPUT_QUEUES.map(async (queue) => {
      const status = await qmp.execute('x-query-virtio-queue-status', { path, queue });
      const index = (status as Partial<Record<string, unknown>> | null)?.['used-idx'];
      if (typeof index !== 'number')
        throw new QmpError('x-query-virtio-queue-status', 'there is no used-idx');
      return index;
    });
    return (await Promise.all(used)).join(' ');
  }
}

/** Returns QEMU's path of the ports' device. */
async function findPortsDevice(qmp: QmpClient): Promise<string> {
  const devices = await qmp.execute('x-query-virtio');
  const list = Array.isArray(devices) ? (devices as Partial<Record<string, unknown>>[]) : [];
  const path = list.find(({ name }) => name === PORTS_DEVICE)?.['path'];
  if (typeof path !== 'string') throw new QmpError('x-query-virtio', `there is no ${PORTS_DEVICE}`);
  return path;
}

/** Copies the state out of QEMU's reach. */
function takeOut(source: string, target: string): void {
  const descriptor = openSync(source, READ_FLAGS);
  try {
    const found = fstatSync(descriptor);
    if (!found.isFile() || found.size > MAX_BYTES)
      throw new Error('the device state is not a regular file of a plausible size');
    rmSync(target, { force: true });
    writeFileSync(target, readFileSync(descriptor), { flag: 'wx', mode: 0o444 });
  } finally {
    closeSync(descriptor);
  }
}
