/** Packets of protocols for which Node has no sockets. */
import koffi from 'koffi';
import { closeSync } from 'node:fs';

const AF_INET = 2;
const SOCK_RAW = 3;

const libc = koffi.load('libc.so.6');
const openSocket = libc.func('int socket(int domain, int type, int protocol)') as (
  ...args: number[]
) => number;
const sendTo = libc.func(
  'intptr_t sendto(int fd, void *buffer, size_t length, int flags, void *address, uint32_t size)',
) as (...args: (number | Buffer)[]) => number;

/** Sends a packet with eight zero bytes after the IP header. Needs root. */
export function sendRaw(host: string, protocol: number): void {
  const fd = openSocket(AF_INET, SOCK_RAW, protocol);
  if (fd < 0) throw new Error(`a raw socket needs root (error ${koffi.errno()})`);
  try {
    const address = Buffer.alloc(16);
    address.writeUInt16LE(AF_INET, 0);
    host.split('.').forEach((part, at) => address.writeUInt8(Number(part), 4 + at));
    const payload = Buffer.alloc(8);
    if (sendTo(fd, payload, payload.length, 0, address, address.length) !== payload.length)
      throw new Error(`sending a raw packet: error ${koffi.errno()}`);
  } finally {
    closeSync(fd);
  }
}
