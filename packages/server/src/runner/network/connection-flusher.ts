/**
 * Forgets the connections of a slot, so that the next guest with its address inherits none. The kernel's table has
 * no other interface for this than netlink (`conntrack -D --mark` does the same); the mark is put on every
 * connection of a guest by the ruleset.
 */
import { AppError } from '@coppice/contract';
import koffi from 'koffi';
import { closeSync } from 'node:fs';

const AF_NETLINK = 16;
const SOCK_RAW_CLOEXEC = 3 | 0o2_000_000;
const NETLINK_NETFILTER = 12;
const MSG_DONTWAIT = 0x40;

/** `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE` */
const CT_DELETE = 0x01_02;
const NLM_F_REQUEST_ACK = 1 | 4;
const NLMSG_ERROR = 2;
const AF_INET = 2;
const CTA_MARK = 8;
const CTA_MARK_MASK = 21;
/** Header (16), family header (4), two attributes of 4 + 4. */
const MESSAGE_BYTES = 36;
const ANSWER_LIMIT_BYTES = 4096;
const ENOENT = 2;

const libc = koffi.load('libc.so.6');
const openSocket = libc.func('int socket(int domain, int type, int protocol)') as (
  domain: number,
  type: number,
  protocol: number,
) => number;
type Transfer = (fd: number, buffer: Buffer, length: number, flags: number) => number;
const send = libc.func(
  'intptr_t send(int fd, void *buffer, size_t length, int flags)',
) as koffi.KoffiFunc<Transfer>;
const receive = libc.func('intptr_t recv(int fd, void *buffer, size_t length, int flags)') as Transfer;

/** The request that deletes every IPv4 connection with exactly this mark. */
export function buildFlushRequest(mark: number, sequence: number): Buffer {
  const message = Buffer.alloc(MESSAGE_BYTES);
  message.writeUInt32LE(MESSAGE_BYTES, 0);
  message.writeUInt16LE(CT_DELETE, 4);
  message.writeUInt16LE(NLM_F_REQUEST_ACK, 6);
  message.writeUInt32LE(sequence, 8);
  message.writeUInt8(AF_INET, 16);
  writeAttribute(message, 20, CTA_MARK, mark);
  writeAttribute(message, 28, CTA_MARK_MASK, 0xff_ff_ff_ff);
  return message;
}

/** The kernel's error number in its acknowledgement, 0 for success. Throws when it is no such message. */
export function parseAcknowledgement(answer: Buffer, sequence: number): number {
  const isAcknowledgement = answer.length >= 20 && answer.readUInt16LE(4) === NLMSG_ERROR;
  if (!isAcknowledgement || answer.readUInt32LE(8) !== sequence) {
    throw new AppError('internal', 'flushing connections: the kernel answered something else');
  }
  return -answer.readInt32LE(16);
}

export class ConnectionFlusher implements Disposable {
  readonly #fd: number;
  #sequence = 0;

  constructor() {
    this.#fd = openSocket(AF_NETLINK, SOCK_RAW_CLOEXEC, NETLINK_NETFILTER);
    if (this.#fd < 0) throw new AppError('internal', `opening a netlink socket: error ${koffi.errno()}`);
  }

  /** Calls may not overlap. */
  async flush(mark: number): Promise<void> {
    this.#sequence += 1;
    await this.#send(buildFlushRequest(mark, this.#sequence));
    const answer = Buffer.alloc(ANSWER_LIMIT_BYTES);
    const length = receive(this.#fd, answer, answer.length, MSG_DONTWAIT);
    if (length < 0) throw new AppError('internal', `flushing connections: error ${koffi.errno()}`);
    const code = parseAcknowledgement(answer.subarray(0, length), this.#sequence);
    if (code !== 0 && code !== ENOENT) {
      throw new AppError(
        'internal',
        `flushing connections: the kernel refused with error ${code}; is nf_conntrack_netlink there?`,
      );
    }
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }

  /** The kernel walks its whole table inside the call and has queued the answer when it returns: not on this thread. */
  async #send(message: Buffer): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    send.async(this.#fd, message, message.length, 0, (error, sent) => {
      if (error === null) resolve(sent);
      else reject(new AppError('internal', 'flushing connections: send failed', { cause: error }));
    });
    if ((await promise) !== message.length)
      throw new AppError('internal', 'flushing connections: send failed');
  }
}

function writeAttribute(message: Buffer, offset: number, type: number, value: number): void {
  message.writeUInt16LE(8, offset);
  message.writeUInt16LE(type, offset + 2);
  message.writeUInt32BE(value, offset + 4);
}
