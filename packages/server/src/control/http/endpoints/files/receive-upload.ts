import type { UploadQuery, UploadResult } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { FormFile, isForm } from '../../requests/form-file.ts';
import { UPLOAD_DEADLINE_MS, watchForStall } from '../../requests/raw-body.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

export type UploadParts = Pick<HttpParts, 'sandboxes' | 'runner' | 'audit' | 'openRequests' | 'limits'>;

/** Stores the body of an authenticated request as a file of a sandbox. */
export async function receiveUpload(
  request: FastifyRequest,
  { id, ...file }: UploadQuery & { id: string },
  { sandboxes, runner, audit, openRequests, limits }: UploadParts,
): Promise<UploadResult> {
  const driver = await sandboxes.getDriver(request.reach, id);
  using stall = watchForStall(request, limits.transferStallMs, 'guest_unreachable');
  return await openRequests.limit(request.organizationId, async () => {
    using form = await openForm(request, stall.signal);
    const content = form?.content ?? request.raw;
    return await driver.use(async () => {
      const resolved = resolvePath(driver.row, file.path);
      const transfer = { content, deadlineMs: UPLOAD_DEADLINE_MS, signal: stall.signal };
      const { path, size } = await runner.uploadFile(id, { ...file, path: resolved, ...transfer });
      await audit.append(id, { event: 'file.upload', data: { path, size } });
      return { path, size };
    });
  });
}

/** Opens the form before the sandbox is used: a body that is refused wakes no sandbox. */
async function openForm(
  { headers, raw }: FastifyRequest,
  signal: AbortSignal,
): Promise<FormFile | undefined> {
  return isForm(headers['content-type']) ? FormFile.open(raw, signal) : undefined;
}
