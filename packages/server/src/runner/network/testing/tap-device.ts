/**
 * Opens a persistent TAP for a test machine, as the launcher does for QEMU. The interface exists already (the pool made it); to attach to
 * it takes an ioctl for which Node has no function. A TAP has one holder at a time. As it is persistent, it can be
 * opened again when its holder is gone.
 */
import { AppError } from '@coppice/contract';
import koffi from 'koffi';
import { closeSync, constants, openSync } from 'node:fs';

const TUN = '/dev/net/tun';
/** From linux/if_tun.h: `_IOW('T', 202, int)`. */
const TUNSETIFF = 0x40_04_54_ca;
/** `_IOR('T', 210, unsigned int)`: reads the present name and flags. */
const TUNGETIFF = 0x80_04_54_d2;
const IFF_TAP = 0x0002;
const IFF_PERSIST = 0x0800;
/** Without this flag each frame has a 4-byte header that QEMU does not expect. */
const IFF_NO_PI = 0x1000;
/** Lets QEMU offload checksums and segmentation instead of doing them for each packet. */
const IFF_VNET_HDR = 0x4000;
/** `struct ifreq`: name in 16 bytes, then a union of which the flags are the first two. */
const IFREQ_BYTES = 40;
const IFREQ_FLAGS_OFFSET = 16;
const NAME_LIMIT_BYTES = 15;

type Ioctl = (fd: number, request: number, argument: Buffer) => number;
const ioctl = koffi
  .load('libc.so.6')
  .func('int ioctl(int fd, unsigned long request, void *argument)') as Ioctl;

/**
 * Returns a new descriptor of the named TAP, close-on-exec; the caller closes it. Throws `internal` when the TAP is
 * gone or another process holds it.
 */
export function openTapDevice(name: string): number {
  const request = buildRequest(name);
  const fd = openSync(TUN, constants.O_RDWR | constants.O_NONBLOCK);
  const problem = attach(fd, request);
  if (problem === undefined) return fd;
  closeSync(fd);
  throw new AppError('internal', `opening TAP ${name}: ${problem}`);
}

function buildRequest(name: string): Buffer {
  const request = Buffer.alloc(IFREQ_BYTES);
  if (request.write(name, 'latin1') > NAME_LIMIT_BYTES) throw new RangeError(`interface name ${name}`);
  request.writeUInt16LE(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, IFREQ_FLAGS_OFFSET);
  return request;
}

/** Attaches to the TAP. If there is none the kernel makes a non-persistent one, which is gone with the descriptor. */
function attach(fd: number, request: Buffer): string | undefined {
  if (ioctl(fd, TUNSETIFF, request) !== 0) {
    const code = koffi.errno();
    return code === koffi.os.errno['EBUSY'] ? 'another process holds it' : `error ${code}`;
  }
  if (ioctl(fd, TUNGETIFF, request) !== 0) return `error ${koffi.errno()}`;
  return (request.readUInt16LE(IFREQ_FLAGS_OFFSET) & IFF_PERSIST) === 0 ? 'it is gone' : undefined;
}
