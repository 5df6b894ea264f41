/**
 * Worker thread that copies Ethernet frames between two TAP descriptors, like a wire. Both use the same virtio-net
 * header, so frames are copied without parsing.
 */
import koffi from 'koffi';
import { workerData } from 'node:worker_threads';

const POLLIN = 1;
const POLL_ENTRY_BYTES = 8;
const FRAME_LIMIT_BYTES = 70_000;
const POLL_TIMEOUT_MS = 1000;

const libc = koffi.load('libc.so.6');
const poll = libc.func('int poll(void *entries, unsigned long count, int timeout)') as (
  entries: Buffer,
  count: number,
  timeout: number,
) => number;
type Transfer = (fd: number, buffer: Buffer, length: number) => number;
const read = libc.func('intptr_t read(int fd, void *buffer, size_t length)') as Transfer;
const write = libc.func('intptr_t write(int fd, void *buffer, size_t length)') as Transfer;

const [left, right] = workerData as [number, number];
const entries = Buffer.alloc(2 * POLL_ENTRY_BYTES);
const frame = Buffer.alloc(FRAME_LIMIT_BYTES);
for (const [at, fd] of [left, right].entries()) {
  entries.writeInt32LE(fd, at * POLL_ENTRY_BYTES);
  entries.writeInt16LE(POLLIN, at * POLL_ENTRY_BYTES + 4);
}

/** Returns false when the interface is gone. */
function copyFrame(from: number, to: number): boolean {
  const length = read(from, frame, frame.length);
  if (length > 0) write(to, frame, length);
  return length > 0 || koffi.errno() === koffi.os.errno['EAGAIN'];
}

while (poll(entries, 2, POLL_TIMEOUT_MS) >= 0) {
  const isLeftReadable = entries.readInt16LE(6) !== 0;
  const isRightReadable = entries.readInt16LE(POLL_ENTRY_BYTES + 6) !== 0;
  if (isLeftReadable && !copyFrame(left, right)) break;
  if (isRightReadable && !copyFrame(right, left)) break;
}
