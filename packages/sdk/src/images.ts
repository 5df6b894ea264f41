import { followBuild, type BuildProgress } from './build-events.ts';
import type { CallOptions } from './client-options.ts';
import { slowTimeoutMs } from './post-once.ts';
import { fetchPage, PagedList } from './paged-list.ts';
import type { Transport } from './transport.ts';
import { readArray, readNumber, readObject, readOptionalString, readString } from './wire.ts';

/** An image as the service holds it. */
export interface ImageInfo {
  /** Resolved reference. */
  image: string;
  digest: string;
  sizeBytes: number;
  /** ISO 8601 UTC; null while it is being prepared. */
  preparedAt: string | null;
  /** `ready` or `preparing`; a newer service may know more. */
  status: string;
}

/** How to make the build call. */
export interface BuildOptions extends CallOptions {
  /**
   * Called as the preparation goes on, a few times a second at most. What it throws ends the call; the preparation goes
   * on in the service.
   */
  onProgress?: ((progress: BuildProgress) => void) | undefined;
}

/** The images that the service has prepared. Reached as `client.images`. */
export class Images {
  readonly #transport: Transport;

  /** Made by {@link Coppice}. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Lists images: await it for all, or iterate.
   *
   * @example
   * for (const { image, sizeBytes } of await client.images.list()) console.log(image, sizeBytes);
   */
  list(options: CallOptions = {}): PagedList<ImageInfo> {
    return new PagedList<ImageInfo>({
      firstQuery: '',
      fetchPage: (query) =>
        fetchPage(this.#transport, { path: '/v1/images', query, signal: options.signal }, (value) =>
          readArray(value, 'the list of images', parseImageInfo),
        ),
    });
  }

  /**
   * Pulls and prepares an image, so that the first create does not have to wait for it.
   *
   * @example
   * await client.images.build('python:3.12-slim');
   *
   * @example
   * await client.images.build('python:3.12-slim', {
   *   onProgress: ({ step, doneBytes, totalBytes }) => console.log(step, doneBytes, totalBytes),
   * });
   */
  async build(image: string, options: BuildOptions = {}): Promise<ImageInfo> {
    const { onProgress, signal } = options;
    const request = {
      method: 'POST' as const,
      path: '/v1/images/build',
      body: JSON.stringify({ image }),
      // Preparing what is prepared already does nothing.
      idempotent: true,
      signal,
      timeoutMs: slowTimeoutMs(this.#transport),
    };
    if (onProgress !== undefined)
      return followBuild(this.#transport, request, { onProgress, parseImage: parseImageInfo });
    const answer = await this.#transport.callJson(
      { ...request, headers: { 'content-type': 'application/json' } },
      parseImageInfo,
    );
    return answer.value;
  }
}

function parseImageInfo(value: unknown): ImageInfo {
  const record = readObject(value, 'the image record');
  return {
    image: readString(record, 'image'),
    digest: readString(record, 'digest'),
    sizeBytes: readNumber(record, 'size_bytes'),
    preparedAt: readOptionalString(record, 'prepared_at'),
    status: readString(record, 'status'),
  };
}
