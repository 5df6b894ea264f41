/**
 * Reduces an upstream's answer to the records that answer the question: the chain of aliases from its name, the records
 * of the requested type at the end of the chain, and the SOA with the lifetime of a negative answer. The message is
 * written anew from these. Records of other names, HTTPS and SVCB records and the additional section therefore do not
 * reach the guest.
 */
import {
  DNS_FLAG,
  DNS_RCODE,
  HEADER_BYTES,
  isAnswer,
  readCounts,
  readFlags,
  readRcode,
} from './dns-header.ts';
import { findQuestion } from './dns-message.ts';
import { readDnsName, toHostName } from './dns-name.ts';
import { buildDnsAnswer, DNS_TYPE, type DnsQuery } from './dns-query.ts';
import { type DnsRecord, readDnsRecords } from './dns-records.ts';

const MAX_MESSAGE_BYTES = 0xff_ff;
const MAX_RECORDS_READ = 1024;
const MAX_RECORDS_KEPT = 128;
const MAX_ALIASES = 16;
/** The name of the question follows the header. Most records have that name as owner. */
const POINTER_TO_QUESTION = Buffer.from([0xc0, HEADER_BYTES]);
const MAX_TTL = 0x7f_ff_ff_ff;

/** Bounds of times to live, in seconds. */
export interface TtlBounds {
  min: number;
  max: number;
}

export type DnsAnswerResult =
  | {
      kind: 'answer';
      message: Buffer;
      rcode: number;
      /** The folded name of the question, and the names at which its aliases point. */
      names: string[];
      /** Addresses in the answer, for A and AAAA questions. */
      addresses: string[];
      /** Smallest TTL of the records in seconds. undefined when there are none. */
      ttl: number | undefined;
    }
  /** The question must be sent again over TCP. */
  | { kind: 'truncated' }
  | { kind: 'malformed' };

const MALFORMED: DnsAnswerResult = { kind: 'malformed' };

/** Parses and filters an answer to `query`, and limits its TTLs to `bounds`. */
export function filterDnsAnswer(query: DnsQuery, message: Buffer, bounds: TtlBounds): DnsAnswerResult {
  if (!isAnswerToQuestion(query, message)) return MALFORMED;
  if ((readFlags(message) & DNS_FLAG.truncated) !== 0) return { kind: 'truncated' };
  const rcode = readRcode(message);
  if (rcode !== DNS_RCODE.noError && rcode !== DNS_RCODE.noSuchName)
    return buildResult(query, rcode, { names: [query.hostName], answers: [], authorities: [] });
  const sections = readSections(message);
  const chain = sections && followAliases(query, sections.answers);
  if (sections === undefined || chain === undefined) return MALFORMED;
  const isKept = ({ type, owner }: DnsRecord) => type === query.type && owner.key === chain.end;
  const found = sections.answers.filter(isKept);
  const isSource = ({ type, owner }: DnsRecord) => type === DNS_TYPE.soa && isWithin(chain.end, owner.key);
  const kept = {
    names: chain.names,
    answers: [...chain.aliases, ...found].slice(0, MAX_RECORDS_KEPT),
    authorities: found.length === 0 ? sections.authorities.filter(isSource).slice(0, 1) : [],
  };
  return buildResult(query, rcode, clampTtls(kept, bounds));
}

/**
 * Builds an answer to an A question with only addresses, at the requested name. Names of aliases and zones are data of
 * another server: they must not reach a guest that may learn only addresses.
 */
export function buildAddressAnswer(query: DnsQuery, addresses: readonly string[], ttl: number): Buffer {
  const records = addresses.map((address) =>
    encodeRecord(buildAddressRecord(query, address, ttl), query.name.key),
  );
  const message = Buffer.concat([buildDnsAnswer(query, DNS_RCODE.noError), ...records]);
  message.writeUInt16BE(addresses.length, 6);
  return message;
}

function buildAddressRecord({ name }: DnsQuery, address: string, ttl: number): DnsRecord {
  const data = Buffer.from(address.split('.').map(Number));
  return { owner: name, type: DNS_TYPE.a, ttl, data, target: undefined };
}

function isAnswerToQuestion(query: DnsQuery, message: Buffer): boolean {
  const question = message.length > MAX_MESSAGE_BYTES ? undefined : findQuestion(message);
  if (question === undefined || !isAnswer(message)) return false;
  const name = readDnsName(question, 0);
  return name?.key === query.name.key && question.readUInt16BE(name.end) === query.type;
}

interface Sections {
  answers: DnsRecord[];
  authorities: DnsRecord[];
}

/** Reads the sections of a message whose question has been checked. It never reads the additional section. */
function readSections(message: Buffer): Sections | undefined {
  const [, answerCount = 0, authorityCount = 0] = readCounts(message);
  if (answerCount + authorityCount > MAX_RECORDS_READ) return undefined;
  const start = HEADER_BYTES + (findQuestion(message)?.length ?? 0);
  const answers = readDnsRecords(message, start, answerCount);
  const authorities = answers && readDnsRecords(message, answers.end, authorityCount);
  return authorities && { answers: answers.records, authorities: authorities.records };
}

interface AliasChain {
  names: string[];
  aliases: DnsRecord[];
  /** Key of the name at the end of the chain. */
  end: string;
}

/**
 * Follows the aliases of the question's name. Returns undefined for a name with two aliases, a loop, a chain of over 16
 * aliases, or an alias that is not a host name.
 */
function followAliases(query: DnsQuery, answers: readonly DnsRecord[]): AliasChain | undefined {
  const chain: AliasChain = { names: [query.hostName], aliases: [], end: query.name.key };
  if (query.type === DNS_TYPE.cname) return chain;
  const aliases = answers.filter(({ type }) => type === DNS_TYPE.cname);
  while (chain.aliases.length <= MAX_ALIASES) {
    const [alias, other] = aliases.filter(({ owner }) => owner.key === chain.end);
    if (alias === undefined) return chain;
    const name = alias.target && toHostName(alias.target);
    if (other !== undefined || name === undefined || chain.names.includes(name)) return undefined;
    chain.names.push(name);
    chain.aliases.push(alias);
    chain.end = alias.target?.key ?? '';
  }
  return undefined;
}

/** Returns true if the name is that of the zone or below it. It compares whole labels. */
function isWithin(nameKey: string, zoneKey: string): boolean {
  for (let offset = 0; ;) {
    if (nameKey.slice(offset) === zoneKey) return true;
    const length = nameKey.codePointAt(offset) ?? 0;
    if (length === 0) return false;
    offset += 1 + length;
  }
}

interface Kept extends Sections {
  names: string[];
}

function clampTtls({ names, answers, authorities }: Kept, { min, max }: TtlBounds): Kept {
  const clamp = (record: DnsRecord): DnsRecord => {
    // A value in the upper half of the range counts as 0 (RFC 2181, 8).
    const ttl = record.ttl > MAX_TTL ? 0 : record.ttl;
    return { ...record, ttl: Math.min(Math.max(ttl, min), max) };
  };
  return { names, answers: answers.map(clamp), authorities: authorities.map(clamp) };
}

function buildResult(query: DnsQuery, rcode: number, { names, answers, authorities }: Kept): DnsAnswerResult {
  const records = [...answers, ...authorities];
  const encoded = records.map((record) => encodeRecord(record, query.name.key));
  const message = Buffer.concat([buildDnsAnswer(query, rcode), ...encoded]);
  if (message.length > MAX_MESSAGE_BYTES) return MALFORMED;
  message.writeUInt16BE(answers.length, 6);
  message.writeUInt16BE(authorities.length, 8);
  const ttl = records.length === 0 ? undefined : Math.min(...records.map((record) => record.ttl));
  return { kind: 'answer', message, rcode, names, addresses: answers.flatMap(readAddress), ttl };
}

function encodeRecord({ owner, type, ttl, data }: DnsRecord, questionKey: string): Buffer {
  const fixed = Buffer.alloc(10);
  fixed.writeUInt16BE(type, 0);
  fixed.writeUInt16BE(1, 2);
  fixed.writeUInt32BE(ttl, 4);
  fixed.writeUInt16BE(data.length, 8);
  return Buffer.concat([owner.key === questionKey ? POINTER_TO_QUESTION : owner.wire, fixed, data]);
}

function readAddress({ type, data }: DnsRecord): string[] {
  if (type === DNS_TYPE.a) return [data.join('.')];
  if (type !== DNS_TYPE.aaaa) return [];
  const groups = Array.from({ length: 8 }, (_, index) => data.readUInt16BE(2 * index).toString(16));
  return [new URL(`http://[${groups.join(':')}]/`).hostname.slice(1, -1)];
}
