/**
 * A socket to the kernel's netfilter netlink family, which Node cannot open by itself. It belongs to the network
 * namespace of the thread that made it. Layout: linux/netlink.h, linux/netfilter/nfnetlink.h.
 */
import { AppError } from '@coppice/contract';
import koffi, { type KoffiFunc, type node } from 'koffi';
import { closeSync } from 'node:fs';

const AF_NETLINK = 16;
const SOCK_RAW_CLOEXEC = 3 | 0o2_000_000;
const NETLINK_NETFILTER = 12;
const MSG_DONTWAIT = 0x40;
const ADDRESS_BYTES = 12;
/** The kernel sends no datagram larger than this, unless a caller reads with a larger buffer. */
const DATAGRAM_LIMIT_BYTES = 1 << 16;

const libc = koffi.load('libc.so.6');
type Open = (domain: number, type: number, protocol: number) => number;
type Bind = (fd: number, address: Buffer, length: number) => number;
type Transfer = (fd: number, buffer: Buffer, length: number, flags: number) => number;
const openSocket = libc.func('int socket(int domain, int type, int protocol)') as Open;
const bindSocket = libc.func('int bind(int fd, void *address, uint32_t length)') as Bind;
const sendTo = libc.func(
  'intptr_t send(int fd, void *buffer, size_t length, int flags)',
) as KoffiFunc<Transfer>;
const receiveFrom = libc.func('intptr_t recv(int fd, void *buffer, size_t length, int flags)') as Transfer;

/** `overflow`: the kernel dropped messages because they were not read in time. */
export type Received = { kind: 'datagram'; bytes: Buffer } | { kind: 'empty' } | { kind: 'overflow' };

export class NetlinkSocket implements Disposable {
  readonly #fd: number;
  #watch: node.PollHandle | undefined;

  /** `groups` is the bit mask of multicast groups to join. */
  constructor(groups = 0) {
    this.#fd = openSocket(AF_NETLINK, SOCK_RAW_CLOEXEC, NETLINK_NETFILTER);
    if (this.#fd < 0) throw new AppError('internal', `opening a netlink socket: error ${koffi.errno()}`);
    const address = Buffer.alloc(ADDRESS_BYTES);
    address.writeUInt16LE(AF_NETLINK, 0);
    address.writeUInt32LE(groups, 8);
    if (bindSocket(this.#fd, address, ADDRESS_BYTES) === 0) return;
    const code = koffi.errno();
    closeSync(this.#fd);
    throw new AppError('internal', `binding a netlink socket: error ${code}`);
  }

  /**
   * Sends a message on another thread: the kernel does the work inside the call, which may walk through a large table.
   * Its answer is queued when the call returns.
   */
  async send(message: Buffer): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    sendTo.async(this.#fd, message, message.length, 0, (error, sent) => {
      if (error === null) resolve(sent);
      else reject(new AppError('internal', 'sending to netlink', { cause: error }));
    });
    if ((await promise) !== message.length) throw new AppError('internal', 'sending to netlink failed');
  }

  /** Receives a datagram without waiting. */
  receive(): Received {
    const buffer = Buffer.allocUnsafe(DATAGRAM_LIMIT_BYTES);
    const length = receiveFrom(this.#fd, buffer, buffer.length, MSG_DONTWAIT);
    if (length >= 0) return { kind: 'datagram', bytes: buffer.subarray(0, length) };
    const code = koffi.errno();
    if (code === koffi.os.errno['EAGAIN']) return { kind: 'empty' };
    if (code === koffi.os.errno['ENOBUFS']) return { kind: 'overflow' };
    throw new AppError('internal', `reading from netlink: error ${code}`);
  }

  /** Calls `onReadable` whenever there is something to receive; does not keep the process alive. */
  watch(onReadable: () => void): void {
    this.#watch = koffi.node.poll(this.#fd, onReadable);
    this.#watch.unref();
  }

  [Symbol.dispose](): void {
    this.#watch?.close();
    closeSync(this.#fd);
  }
}
