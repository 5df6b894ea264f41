/** Builds valid and invalid DNS messages for tests of parsers. */
export const ID = 0x12_34;

export interface RecordText {
  owner: string | Buffer;
  type: number;
  data: Buffer;
  ttl?: number;
  class?: number;
}

export interface MessageText {
  flags?: number;
  name?: string | Buffer;
  type?: number;
  class?: number;
  answers?: RecordText[];
  authorities?: RecordText[];
  additionals?: RecordText[];
  tail?: Buffer;
}

export function u16(...values: number[]): Buffer {
  return Buffer.from(values.flatMap((value) => [value >> 8, value & 0xff]));
}

/** Returns `a.com` without compression. A buffer is returned unchanged. */
export function dnsName(name: string | Buffer): Buffer {
  if (typeof name !== 'string') return name;
  const labels = name.split('.').filter((label) => label !== '');
  const parts = labels.map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]));
  return Buffer.concat([...parts, Buffer.alloc(1)]);
}

export function dnsMessage(text: MessageText): Buffer {
  const sections = [text.answers ?? [], text.authorities ?? [], text.additionals ?? []];
  const counts = sections.map((records) => records.length);
  return Buffer.concat([
    u16(ID, text.flags ?? 0x01_00, 1, ...counts),
    dnsName(text.name ?? 'a.com'),
    u16(text.type ?? 1, text.class ?? 1),
    ...sections.flat().map((record) => encodeRecord(record)),
    text.tail ?? Buffer.alloc(0),
  ]);
}

export function edns(udpBytes: number, options = Buffer.alloc(0)): RecordText {
  return { owner: '', type: 41, class: udpBytes, ttl: 0, data: options };
}

function encodeRecord(record: RecordText): Buffer {
  const ttl = Buffer.alloc(4);
  ttl.writeUInt32BE(record.ttl ?? 300);
  const head = [dnsName(record.owner), u16(record.type, record.class ?? 1), ttl];
  return Buffer.concat([...head, u16(record.data.length), record.data]);
}
