import { CoppiceError } from './errors.ts';

/** A frame of the service holds at most 1 MiB of output, which JSON can make six times as long. */
const MAX_LINE_LENGTH = 8 * 2 ** 20;

/** The `data:` lines of a stream of server-sent events; comments and other fields are skipped. */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > MAX_LINE_LENGTH) throw tooLong();
      for (const line of lines) if (line.startsWith('data: ')) yield line.slice('data: '.length);
    }
  } finally {
    // Also when the reader leaves in the middle: the service ends what it does for nobody.
    await reader.cancel().catch(() => undefined);
  }
}

function tooLong(): CoppiceError {
  return new CoppiceError(`an event is over ${MAX_LINE_LENGTH} characters; is baseUrl right?`, {
    status: 0,
    code: 'invalid_response',
  });
}
