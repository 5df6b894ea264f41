/** Reads bodies of answers, with limits on their size and on slowness. */
import type { IncomingMessage } from 'node:http';
import { toFault } from './exchange.ts';
import { RegistryFault } from './registry-fault.ts';
import type { TransferLimits } from './transfer-limits.ts';

export interface BodyOptions {
  url: URL;
  limits: TransferLimits;
  signal: AbortSignal;
}

/** Yields the chunks of a body. Cuts off slow senders: each interval must bring `minProgressBytes`. */
export async function* readBody(answer: IncomingMessage, options: BodyOptions): AsyncGenerator<Buffer> {
  const { url, limits, signal } = options;
  let bytesInSpan = 0;
  const watch = setInterval(() => {
    if (bytesInSpan < limits.minProgressBytes) {
      answer.destroy(
        new RegistryFault('slow', `${url.host} sent almost nothing for ${limits.progressTimeoutMs} ms`, {
          isPassing: true,
        }),
      );
    }
    bytesInSpan = 0;
  }, limits.progressTimeoutMs);
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      bytesInSpan += chunk.length;
      yield chunk;
    }
  } catch (error) {
    signal.throwIfAborted();
    throw toFault(error, url);
  } finally {
    clearInterval(watch);
    answer.destroy();
  }
}

/** Reads a whole body into memory. Throws `too-large` beyond `maxBytes`. */
export async function readSmallBody(
  answer: IncomingMessage,
  maxBytes: number,
  options: BodyOptions,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of readBody(answer, options)) {
    bytes += chunk.length;
    if (bytes > maxBytes) {
      throw new RegistryFault('too-large', `${options.url.host} sent more than ${maxBytes} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
