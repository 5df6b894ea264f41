/** Finds the original destination of a redirected connection, which the kernel keeps (linux/netfilter_ipv4.h). */
import koffi from 'koffi';
import type { Socket } from 'node:net';

const SOL_IP = 0;
const SO_ORIGINAL_DST = 80;
/** `struct sockaddr_in` */
const ADDRESS_BYTES = 16;
const AF_INET = 2;

export interface Endpoint {
  address: string;
  port: number;
}

const libc = koffi.load('libc.so.6');
const getSocketOption = libc.func(
  'int getsockopt(int fd, int level, int name, void *value, void *length)',
) as (...values: [fd: number, level: number, name: number, value: Buffer, length: Buffer]) => number;

/**
 * Returns the original destination, or undefined for a connection that was not redirected, or whose translation the
 * kernel has dropped.
 */
export function findOriginalDestination(socket: Socket): Endpoint | undefined {
  const fd = findDescriptor(socket);
  if (fd === undefined) return undefined;
  const value = Buffer.alloc(ADDRESS_BYTES);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(ADDRESS_BYTES);
  if (getSocketOption(fd, SOL_IP, SO_ORIGINAL_DST, value, length) !== 0) return undefined;
  if (value.readUInt16LE(0) !== AF_INET) return undefined;
  return { address: value.subarray(4, 8).join('.'), port: value.readUInt16BE(2) };
}

/** Returns the file descriptor of a socket, for which Node has no public API. */
function findDescriptor(socket: Socket): number | undefined {
  const { _handle: handle } = socket as unknown as { _handle?: { fd?: number } | null };
  const fd = handle?.fd;
  return fd === undefined || fd < 0 ? undefined : fd;
}
