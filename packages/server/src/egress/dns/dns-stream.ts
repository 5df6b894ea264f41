/** DNS over TCP: two bytes with its length precede each message (RFC 1035, 4.2.2). */
const LENGTH_BYTES = 2;

export function encodeStreamMessage(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(LENGTH_BYTES + message.length);
  framed.writeUInt16BE(message.length, 0);
  message.copy(framed, LENGTH_BYTES);
  return framed;
}

/** Splits a byte stream into messages. Throws `RangeError` for a message longer than `limitBytes`. */
export class DnsStreamDecoder {
  readonly #limitBytes: number;
  #pending = Buffer.alloc(0);

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  push(chunk: Buffer): Buffer[] {
    let rest = Buffer.concat([this.#pending, chunk]);
    const messages: Buffer[] = [];
    while (rest.length >= LENGTH_BYTES) {
      const length = rest.readUInt16BE(0);
      if (length > this.#limitBytes) throw new RangeError(`DNS message of ${length} bytes`);
      if (rest.length < LENGTH_BYTES + length) break;
      messages.push(rest.subarray(LENGTH_BYTES, LENGTH_BYTES + length));
      rest = rest.subarray(LENGTH_BYTES + length);
    }
    this.#pending = Buffer.from(rest);
    return messages;
  }
}
