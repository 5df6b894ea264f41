/**
 * Reads names in DNS messages (RFC 1035, 3.1 and 4.1.4) as uncompressed bytes. No library is used because libraries
 * return text, in which a dot inside a label, or a byte that is not UTF-8, looks like another name than the server's.
 */
import { parseHostName } from '../names/host-name.ts';

const MAX_NAME_BYTES = 255;
const MAX_LABEL_BYTES = 63;
const POINTER_MARK = 0xc0;
/** Compressors use one pointer for a name, some use two. */
const MAX_POINTERS = 16;

/** A name in a DNS message. */
export interface DnsName {
  /** Uncompressed bytes, in the spelling of the message. */
  wire: Buffer;
  /** Equal for equal names. Length bytes are smaller than letters, so folding does not change them. */
  key: string;
  /** Offset of the next field. */
  end: number;
}

/** Reads the name at `start`. Returns undefined if it is incomplete or malformed. Pointers may only point backwards. */
export function readDnsName(message: Buffer, start: number): DnsName | undefined {
  const parts: Buffer[] = [];
  let length = 0;
  let offset = start;
  let limit = start;
  let end: number | undefined;
  for (let pointers = 0; pointers <= MAX_POINTERS;) {
    const head = message[offset];
    if (head === undefined) return undefined;
    if (head >= POINTER_MARK) {
      const low = message[offset + 1];
      const target = ((head & ~POINTER_MARK) << 8) | (low ?? 0);
      if (low === undefined || target >= limit) return undefined;
      end ??= offset + 2;
      offset = target;
      limit = target;
      pointers += 1;
      continue;
    }
    const part = message.subarray(offset, offset + 1 + head);
    length += part.length;
    if (head > MAX_LABEL_BYTES || part.length !== 1 + head || length > MAX_NAME_BYTES) return undefined;
    parts.push(part);
    offset += part.length;
    if (head === 0) return buildName(parts, end ?? offset);
  }
  return undefined;
}

/**
 * Returns the name in the spelling of the rules. Returns undefined if it is not a host name (the root, other
 * characters, dots inside a label).
 */
export function toHostName({ wire }: DnsName): string | undefined {
  const labels: string[] = [];
  for (let offset = 0; ;) {
    const length = wire[offset] ?? 0;
    if (length === 0) break;
    const label = wire.toString('latin1', offset + 1, offset + 1 + length);
    if (label.includes('.')) return undefined;
    labels.push(label);
    offset += 1 + length;
  }
  return parseHostName(labels.join('.'));
}

function buildName(parts: readonly Buffer[], end: number): DnsName {
  const wire = Buffer.concat(parts);
  return { wire, key: wire.toString('latin1').toLowerCase(), end };
}
