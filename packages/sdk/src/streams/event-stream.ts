import { CoppiceError } from '../transport/errors.ts';

/**
 * Yields the `data:` of server-sent events, one text for each event. It skips other fields, and comments, which keep
 * the connection alive. Leaving the loop early cancels the stream. `maxLineLength`, in characters, keeps an answer
 * without line ends from filling the memory; it is far above any event of the endpoint. Throws {@link CoppiceError}
 * with code `invalid_response` for a longer line.
 */
export async function* readEventData(
  stream: ReadableStream<Uint8Array>,
  maxLineLength: number,
): AsyncGenerator<string, void, undefined> {
  let data: string[] = [];
  for await (const line of readLines(stream, maxLineLength)) {
    if (line.startsWith('data:')) data.push(line.slice('data:'.length).replace(/^ /, ''));
    if (line !== '' || data.length === 0) continue;
    yield data.join('\n');
    data = [];
  }
}

/**
 * Yields the lines of a stream. Text after the last line end is dropped because it was cut off. Throws
 * {@link CoppiceError} with code `invalid_response` for a line over `maxLength` characters.
 */
export async function* readLines(
  stream: ReadableStream<Uint8Array>,
  maxLength: number,
): AsyncGenerator<string, void, undefined> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let pending = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (pending + decoder.decode(value, { stream: true })).split(/\r?\n/);
      pending = lines.pop() ?? '';
      if (pending.length > maxLength) throw tooLong(maxLength);
      yield* lines;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function tooLong(maxLength: number): CoppiceError {
  return new CoppiceError(`a line has over ${maxLength} characters`, {
    status: 200,
    code: 'invalid_response',
  });
}
