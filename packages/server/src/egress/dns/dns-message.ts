/**
 * Reads the parts of a DNS message (RFC 1035) that a forwarder needs: the header and the single question. The rest is
 * forwarded unread. Both ends are hostile, so every offset is checked before it is used.
 */
import {
  buildAnswerFlags,
  DNS_FLAG,
  DNS_RCODE,
  HEADER_BYTES,
  isAnswer,
  OPCODE_MASK,
  readFlags,
  readId,
  readRcode,
} from './dns-header.ts';

const MAX_NAME_BYTES = 255;
const MAX_LABEL_BYTES = 63;
const TYPE_AND_CLASS_BYTES = 4;

export type QueryVerdict =
  | { kind: 'forward' }
  /** Not a query. An answer could start an endless exchange between two servers. */
  | { kind: 'ignore' }
  | { kind: 'refuse'; rcode: number };

/** Decides whether a guest's message is forwarded. */
export function classifyQuery(message: Buffer): QueryVerdict {
  if (message.length < HEADER_BYTES) return { kind: 'ignore' };
  if (isAnswer(message)) return { kind: 'ignore' };
  if ((readFlags(message) & OPCODE_MASK) !== 0) return { kind: 'refuse', rcode: DNS_RCODE.notImplemented };
  if (findQuestion(message) === undefined) return { kind: 'refuse', rcode: DNS_RCODE.formatError };
  return { kind: 'forward' };
}

/**
 * Returns the bytes of the question (name, type, class), or undefined unless there is exactly one complete question.
 */
export function findQuestion(message: Buffer): Buffer | undefined {
  if (message.length < HEADER_BYTES || message.readUInt16BE(4) !== 1) return undefined;
  let end = HEADER_BYTES;
  for (;;) {
    const length = message[end];
    // A length over 63 would be a compression pointer, which the first name cannot have: no name precedes it.
    if (length === undefined || length > MAX_LABEL_BYTES) return undefined;
    end += 1 + length;
    if (end - HEADER_BYTES > MAX_NAME_BYTES) return undefined;
    if (length === 0) break;
  }
  end += TYPE_AND_CLASS_BYTES;
  return end <= message.length ? message.subarray(HEADER_BYTES, end) : undefined;
}

/** Returns a copy of a message with another id. */
export function withId(message: Buffer, id: number): Buffer {
  const copy = Buffer.from(message);
  copy.writeUInt16BE(id, 0);
  return copy;
}

/** Returns true if `answer` belongs to `query`: same id and same question. Names are compared without case. */
export function isAnswerTo(query: Buffer, answer: Buffer): boolean {
  if (answer.length < HEADER_BYTES || readId(answer) !== readId(query)) return false;
  if (!isAnswer(answer)) return false;
  // Some servers omit the question in an error.
  if (answer.readUInt16BE(4) === 0) return readRcode(answer) !== DNS_RCODE.noError;
  const asked = findQuestion(query);
  const answered = findQuestion(answer);
  return asked !== undefined && answered !== undefined && equalIgnoringCase(asked, answered);
}

/** Builds an error answer to a query that is not forwarded, with its question if it has one. */
export function buildErrorAnswer(query: Buffer, rcode: number): Buffer {
  const question = findQuestion(query) ?? Buffer.alloc(0);
  const answer = Buffer.alloc(HEADER_BYTES + question.length);
  const kept = readFlags(query) & (OPCODE_MASK | DNS_FLAG.recursionDesired);
  answer.writeUInt16BE(readId(query), 0);
  answer.writeUInt16BE(buildAnswerFlags(kept, rcode), 2);
  answer.writeUInt16BE(question.length > 0 ? 1 : 0, 4);
  question.copy(answer, HEADER_BYTES);
  return answer;
}

/**
 * Compares without case. It also folds type and class, but a false match is harmless because the ids must match, too.
 */
function equalIgnoringCase(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && a.toString('latin1').toLowerCase() === b.toString('latin1').toLowerCase();
}
