/**
 * Holds a guest's first bytes back until it is known whether they contain a name. It reads no more bytes than needed.
 */
import { isIP, type Socket } from 'node:net';
import type { FirstBytesWait } from '../first-bytes/first-bytes-wait.ts';
import { FirstBytesReader, type FirstBytesResult } from '../first-bytes/first-bytes.ts';

/** The name in the first bytes, as input of `judge`. */
export interface ShownName {
  name?: string;
  isNameHidden?: boolean;
  /** True if the name arrived after the connection was judged without one. */
  isLate?: boolean;
}

export interface FirstBytes {
  shown: ShownName;
  /** Bytes to forward. */
  bytes: Buffer;
  /** True if the guest has sent nothing yet. Its first bytes must then be read with `readLate`. */
  isSilent: boolean;
}

type Waiting = Extract<FirstBytesWait, { kind: 'wait' }>;

/** Reads the first bytes of one connection. */
export class FirstBytesReading {
  readonly #socket: Socket;
  readonly #wait: Waiting;
  readonly #reader = new FirstBytesReader();

  /** The socket must be paused. */
  constructor(socket: Socket, wait: Waiting) {
    this.#socket = socket;
    this.#wait = wait;
  }

  /** Waits for the first bytes. Resolves with undefined when the connection has ended. */
  async read(): Promise<FirstBytes | undefined> {
    const result = await this.#readUntil(this.#wait.firstByteMs);
    if (result === undefined) return undefined;
    const bytes = this.#reader.takeBytes();
    return { shown: readShown(result), bytes, isSilent: bytes.length === 0 };
  }

  /** Waits for the first bytes after a silent `read`, until the connection ends. */
  async readLate(): Promise<FirstBytes | undefined> {
    const result = await this.#readUntil(undefined);
    return result && { shown: readShown(result), bytes: this.#reader.takeBytes(), isSilent: false };
  }

  #readUntil(firstByteMs: number | undefined): Promise<FirstBytesResult | undefined> {
    const socket = this.#socket;
    const { promise, resolve } = Promise.withResolvers<FirstBytesResult | undefined>();
    let timer: NodeJS.Timeout | undefined;
    const endWait = () => resolve(this.#reader.endWait());
    const onReadable = () => {
      const chunk = socket.read() as Buffer | null;
      if (chunk === null) return;
      const result = this.#reader.push(chunk);
      if (result.kind !== 'needs-more') resolve(result);
      else if (timer === undefined || firstByteMs !== undefined) timer = this.#replace(timer, endWait);
      firstByteMs = undefined;
    };
    const onClose = () => resolve(undefined);
    if (firstByteMs !== undefined) timer = setTimeout(endWait, firstByteMs);
    socket.on('readable', onReadable).once('end', endWait).once('close', onClose);
    if (socket.destroyed) onClose();
    return promise.finally(() => {
      clearTimeout(timer);
      socket.off('readable', onReadable).off('end', endWait).off('close', onClose);
    });
  }

  #replace(timer: NodeJS.Timeout | undefined, endWait: () => void): NodeJS.Timeout {
    clearTimeout(timer);
    return setTimeout(endWait, this.#wait.wholeMs);
  }
}

/** Returns the name. If a protocol has names but this reader cannot read the name, the name counts as hidden. */
function readShown(result: FirstBytesResult): ShownName {
  if (result.kind === 'named') {
    const { host } = result;
    return { name: host.kind === 'name' ? host.name : bracket(host.address) };
  }
  if (result.kind === 'unnamed') return result.protocol === 'other' ? {} : { isNameHidden: true };
  const isLate = result.kind === 'refused' && result.reason === 'late-name';
  return isLate ? { isNameHidden: true, isLate } : { isNameHidden: true };
}

function bracket(address: string): string {
  return isIP(address) === 6 ? `[${address}]` : address;
}
