import { CoppiceError } from '../transport/errors.ts';

/**
 * The `data:` of server-sent events, one for each event. Comments, which keep the connection alive, and other fields are
 * passed over. Leaving the loop early ends the stream. An answer without line ends must not fill the memory:
 * `maxLineLength`, in characters, is far above any event of the endpoint.
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

/** What follows the last line end is no line: it was cut off. */
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
  return new CoppiceError(`a line is over ${maxLength} characters`, {
    status: 200,
    code: 'invalid_response',
  });
}
