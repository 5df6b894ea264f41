/**
 * Parses a guest's question to the resolver under a policy. Only the name and the type of the guest's message are sent
 * upstream: the question is written anew, because every other byte of it could carry data out of the sandbox.
 */
import {
  buildAnswerFlags,
  DNS_FLAG,
  DNS_RCODE,
  HEADER_BYTES,
  isAnswer,
  OPCODE_MASK,
  readCounts,
  readFlags,
  readId,
} from './dns-header.ts';
import { type DnsName, readDnsName, toHostName } from './dns-name.ts';

export const MAX_DNS_QUERY_BYTES = 4096;
const MIN_DATAGRAM_BYTES = 512;
/** A datagram of this size needs no fragmentation on any path (RFC 9715). */
const MAX_DATAGRAM_BYTES = 1232;
const CLASS_INTERNET = 1;

export const DNS_TYPE = {
  a: 1,
  ns: 2,
  cname: 5,
  soa: 6,
  ptr: 12,
  mx: 15,
  txt: 16,
  aaaa: 28,
  srv: 33,
  opt: 41,
  svcb: 64,
  https: 65,
  any: 255,
  caa: 257,
} as const;

/** Forwarded types. Excluded are SVCB and HTTPS (their keys hide names in TLS), ANY, transfers and unneeded types. */
const FORWARDED_TYPES: ReadonlySet<number> = new Set([
  DNS_TYPE.a,
  DNS_TYPE.ns,
  DNS_TYPE.cname,
  DNS_TYPE.soa,
  DNS_TYPE.ptr,
  DNS_TYPE.mx,
  DNS_TYPE.txt,
  DNS_TYPE.aaaa,
  DNS_TYPE.srv,
  DNS_TYPE.caa,
]);

/** A parsed question of a guest. */
export interface DnsQuery {
  id: number;
  name: DnsName;
  hostName: string;
  type: number;
  /** If false, an allowed name is answered with `buildDnsAnswer(query, DNS_RCODE.noError)`. */
  isForwarded: boolean;
  isRecursionDesired: boolean;
  /** Largest answer in bytes that may be sent in a datagram. */
  maxDatagramBytes: number;
}

export type DnsQueryResult =
  | { kind: 'query'; query: DnsQuery }
  /** Not a query. An answer could start an endless exchange between two servers. */
  | { kind: 'ignore' }
  | { kind: 'refuse'; answer: Buffer };

/** Parses a guest's message. Only a single plain question of class IN is a query. */
export function parseDnsQuery(message: Buffer): DnsQueryResult {
  if (message.length < HEADER_BYTES || message.length > MAX_DNS_QUERY_BYTES) return { kind: 'ignore' };
  if (isAnswer(message)) return { kind: 'ignore' };
  const flags = readFlags(message);
  if ((flags & OPCODE_MASK) !== 0) return refuse(message, DNS_RCODE.notImplemented);
  const [questions, answers, authorities, additionals = 0] = readCounts(message);
  const isLone = questions === 1 && answers === 0 && authorities === 0 && additionals <= 1;
  const name = isLone ? readDnsName(message, HEADER_BYTES) : undefined;
  if (name === undefined || name.end + 4 > message.length) return refuse(message, DNS_RCODE.formatError);
  const maxDatagramBytes =
    additionals === 0 ? MIN_DATAGRAM_BYTES : readDatagramBytes(message.subarray(name.end + 4));
  if (maxDatagramBytes === undefined) return refuse(message, DNS_RCODE.formatError);
  const type = message.readUInt16BE(name.end);
  const hostName = toHostName(name);
  if (message.readUInt16BE(name.end + 2) !== CLASS_INTERNET || hostName === undefined)
    return refuse(message, DNS_RCODE.refused);
  const query: DnsQuery = {
    id: readId(message),
    name,
    hostName,
    type,
    isForwarded: FORWARDED_TYPES.has(type),
    isRecursionDesired: (flags & DNS_FLAG.recursionDesired) !== 0,
    maxDatagramBytes,
  };
  return { kind: 'query', query };
}

/** Builds the upstream query: folded name, no EDNS options, recursion desired. */
export function buildUpstreamQuery({ name, type }: DnsQuery, id: number): Buffer {
  const header = buildHeader(id, DNS_FLAG.recursionDesired);
  header.writeUInt16BE(1, 10);
  const options = Buffer.from([0, 0, DNS_TYPE.opt, 0, 0, 0, 0, 0, 0, 0, 0]);
  options.writeUInt16BE(MAX_DATAGRAM_BYTES, 3);
  return Buffer.concat([header, buildQuestion(Buffer.from(name.key, 'latin1'), type), options]);
}

/** Builds an answer without records: a refusal, or `noError` if the name has no records of this type. */
export function buildDnsAnswer(query: DnsQuery, rcode: number): Buffer {
  return Buffer.concat([buildAnswerHeader(query, rcode), buildQuestion(query.name.wire, query.type)]);
}

/** Builds an answer after which the guest repeats the question over TCP. */
export function buildTruncatedAnswer(query: DnsQuery): Buffer {
  const answer = buildDnsAnswer(query, DNS_RCODE.noError);
  answer.writeUInt16BE(readFlags(answer) | DNS_FLAG.truncated, 2);
  return answer;
}

function buildAnswerHeader({ id, isRecursionDesired }: DnsQuery, rcode: number): Buffer {
  const desired = isRecursionDesired ? DNS_FLAG.recursionDesired : 0;
  return buildHeader(id, buildAnswerFlags(desired, rcode));
}

function buildHeader(id: number, flags: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(id, 0);
  header.writeUInt16BE(flags, 2);
  header.writeUInt16BE(1, 4);
  return header;
}

function buildQuestion(wireName: Buffer, type: number): Buffer {
  const tail = Buffer.alloc(4);
  tail.writeUInt16BE(type, 0);
  tail.writeUInt16BE(CLASS_INTERNET, 2);
  return Buffer.concat([wireName, tail]);
}

/**
 * Reads the size limit of the EDNS record (RFC 6891). Returns undefined unless it is the only additional record, at the
 * root, and ends the message.
 */
function readDatagramBytes(record: Buffer): number | undefined {
  const isOptions = record.length >= 11 && record[0] === 0 && record.readUInt16BE(1) === DNS_TYPE.opt;
  if (!isOptions || record.length !== 11 + record.readUInt16BE(9)) return undefined;
  return Math.min(Math.max(record.readUInt16BE(3), MIN_DATAGRAM_BYTES), MAX_DATAGRAM_BYTES);
}

/** Builds a refusal without the question, because the question may be malformed. */
function refuse(message: Buffer, rcode: number): DnsQueryResult {
  const desired = readFlags(message) & (OPCODE_MASK | DNS_FLAG.recursionDesired);
  const answer = buildHeader(readId(message), buildAnswerFlags(desired, rcode));
  answer.writeUInt16BE(0, 4);
  return { kind: 'refuse', answer };
}
