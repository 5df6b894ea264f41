import type http2 from 'node:http2';
import { AppError, type ImageReference } from '@coppice/contract';
import type { ImageAccess, PreparedImage, PrepareProgress } from '../../lib/runner-protocol.ts';
import type { ImageStore } from '../image/image-store.ts';
import type { PrepareOptions, StoredImage } from '../image/image-store.types.ts';
import { writeLine } from './exchange.ts';

export function toWire(image: StoredImage): PreparedImage {
  return {
    image: image.reference,
    digest: image.digest,
    size_bytes: image.sizeBytes,
    prepared_at: image.preparedAt.toISOString(),
    status: 'ready',
  };
}

/** Prepares an image and tells each step as it begins and how far it is; a reader that leaves does not stop it. */
export async function streamPreparation(
  stream: http2.ServerHttp2Stream,
  images: ImageStore,
  { reference, access }: { reference: ImageReference; access: ImageAccess },
): Promise<void> {
  const started = performance.now();
  stream.respond({ ':status': 200, 'content-type': 'application/x-ndjson' });
  const tell = (progress: PrepareProgress): void => writeLine(stream, progress);
  const elapsedMs = (): number => Math.round(performance.now() - started);
  const options: PrepareOptions = {
    access,
    onStep: (step) => tell({ type: 'step', step, elapsed_ms: elapsedMs() }),
    onProgress: ({ step, doneBytes, totalBytes }) =>
      tell({
        type: 'progress',
        step,
        done_bytes: doneBytes,
        total_bytes: totalBytes,
        elapsed_ms: elapsedMs(),
      }),
  };
  try {
    tell({ type: 'done', image: toWire(await images.prepare(reference, options)) });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    tell({ type: 'error', error: { code: error.code, message: error.message } });
  }
  stream.end();
}
