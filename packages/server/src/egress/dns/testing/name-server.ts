import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { HEADER_BYTES } from '../dns-header.ts';
import { readDnsName, toHostName } from '../dns-name.ts';
import { dnsMessage, dnsName, u16 } from './dns-bytes.ts';

const PORT = 53;
const TYPE_A = 1;
const TYPE_CNAME = 5;

/** An upstream resolver for tests. Unknown names have no address. */
export class NameServer implements Disposable {
  readonly #socket = createSocket('udp4');
  /** Name → addresses. */
  readonly names = new Map<string, string[]>();
  /** Alias → target name. */
  readonly aliases = new Map<string, string>();
  readonly asked: string[] = [];
  readonly askedTypes = new Set<number>();
  delayMs = 0;

  async listen(address: string): Promise<void> {
    const socket = this.#socket;
    socket.on('message', async (query, from) => {
      if (this.delayMs > 0) await setTimeout(this.delayMs);
      socket.send(this.#answer(query), from.port, from.address);
    });
    socket.bind(PORT, address);
    await once(socket, 'listening');
  }

  [Symbol.dispose](): void {
    this.#socket.close();
  }

  #answer(query: Buffer): Buffer {
    const name = readDnsName(query, HEADER_BYTES);
    const text = (name && toHostName(name)) ?? '';
    this.asked.push(text);
    const type = query.readUInt16BE(name?.end ?? HEADER_BYTES);
    this.askedTypes.add(type);
    const target = this.aliases.get(text);
    const aliases = target === undefined ? [] : [{ owner: text, type: TYPE_CNAME, data: dnsName(target) }];
    const owner = target ?? text;
    const addresses = type === TYPE_A ? (this.names.get(owner) ?? []) : [];
    const found = addresses.map((address) => ({
      owner,
      type: TYPE_A,
      data: Buffer.from(address.split('.').map(Number)),
    }));
    const answers = [...aliases, ...found];
    const answer = dnsMessage({ flags: 0x81_80, name: text, type, answers });
    return Buffer.concat([u16(query.readUInt16BE(0)), answer.subarray(2)]);
  }
}
