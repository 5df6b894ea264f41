/**
 * System calls that Node has no function for. All run on the calling thread and return at once. A descriptor
 * belongs to the network namespace in which it was opened.
 */
import { load, errno, type KoffiFunc } from 'koffi';

const libc = load('libc.so.6');

const ioctlCall = libc.func(
  'int ioctl(int fd, unsigned long request, _Inout_ uint8_t *argument)',
) as KoffiFunc<(fd: number, request: number, argument: Buffer) => number>;
