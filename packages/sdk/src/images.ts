import { followBuild, type BuildProgress } from './streams/build-events.ts';
import type { CallOptions } from './transport/client-options.ts';
import { slowTimeoutMs } from './transport/post-once.ts';
import { fetchPage, PagedList } from './transport/paged-list.ts';
import type { Transport } from './transport/transport.ts';
import {
  buildQuery,
  buildWireBody,
  readArray,
  readNumber,
  readObject,
  readOptionalString,
  readString,
} from './transport/wire.ts';

/** CPUs, memory and disk of a sandbox. */
export interface Shape {
  /** Number of virtual CPUs, 1–32. Default 1. */
  vcpus?: number | undefined;
  /** Memory in MiB, 128–262 144. Default 1024. */
  memMiB?: number | undefined;
  /** Size of the scratch disk in MiB, 64–1 048 576. Default 4096. */
  diskMiB?: number | undefined;
}

/** A prepared shape. A create with these vCPUs and memory, and a disk from `diskMiB` to `maxDiskMiB`, is fast. */
export interface ReadyShape {
  /** Number of virtual CPUs. */
  vcpus: number;
  /** Memory in MiB. */
  memMiB: number;
  /** Smallest scratch disk in MiB. */
  diskMiB: number;
  /** Largest scratch disk in MiB. */
  maxDiskMiB: number;
}

const SHAPE_FIELDS = {
  vcpus: 'vcpus',
  memMiB: 'mem_mib',
  diskMiB: 'disk_mib',
} as const satisfies Record<keyof Shape, string>;

/** An image that the service stores. */
export interface ImageInfo {
  /** Resolved reference, `registry/repository:tag@sha256:…`. */
  image: string;
  /** Digest of the image, `sha256:…`. */
  digest: string;
  /** Size of the prepared image in bytes. */
  sizeBytes: number;
  /** Time when the image was prepared, ISO 8601 UTC. Null until then. */
  preparedAt: string | null;
  /** `ready` or `preparing`. A newer service may have more values. */
  status: string;
  /** The prepared shapes. The first create with any other shape takes longer. */
  shapes: ReadyShape[];
}

/** Options of `client.images.build()`. */
export interface BuildOptions extends CallOptions {
  /** Shapes to prepare in addition to the default shape, at most 8. */
  shapes?: readonly Shape[] | undefined;
  /**
   * Called with the progress of the build, at most a few times a second. If it throws, the call rejects with that
   * error; the service still prepares the image, but no further shapes.
   */
  onProgress?: ((progress: BuildProgress) => void) | undefined;
}

/**
 * The images that the service has prepared for your organization. Available as `client.images`. Calls reject with
 * {@link CoppiceError}.
 */
export class Images {
  readonly #transport: Transport;

  /** Called by {@link Coppice} only. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Lists the images that your organization built or used, and the built-in ones. Await the list for all of them, or
   * iterate over it.
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
   * Pulls and prepares an image, the default shape and the given shapes, so that later creates with them are fast. Each
   * shape may take seconds. With `onProgress` the call has no time limit while the service sends events. Rejects with
   * {@link CoppiceError}, for example with code `image_not_pinned` or `image_not_found`, and with `TypeError` for an
   * unknown field of a shape.
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
      // Preparing a prepared image again does nothing.
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

  /**
   * Deletes an image that was built from steps, by its name. Its sandboxes keep what they need.
   *
   * @example
   * await client.images.delete('built/app:1');
   */
  async delete(image: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.callJson(
      {
        method: 'DELETE',
        path: '/v1/images',
        query: buildQuery({ image }),
        idempotent: true,
        signal: options.signal,
      },
      () => undefined,
    );
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
