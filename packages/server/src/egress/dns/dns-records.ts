/**
 * Reads records of a DNS message and decompresses the names in them, so that they can be written into another message.
 */
import { type DnsName, readDnsName } from './dns-name.ts';
import { DNS_TYPE } from './dns-query.ts';

const FIXED_BYTES = 10;
const CLASS_INTERNET = 1;

/** A record of class IN. */
export interface DnsRecord {
  owner: DnsName;
  type: number;
  /** Time to live in seconds. */
  ttl: number;
  /** Data with uncompressed names. */
  data: Buffer;
  /** First name in the data. undefined for types without names. */
  target: DnsName | undefined;
}

interface Layout {
  bytesBefore: number;
  names: number;
  bytesAfter: number;
}

const NAME_ONLY: Layout = { bytesBefore: 0, names: 1, bytesAfter: 0 };

/** Types whose data may contain compressed names (RFC 3597, 4). Data of other types can be copied unchanged. */
const LAYOUTS: ReadonlyMap<number, Layout> = new Map([
  [DNS_TYPE.cname, NAME_ONLY],
  [DNS_TYPE.ns, NAME_ONLY],
  [DNS_TYPE.ptr, NAME_ONLY],
  [DNS_TYPE.mx, { bytesBefore: 2, names: 1, bytesAfter: 0 }],
  [DNS_TYPE.srv, { bytesBefore: 6, names: 1, bytesAfter: 0 }],
  [DNS_TYPE.soa, { bytesBefore: 0, names: 2, bytesAfter: 20 }],
]);

const ADDRESS_BYTES: ReadonlyMap<number, number> = new Map([
  [DNS_TYPE.a, 4],
  [DNS_TYPE.aaaa, 16],
]);

export interface RecordsRead {
  /** Records of class IN. Other classes are left out. */
  records: DnsRecord[];
  end: number;
}

/** Reads `count` records from offset `start`. Returns undefined if any of them is malformed. */
export function readDnsRecords(message: Buffer, start: number, count: number): RecordsRead | undefined {
  const records: DnsRecord[] = [];
  let offset = start;
  for (let index = 0; index < count; index += 1) {
    const owner = readDnsName(message, offset);
    if (owner === undefined || owner.end + FIXED_BYTES > message.length) return undefined;
    const type = message.readUInt16BE(owner.end);
    const dataStart = owner.end + FIXED_BYTES;
    offset = dataStart + message.readUInt16BE(owner.end + 8);
    if (offset > message.length) return undefined;
    const data = readData(message.subarray(0, offset), dataStart, type);
    if (data === undefined) return undefined;
    const ttl = message.readUInt32BE(owner.end + 4);
    if (message.readUInt16BE(owner.end + 2) === CLASS_INTERNET) records.push({ owner, type, ttl, ...data });
  }
  return { records, end: offset };
}

/** Reads the data of a record. `message` must end with the record, so that no name reads beyond it. */
function readData(
  message: Buffer,
  start: number,
  type: number,
): Pick<DnsRecord, 'data' | 'target'> | undefined {
  const layout = LAYOUTS.get(type);
  const data = message.subarray(start);
  if (layout === undefined) {
    const isSized = data.length === (ADDRESS_BYTES.get(type) ?? data.length);
    return isSized ? { data, target: undefined } : undefined;
  }
  const parts = [data.subarray(0, layout.bytesBefore)];
  let target: DnsName | undefined;
  let offset = start + layout.bytesBefore;
  for (let index = 0; index < layout.names; index += 1) {
    const name = readDnsName(message, offset);
    if (name === undefined) return undefined;
    target ??= name;
    parts.push(name.wire);
    offset = name.end;
  }
  if (message.length - offset !== layout.bytesAfter) return undefined;
  return { data: Buffer.concat([...parts, message.subarray(offset)]), target };
}
