import { posix } from 'node:path';
import type { UploadQuery, UploadResult } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { logChange, TRANSFER_REFUSALS } from '../../../audit/logged-change.ts';
import { FormFile, isForm } from '../../requests/form-file.ts';
import { BODY_DEADLINE_MS, watchForStall } from '../../requests/raw-body.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

const MAX_PATH_BYTES = 4096;

export type UploadParts = Pick<HttpParts, 'sandboxes' | 'audit' | 'openRequests' | 'limits'>;

/** Stores the body of an authenticated request as a file of a sandbox. */
export async function receiveUpload(
  request: FastifyRequest,
  { id, deadlineMs = BODY_DEADLINE_MS, ...file }: UploadQuery & { id: string; deadlineMs?: number },
  { sandboxes, audit, openRequests, limits }: UploadParts,
): Promise<UploadResult> {
  const driver = await sandboxes.getDriver(request.reach, id);
  using stall = watchForStall(request, limits.transferStallMs, 'guest_unreachable');
  return await openRequests.limit(request.organizationId, async () => {
    using form = await openForm(request, stall.signal);
    const content = form?.content ?? request.raw;
    return await driver.use(async () => {
      const resolved = resolvePath(driver.row, file.path);
      const transfer = { content, deadlineMs, signal: stall.signal };
      let stored: UploadResult | undefined;
      // The path is control's: the guest chooses that of its answer.
      const append = (outcome: object) => {
        const data = { path: resolved, size: stored?.size ?? null, ...outcome };
        return audit.append(id, { event: 'file.upload', data });
      };
      const store = async () =>
        (stored = await driver.runner.uploadFile(id, { ...file, path: resolved, ...transfer }));
      const { path, size } = await logChange(append, store, TRANSFER_REFUSALS);
      return { path: nameStored(resolved, path), size };
    });
  });
}

/** Only the guest knows where a relative path starts that control cannot resolve: the image's directory. */
function nameStored(resolved: string, answered: string): string {
  const wanted = posix.normalize(resolved);
  if (wanted.startsWith('/')) return wanted;
  const isPlausible = answered.startsWith('/') && answered.endsWith(`/${wanted}`);
  return isPlausible && Buffer.byteLength(answered) <= MAX_PATH_BYTES ? answered : wanted;
}

/** Opens the form before the sandbox is used: a body that is refused wakes no sandbox. */
async function openForm(
  { headers, raw }: FastifyRequest,
  signal: AbortSignal,
): Promise<FormFile | undefined> {
  return isForm(headers['content-type']) ? FormFile.open(raw, signal) : undefined;
}
