/**
 * Deletes the connections of a slot, so that the next guest with its address inherits none. Netlink is the only
 * interface to the kernel's table for this (`conntrack -D --mark` does the same). The ruleset puts the mark on every
 * connection of a guest. A filter by zone would need Linux 6.8.
 */
import { AppError } from '@coppice/contract';
import koffi from 'koffi';
import { SerialQueue } from '../../../lib/waiting/serial-queue.ts';
import { buildRequest, encodeUint32, NLM_F_REQUEST_ACK, NLMSG_ERROR } from './netlink-message.ts';
import { NetlinkSocket } from './netlink-socket.ts';

/** `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE` */
const CT_DELETE = 0x01_02;
const AF_INET = 2;
const CTA_MARK = 8;
const CTA_MARK_MASK = 21;
const ACKNOWLEDGEMENT_BYTES = 20;

/** Builds the request that deletes every IPv4 connection with exactly this mark. */
export function buildFlushRequest(mark: number, sequence: number): Buffer {
  return buildRequest({
    type: CT_DELETE,
    flags: NLM_F_REQUEST_ACK,
    sequence,
    family: AF_INET,
    attributes: [
      [CTA_MARK, encodeUint32(mark)],
      [CTA_MARK_MASK, encodeUint32(0xff_ff_ff_ff)],
    ],
  });
}

/** Returns the error number in the kernel's acknowledgement, 0 for success. Throws `internal` for another message. */
export function parseAcknowledgement(answer: Buffer, sequence: number): number {
  const isAcknowledgement = answer.length >= ACKNOWLEDGEMENT_BYTES && answer.readUInt16LE(4) === NLMSG_ERROR;
  if (!isAcknowledgement || answer.readUInt32LE(8) !== sequence) {
    throw new AppError('internal', 'flushing connections: the kernel answered something else');
  }
  return Math.abs(answer.readInt32LE(16));
}

export class ConnectionFlusher implements Disposable {
  readonly #socket = new NetlinkSocket();
  #sequence = 0;
  readonly #turns = new SerialQueue();

  flush(mark: number): Promise<void> {
    return this.#turns.run(() => this.#flush(mark));
  }

  /** Runs one at a time, as the next message in the socket must be its answer. */
  async #flush(mark: number): Promise<void> {
    this.#sequence += 1;
    await this.#socket.send(buildFlushRequest(mark, this.#sequence));
    const received = this.#socket.receive();
    if (received.kind !== 'datagram')
      throw new AppError('internal', 'flushing connections: the kernel gave no answer');
    const code = parseAcknowledgement(received.bytes, this.#sequence);
    if (code === 0 || code === koffi.os.errno['ENOENT']) return;
    const remedy = 'load the module nf_conntrack_netlink';
    throw new AppError('internal', `flushing connections: the kernel refused with error ${code}; ${remedy}`);
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }
}
