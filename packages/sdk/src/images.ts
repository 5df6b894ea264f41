import { followBuild, type BuildProgress } from './streams/build-events.ts';
import type { CallOptions } from './transport/client-options.ts';
import { slowTimeoutMs } from './transport/post-once.ts';
import { fetchPage, PagedList } from './transport/paged-list.ts';
import type { Transport } from './transport/transport.ts';
import {
  buildWireBody,
  readArray,
  readNumber,
  readObject,
  readOptionalString,
  readString,
} from './transport/wire.ts';

/** What sandboxes have of the machine. */
export interface Shape {
  /** Default 1. */
  vcpus?: number | undefined;
  /** Memory. Default 1024. */
  memMiB?: number | undefined;
  /** Scratch disk. Default 4096. */
  diskMiB?: number | undefined;
}

/** A create of these vCPUs and memory, with a disk from `diskMiB` to `maxDiskMiB`, takes the fast path. */
export interface ReadyShape {
  vcpus: number;
  memMiB: number;
  diskMiB: number;
  maxDiskMiB: number;
}

const SHAPE_FIELDS = {
  vcpus: 'vcpus',
  memMiB: 'mem_mib',
  diskMiB: 'disk_mib',
} as const satisfies Record<keyof Shape, string>;

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
  /** The first create of any other shape takes longer. */
  shapes: ReadyShape[];
}

/** How to make the build call. */
export interface BuildOptions extends CallOptions {
  /** Made ready besides the default shape; at most 8. */
  shapes?: readonly Shape[] | undefined;
  /**
   * Called as the build progresses, a few times a second at most. What it throws ends the call; the service still
   * prepares the image, but no more shapes.
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
   * Pulls and prepares an image, and makes the default shape and those that are given ready, so that no create of them has
   * to wait for that. Each shape may take seconds; with `onProgress` the call has no time limit but for silence.
   *
   * @example
   * await client.images.build('python:3.12-slim');
   *
   * @example
   * await client.images.build('python:3.12-slim', {
   *   shapes: [{ vcpus: 2, memMiB: 2048 }],
   *   onProgress: ({ step, doneBytes, totalBytes }) => console.log(step, doneBytes, totalBytes),
   * });
   */
  async build(image: string, options: BuildOptions = {}): Promise<ImageInfo> {
    const { onProgress, signal, shapes } = options;
    const wanted = shapes?.map((shape) => buildWireBody(shape, SHAPE_FIELDS, 'build: shapes'));
    const request = {
      method: 'POST' as const,
      path: '/v1/images/build',
      body: JSON.stringify({ image, shapes: wanted }),
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
    shapes: readArray(record['shapes'] ?? [], 'the list of shapes', parseShape),
  };
}

function parseShape(value: unknown): ReadyShape {
  const record = readObject(value, 'the shape');
  return {
    vcpus: readNumber(record, 'vcpus'),
    memMiB: readNumber(record, 'mem_mib'),
    diskMiB: readNumber(record, 'disk_mib'),
    maxDiskMiB: readNumber(record, 'max_disk_mib'),
  };
}
