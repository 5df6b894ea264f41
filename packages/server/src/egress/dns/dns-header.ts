/** The twelve bytes at the start of every DNS message (RFC 1035, 4.1.1). */
export const HEADER_BYTES = 12;
export const OPCODE_MASK = 0x7800;
const RCODE_MASK = 0x000f;

export const DNS_FLAG = {
  answer: 0x8000,
  truncated: 0x0200,
  recursionDesired: 0x0100,
  recursionAvailable: 0x0080,
} as const;

export const DNS_RCODE = {
  noError: 0,
  formatError: 1,
  serverFailure: 2,
  noSuchName: 3,
  notImplemented: 4,
  refused: 5,
} as const;

export function readId(message: Buffer): number {
  return message.readUInt16BE(0);
}

export function readFlags(message: Buffer): number {
  return message.readUInt16BE(2);
}

export function isAnswer(message: Buffer): boolean {
  return (readFlags(message) & DNS_FLAG.answer) !== 0;
}

export function readRcode(message: Buffer): number {
  return readFlags(message) & RCODE_MASK;
}

/** Returns the numbers of questions, answers, authorities and additional records that the message claims. */
export function readCounts(message: Buffer): number[] {
  return [4, 6, 8, 10].map((offset) => message.readUInt16BE(offset));
}

/** Returns the flags of an answer built here. `kept` has the flags that are copied from the query. */
export function buildAnswerFlags(kept: number, rcode: number): number {
  return DNS_FLAG.answer | DNS_FLAG.recursionAvailable | kept | rcode;
}
