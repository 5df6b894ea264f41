import { CoppiceError } from './errors.ts';

/** Far above any event of the service; an answer without line ends must not fill the memory. */
const MAX_LINE_LENGTH = 1 << 20;

/**
 * The `data:` of server-sent events, one for each event. Comments, which keep the connection alive, and other fields are
 * passed over. Leaving the loop early ends the stream.
 */
export async function* readEventData(
  stream: ReadableStream<Uint8Array>,
): AsyncGenerator<string, void, undefined> {
  let data: string[] = [];
  for await (const line of readLines(stream)) {
    if (line.startsWith('data:')) data.push(line.slice('data:'.length).replace(/^ /, ''));
    if (line !== '' || data.length === 0) continue;
    yield data.join('\n');
    data = [];
  }
}

/** What follows the last line end is no line: it was cut off. */
async function* readLines(stream: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let pending = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (pending + decoder.decode(value, { stream: true })).split(/\r?\n/);
      pending = lines.pop() ?? '';
      if (pending.length > MAX_LINE_LENGTH) throw tooLong();
      yield* lines;
    }
  } finally {
    await reader.cancel();
  }
}

function tooLong(): CoppiceError {
  return new CoppiceError(`a line of an event is over ${MAX_LINE_LENGTH} characters`, {
    status: 200,
    code: 'invalid_response',
  });
}
