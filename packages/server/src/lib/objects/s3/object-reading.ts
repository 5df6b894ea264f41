/** Reads an object, and continues where it was if the connection breaks. */
import type { Readable } from 'node:stream';
import { GetObjectCommand, type GetObjectCommandOutput } from '@aws-sdk/client-s3';
import { objectNotFound, type ByteRange } from '../object-store.ts';
import { BodyError, readBody } from './object-body.ts';
import type { S3Bucket } from './s3-bucket.ts';
import { describeFault, type S3Fault } from './s3-fault.ts';
import { Patience } from './s3-requests.ts';

export interface ReadTarget {
  /** Key in the store, for errors. */
  key: string;
  /** Name in the bucket. */
  name: string;
}

interface Answer {
  body: Readable;
  lengthBytes: number;
  etag: string | undefined;
}

const RANGE_NOT_SATISFIABLE = 416;

export async function* readObject(
  from: S3Bucket,
  target: ReadTarget,
  { start, end }: ByteRange,
): AsyncGenerator<Uint8Array> {
  const { requests } = from;
  const patience = new Patience(requests.limits.deadlineMs);
  const step = `getting ${target.key}`;
  let first: Answer | undefined;
  let offset = start;
  for (;;) {
    const answer = await ask(from, target, end === undefined ? { start: offset } : { start: offset, end });
    if (answer === undefined && first === undefined) return;
    // Bytes of two objects must not be joined.
    if (answer === undefined || (first !== undefined && answer.etag !== first.etag))
      throw requests.fail(step, 'it was replaced while it was read; read it again', { isTransient: true });
    first ??= answer;
    try {
      for await (const piece of readBody(answer.body, { ...answer, idleMs: requests.limits.idleMs })) {
        offset += piece.length;
        patience.renew();
        yield piece;
      }
      return;
    } catch (error) {
      requests.signal.throwIfAborted();
      if (!(error instanceof BodyError)) throw error;
      const isComplete = offset === start + first.lengthBytes;
      if (isComplete) return;
      if (!(await patience.pause(requests.signal)))
        throw requests.fail(step, describeFault(error.cause).text, { isTransient: true });
    }
  }
}

/** Returns undefined if the object has no bytes in the range. */
async function ask(
  { client, bucket, requests }: S3Bucket,
  { key, name }: ReadTarget,
  { start, end }: ByteRange,
): Promise<Answer | undefined> {
  const isWhole = start === 0 && end === undefined;
  const range = isWhole ? {} : { Range: `bytes=${start}-${end === undefined ? '' : end - 1}` };
  const step = `getting ${key}`;
  const answer = await requests.run<GetObjectCommandOutput | 'absent' | 'empty'>(
    { step, onRefusal: judgeRefusal },
    (abortSignal) =>
      client.send(new GetObjectCommand({ Bucket: bucket, Key: name, ...range }), { abortSignal }),
  );
  if (answer === 'absent') throw objectNotFound(key);
  if (answer === 'empty') return undefined;
  const body = answer.Body as Readable;
  if (!isWhole && answer.ContentRange?.startsWith(`bytes ${start}-`) !== true) {
    body.on('error', () => undefined).destroy();
    throw requests.fail(step, 'the server ignores the range of a request; use another server', {
      isTransient: false,
    });
  }
  return { body, lengthBytes: answer.ContentLength ?? 0, etag: answer.ETag };
}

function judgeRefusal({ code, status }: S3Fault): 'absent' | 'empty' | undefined {
  if (code === 'NoSuchKey') return 'absent';
  return status === RANGE_NOT_SATISFIABLE ? 'empty' : undefined;
}
