/** Moves the device state that QEMU has written out of QEMU's reach. */
import { closeSync, constants, fstatSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const DEVICES_NAME = 'devices';
/** The state takes some hundred KiB with two vCPUs. */
const MAX_BYTES = 16 * 1024 * 1024;
/** An escaped guest owns the directory: the file of this name may be a link to anything, or a FIFO. */
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Copies the device state from the VM's socket directory into `directory`, replacing an earlier one. */
export function takeDeviceState(socketDirectory: string, directory: string): void {
  const descriptor = openSync(join(socketDirectory, DEVICES_NAME), READ_FLAGS);
  try {
    const found = fstatSync(descriptor);
    if (!found.isFile() || found.size > MAX_BYTES)
      throw new Error('the device state is not a regular file of a plausible size');
    const path = join(directory, DEVICES_NAME);
    rmSync(path, { force: true });
    writeFileSync(path, readFileSync(descriptor), { flag: 'wx', mode: 0o444 });
  } finally {
    closeSync(descriptor);
  }
}
