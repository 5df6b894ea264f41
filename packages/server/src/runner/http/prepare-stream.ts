import type http2 from 'node:http2';
import { AppError, type ReadyShape } from '@coppice/contract';
import type { PrepareImage, PreparedImage, PrepareProgress } from '../../lib/protocol/runner-protocol.ts';
import type { ImageBuilds, ImageBuildOptions } from '../driver/image-builds.ts';
import type { TemplatePlan } from '../driver/template-plan.ts';
import type { StoredImage } from '../image/store/image-store.types.ts';
import { writeLine } from './exchange.ts';

export function toWire(image: StoredImage, shapes: readonly ReadyShape[]): PreparedImage {
  return {
    image: image.reference,
    digest: image.digest,
    size_bytes: image.sizeBytes,
    prepared_at: image.preparedAt.toISOString(),
    status: 'ready',
    shapes: [...shapes],
  };
}

/**
 * Prepares an image and its templates, and streams each step as it begins, with progress. If the reader leaves, no more
 * templates are made; the image is still completed.
 */
export async function streamPreparation(
  stream: http2.ServerHttp2Stream,
  { builds, plan }: { builds: ImageBuilds; plan: TemplatePlan },
  request: PrepareImage,
): Promise<void> {
  stream.respond({ ':status': 200, 'content-type': 'application/x-ndjson' });
  const tell = (progress: PrepareProgress): void => writeLine(stream, progress);
  const describe = (image: StoredImage): PreparedImage => toWire(image, plan.listReady(image));
  const options = { ...tellSteps(tell), signal: untilClosed(stream) };
  try {
    const image = await builds.build(request, {
      ...options,
      onPrepared: (found) => tell({ type: 'prepared', image: describe(found) }),
    });
    tell({ type: 'done', image: describe(image) });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    tell({ type: 'error', error: { code: error.code, message: error.message } });
  }
  stream.end();
}

function tellSteps(
  tell: (progress: PrepareProgress) => void,
): Pick<ImageBuildOptions, 'onStep' | 'onProgress' | 'onTemplate'> {
  const started = performance.now();
  const elapsedMs = (): number => Math.round(performance.now() - started);
  return {
    onStep: (step) => tell({ type: 'step', step, elapsed_ms: elapsedMs() }),
    onTemplate: (shape) => tell({ type: 'step', step: 'template', shape, elapsed_ms: elapsedMs() }),
    onProgress: ({ step, doneBytes, totalBytes }) =>
      tell({
        type: 'progress',
        step,
        done_bytes: doneBytes,
        total_bytes: totalBytes,
        elapsed_ms: elapsedMs(),
      }),
  };
}

/** Aborts when the caller has left. */
export function untilClosed(stream: http2.ServerHttp2Stream): AbortSignal {
  const left = new AbortController();
  const leave = (): void => left.abort(new AppError('unavailable', 'the caller has left'));
  if (stream.destroyed) leave();
  stream.once('close', leave);
  return left.signal;
}
