/** Writes a large object in parts, of which nothing is visible before all are complete. */
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  UploadPartCommand,
  type CompletedPart,
} from '@aws-sdk/client-s3';
import type { ObjectPart } from './object-parts.ts';
import {
  ID_METADATA,
  PRECONDITION_FAILED,
  type S3Bucket,
  type S3Write,
  type WriteOutcome,
} from './s3-bucket.ts';

/** A limit of S3. */
const MAX_PARTS = 10_000;
const ABORT_DEADLINE_MS = 15_000;

interface Upload extends S3Write {
  uploadId: string;
}

/** Uploads the parts one after the other. If that fails, the server removes those that it has. */
export async function uploadInParts(
  to: S3Bucket,
  write: S3Write,
  parts: AsyncIterable<ObjectPart>,
): Promise<WriteOutcome> {
  const upload = { ...write, uploadId: await createUpload(to, write) };
  try {
    const outcome = await complete(to, upload, await uploadParts(to, upload, parts));
    if (outcome === 'exists') await abort(to, upload);
    return outcome;
  } catch (error) {
    // Its failure must not hide the first one. A rule of the bucket removes what is left.
    await abort(to, upload).catch(() => undefined);
    throw error;
  }
}

async function createUpload({ client, bucket, requests }: S3Bucket, { name, id }: S3Write): Promise<string> {
  const step = `starting the upload of ${name}`;
  const { UploadId } = await requests.run({ step }, (abortSignal) =>
    client.send(
      new CreateMultipartUploadCommand({ Bucket: bucket, Key: name, Metadata: { [ID_METADATA]: id } }),
      { abortSignal },
    ),
  );
  if (UploadId !== undefined) return UploadId;
  throw requests.fail(step, 'the server named no upload', { isTransient: false });
}

async function uploadParts(
  to: S3Bucket,
  upload: Upload,
  parts: AsyncIterable<ObjectPart>,
): Promise<CompletedPart[]> {
  const done: CompletedPart[] = [];
  for await (const { bytes } of parts) {
    if (done.length === MAX_PARTS) throw tooLarge(to, upload.name);
    done.push(await uploadPart(to, upload, { bytes, number: done.length + 1 }));
  }
  return done;
}

async function uploadPart(
  { client, bucket, requests }: S3Bucket,
  { name, uploadId }: Upload,
  { bytes, number }: { bytes: Buffer; number: number },
): Promise<CompletedPart> {
  const step = `putting part ${number} of ${name}`;
  const where = { Bucket: bucket, Key: name, UploadId: uploadId, PartNumber: number };
  const { ETag } = await requests.run({ step }, (abortSignal) =>
    client.send(new UploadPartCommand({ ...where, Body: bytes }), { abortSignal }),
  );
  if (ETag === undefined)
    throw requests.fail(step, 'the server sent no ETag of the part', { isTransient: false });
  return { PartNumber: number, ETag };
}

async function complete(
  { client, bucket, requests }: S3Bucket,
  { name, uploadId, isCreateOnly }: Upload,
  parts: CompletedPart[],
): Promise<WriteOutcome> {
  const command = {
    Bucket: bucket,
    Key: name,
    UploadId: uploadId,
    MultipartUpload: { Parts: parts },
    ...(isCreateOnly ? { IfNoneMatch: '*' } : {}),
  };
  return requests.run<WriteOutcome>(
    {
      step: `completing the upload of ${name}`,
      onRefusal: ({ code, status }) => {
        if (status === PRECONDITION_FAILED) return 'exists';
        return code === 'NoSuchUpload' ? 'unknown' : undefined;
      },
    },
    async (abortSignal) => {
      await client.send(new CompleteMultipartUploadCommand(command), { abortSignal });
      return 'written';
    },
  );
}

/** Removes the parts. The upload may already be complete or removed. */
async function abort({ client, bucket, requests }: S3Bucket, { name, uploadId }: Upload): Promise<void> {
  await requests.run<unknown>(
    {
      step: `removing the upload of ${name}`,
      deadlineMs: Math.min(ABORT_DEADLINE_MS, requests.limits.deadlineMs),
      onRefusal: ({ code }) => (code === 'NoSuchUpload' ? 'absent' : undefined),
    },
    (abortSignal) =>
      client.send(new AbortMultipartUploadCommand({ Bucket: bucket, Key: name, UploadId: uploadId }), {
        abortSignal,
      }),
  );
}

function tooLarge({ requests }: S3Bucket, name: string): Error {
  const limitGiB = Math.floor((MAX_PARTS * requests.limits.partBytes) / 2 ** 30);
  return requests.fail(`putting ${name}`, `it is larger than ${limitGiB} GiB; put it as several objects`, {
    isTransient: false,
  });
}
