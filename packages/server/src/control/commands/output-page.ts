import type { CommandOutput, CommandOutputQuery } from '@coppice/contract';
import type { KeptOutput } from './kept-output.ts';
import { OutputText, type OutputPart } from './output-text.ts';

/** Reads a page of at most `limit` bytes, both streams counted. */
export async function readPage(
  source: AsyncIterable<KeptOutput>,
  query: CommandOutputQuery,
): Promise<CommandOutput> {
  const parts: OutputPart[] = [];
  let next = query.offset;
  let dropped = 0;
  let isLast = false;
  for await (const output of source) {
    if (output.type === 'exit') isLast = true;
    else if (output.type === 'dropped') {
      dropped += output.next_offset - output.offset;
      next = output.next_offset;
    } else {
      const data = output.data.subarray(0, query.offset + dropped + query.limit - next);
      parts.push({ ...output, data });
      next += data.length;
      if (next - query.offset - dropped >= query.limit) break;
    }
  }
  const end = isLast ? next : findEnd(parts, next, query);
  const text = new OutputText(query);
  const output = parts
    .filter(({ offset }) => offset < end)
    .flatMap((part) => text.encode({ ...part, data: part.data.subarray(0, end - part.offset) }));
  return { output: [...output, ...text.end()], dropped_bytes: dropped, next_offset: end, is_last: isLast };
}

/** Finds where a page ends so that it has no part of a character; at `next` if it would have nothing else. */
function findEnd(parts: readonly OutputPart[], next: number, query: CommandOutputQuery): number {
  const text = new OutputText(query);
  for (const part of parts) text.encode(part);
  const end = text.nextOffset(next);
  return end > (parts[0]?.offset ?? next) ? end : next;
}
