/**
 * Objects in a bucket of an S3 server. Everything rests on one condition, create-only (`If-None-Match: *`), which the
 * servers implement alike; comparing writes (`If-Match`) differ between them and are not used.
 *
 *   create-only write ──► 200 ───────────────────► won
 *          │   ▲      └──► 412 ──► HEAD: own id? ─► yes: an earlier attempt won, and its answer was lost
 *          └───┘                              └───► no: another writer won
 *   no answer, 5xx, 409: repeated with the same id
 */
import { randomUUID } from 'node:crypto';
import {
  DeleteObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type ListObjectsV2CommandOutput,
  type S3Client,
} from '@aws-sdk/client-s3';
import type { S3Location } from '../object-store-config.ts';
import {
  isObjectKey,
  requireObjectKey,
  type ByteRange,
  type ListOptions,
  type ObjectContent,
  type ObjectInfo,
  type ObjectStore,
} from '../object-store.ts';
import { uploadInParts } from './multipart-upload.ts';
import { cutParts, type ObjectPart } from './object-parts.ts';
import { readObject } from './object-reading.ts';
import {
  ID_METADATA,
  PRECONDITION_FAILED,
  type S3Bucket,
  type S3Write,
  type WriteOutcome,
} from './s3-bucket.ts';
import { createS3Client } from './s3-client.ts';
import { S3Requests, type S3Limits } from './s3-requests.ts';

const LIMITS: S3Limits = {
  attemptMs: 60_000,
  deadlineMs: 120_000,
  idleMs: 30_000,
  partBytes: 8 << 20,
};
const PAGE_SIZE = 1000;
const NOT_FOUND = 404;

export class S3Objects implements ObjectStore, Disposable {
  readonly #client: S3Client;
  readonly #bucket: S3Bucket;
  readonly #prefix: string;

  private constructor(location: S3Location, limits: S3Limits) {
    this.#client = createS3Client(location);
    const requests = new S3Requests(describeLocation(location), limits);
    this.#bucket = { client: this.#client, bucket: location.bucket, requests };
    this.#prefix = location.prefix === '' ? '' : `${location.prefix}/`;
  }

  /** Sends no request. */
  static open(location: S3Location, limits: Partial<S3Limits> = {}): S3Objects {
    return new S3Objects(location, { ...LIMITS, ...limits });
  }

  /** Ends all requests. */
  [Symbol.dispose](): void {
    this.#bucket.requests[Symbol.dispose]();
    this.#client.destroy();
  }

  async put(key: string, content: ObjectContent): Promise<void> {
    await this.#write(key, content, { isCreateOnly: false });
  }

  async putIfAbsent(key: string, content: ObjectContent): Promise<boolean> {
    return this.#write(key, content, { isCreateOnly: true });
  }

  async *get(key: string, range: ByteRange = { start: 0 }): AsyncGenerator<Uint8Array> {
    const name = this.#nameOf(key);
    if (range.end !== undefined && range.end <= range.start) return;
    yield* readObject(this.#bucket, { key, name }, range);
  }

  async *list(prefix: string, { pageSize = PAGE_SIZE }: ListOptions = {}): AsyncGenerator<ObjectInfo> {
    const step = `listing ${prefix}`;
    let token: string | undefined;
    do {
      const page = await this.#listPage(step, { prefix, pageSize, token });
      for (const { Key = '', Size = 0 } of page.Contents ?? []) {
        const key = Key.slice(this.#prefix.length);
        // Other programs may have put other names into the bucket.
        if (isObjectKey(key)) yield { key, sizeBytes: Size };
      }
      const next = page.IsTruncated === true ? page.NextContinuationToken : undefined;
      if ((page.IsTruncated === true && next === undefined) || (next !== undefined && next === token))
        throw this.#bucket.requests.fail(step, 'the server names no further page; use another server', {
          isTransient: false,
        });
      token = next;
    } while (token !== undefined);
  }

  async delete(key: string): Promise<void> {
    const { client, bucket, requests } = this.#bucket;
    const name = this.#nameOf(key);
    await requests.run<unknown>(
      {
        step: `deleting ${key}`,
        onRefusal: ({ code }) => (code === 'NoSuchKey' ? 'absent' : undefined),
      },
      (abortSignal) => client.send(new DeleteObjectCommand({ Bucket: bucket, Key: name }), { abortSignal }),
    );
  }

  /** Verifies that the server returns the id of a write: without it a lost answer could not be resolved. */
  async checkServer(key: string): Promise<void> {
    const write = { name: this.#nameOf(key), id: randomUUID(), isCreateOnly: false };
    await this.#putWhole(write, Buffer.from('x'));
    if (await this.#isOwn(write)) return;
    throw this.#bucket.requests.fail(
      `reading the metadata of ${key}`,
      'the server does not return the metadata of an object (x-amz-meta-*); use another server',
      { isTransient: false },
    );
  }

  async #write(key: string, content: ObjectContent, options: { isCreateOnly: boolean }): Promise<boolean> {
    const { requests } = this.#bucket;
    const write = { name: this.#nameOf(key), id: randomUUID(), ...options };
    const parts = cutParts(content, requests.limits.partBytes);
    const first = (await parts.next()).value as ObjectPart;
    const outcome = first.isLast
      ? await this.#putWhole(write, first.bytes)
      : await uploadInParts(this.#bucket, write, joinParts(first, parts));
    if (outcome === 'written' || (await this.#isOwn(write))) return true;
    if (outcome === 'exists') return false;
    throw requests.fail(
      `putting ${key}`,
      'the server has lost the upload, or another writer has replaced the object; put it again',
      { isTransient: true },
    );
  }

  async #putWhole({ name, id, isCreateOnly }: S3Write, bytes: Buffer): Promise<WriteOutcome> {
    const { client, bucket, requests } = this.#bucket;
    const command = {
      Bucket: bucket,
      Key: name,
      Body: bytes,
      Metadata: { [ID_METADATA]: id },
      ...(isCreateOnly ? { IfNoneMatch: '*' } : {}),
    };
    return requests.run<WriteOutcome>(
      {
        step: `putting ${name}`,
        onRefusal: ({ status }) => (status === PRECONDITION_FAILED ? 'exists' : undefined),
      },
      async (abortSignal) => {
        await client.send(new PutObjectCommand(command), { abortSignal });
        return 'written';
      },
    );
  }

  /** Whether the object is the one that this write put. */
  async #isOwn({ name, id }: S3Write): Promise<boolean> {
    const { client, bucket, requests } = this.#bucket;
    const found = await requests.run(
      {
        step: `looking at ${name}`,
        onRefusal: ({ status }) => (status === NOT_FOUND ? '' : undefined),
      },
      async (abortSignal) => {
        const head = await client.send(new HeadObjectCommand({ Bucket: bucket, Key: name }), { abortSignal });
        return head.Metadata?.[ID_METADATA] ?? '';
      },
    );
    return found === id;
  }

  #listPage(
    step: string,
    { prefix, pageSize, token }: { prefix: string; pageSize: number; token: string | undefined },
  ): Promise<ListObjectsV2CommandOutput> {
    const { client, bucket, requests } = this.#bucket;
    const command = {
      Bucket: bucket,
      Prefix: this.#prefix + prefix,
      MaxKeys: pageSize,
      ...(token === undefined ? {} : { ContinuationToken: token }),
    };
    return requests.run({ step }, (abortSignal) =>
      client.send(new ListObjectsV2Command(command), { abortSignal }),
    );
  }

  #nameOf(key: string): string {
    return this.#prefix + requireObjectKey(key);
  }
}

async function* joinParts(first: ObjectPart, rest: AsyncIterable<ObjectPart>): AsyncGenerator<ObjectPart> {
  yield first;
  yield* rest;
}

/** Names a bucket, its prefix and its server, for people. */
export function describeLocation({ bucket, prefix, endpoint, region }: S3Location): string {
  const where = endpoint ?? `AWS in ${region}`;
  return `s3://${bucket}${prefix === '' ? '' : `/${prefix}`} at ${where}`;
}
