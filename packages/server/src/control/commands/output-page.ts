import type { CommandOutput, CommandOutputQuery } from '@coppice/contract';
import type { KeptOutput } from './kept-output.ts';
import { OutputText, type OutputPart } from './output-text.ts';

/** Parts in a page: a command may change between its streams with each byte. */
const MAX_PARTS = 4096;

/** Reads a page of at most `limit` bytes, both streams counted. */
export async function readPage(
  source: AsyncIterable<KeptOutput>,
  query: CommandOutputQuery,
): Promise<CommandOutput> {
  const page = new Page(query.offset, query.limit);
  for await (const output of source) {
    if (output.type === 'exit') page.isLast = true;
    else if (output.type === 'dropped') page.skip(output);
    else page.add(output);
    if (page.isFull) break;
  }
  return buildAnswer(page, query);
}

/** Output in one buffer. Adjacent output of one stream is one part, however small the frames of the guest are. */
class Page {
  readonly parts: OutputPart[] = [];
  /** Offset after the last byte. */
  next: number;
  droppedBytes = 0;
  isLast = false;
  readonly #content: Buffer;
  #length = 0;

  constructor(offset: number, limit: number) {
    this.next = offset;
    this.#content = Buffer.allocUnsafe(limit);
  }

  get isFull(): boolean {
    return this.#length === this.#content.length || this.parts.length >= MAX_PARTS;
  }

  skip({ offset, next_offset }: Extract<KeptOutput, { type: 'dropped' }>): void {
    this.droppedBytes += next_offset - offset;
    this.next = next_offset;
  }

  /** Adds as much as fits. */
  add({ type, data }: OutputPart): void {
    const start = this.#length;
    const length = data.copy(this.#content, start);
    this.#length += length;
    const last = this.parts.at(-1);
    if (last?.type === type && last.offset + last.data.length === this.next)
      last.data = this.#content.subarray(start - last.data.length, this.#length);
    else this.parts.push({ type, offset: this.next, data: this.#content.subarray(start, this.#length) });
    this.next += length;
  }
}

function buildAnswer(page: Page, query: CommandOutputQuery): CommandOutput {
  const end = page.isLast ? page.next : findEnd(page, query);
  const text = new OutputText(query);
  const output: CommandOutput['output'] = [];
  let at = query.offset;
  for (const { type, offset, data } of page.parts) {
    // A character does not continue after a gap.
    if (offset !== at) output.push(...text.end());
    if (offset < end) output.push(...text.encode({ type, offset, data: data.subarray(0, end - offset) }));
    at = offset + data.length;
  }
  output.push(...text.end());
  return { output, dropped_bytes: page.droppedBytes, next_offset: end, is_last: page.isLast };
}

/**
 * Finds where a page ends so that it has no part of a character. A page that is not full may end where it begins: the rest
 * of the character comes later. A full page has at least something.
 */
function findEnd(page: Page, query: CommandOutputQuery): number {
  const text = new OutputText(query);
  let at = query.offset;
  for (const part of page.parts) {
    if (part.offset !== at) text.end();
    text.encode(part);
    at = part.offset + part.data.length;
  }
  if (at !== page.next) text.end();
  const end = text.nextOffset(page.next);
  return end > (page.parts[0]?.offset ?? page.next) || !page.isFull ? end : page.next;
}
