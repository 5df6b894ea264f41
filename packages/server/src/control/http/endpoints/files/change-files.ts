import type { FastifyRequest } from 'fastify';
import type { AuditNote } from '../../../audit/audit-chain.ts';
import { logChange } from '../../../audit/logged-change.ts';
import type { RunnerFiles } from '../../../placement/runner-files.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

export type ChangeParts = Pick<HttpParts, 'sandboxes' | 'audit' | 'openRequests'>;

export interface GuestFiles {
  /** Resolves a path of the request. */
  resolve: (path: string) => string;
  files: RunnerFiles;
}

export interface FileChangePlan<T> {
  buildNote: (outcome: { complete?: false }) => AuditNote;
  change: () => Promise<T>;
}

/** Changes files of a sandbox, and logs the change. */
export async function changeFiles<T>(
  {
    organizationId,
    reach,
    params,
  }: Pick<FastifyRequest, 'organizationId' | 'reach'> & { params: { id: string } },
  { sandboxes, audit, openRequests }: ChangeParts,
  plan: (guest: GuestFiles) => FileChangePlan<T>,
): Promise<T> {
  const driver = await sandboxes.getDriver(reach, params.id);
  return openRequests.limit(organizationId, () =>
    driver.use(() => {
      const { buildNote, change } = plan({
        resolve: (path) => resolvePath(driver.row, path),
        files: driver.runner.files,
      });
      return logChange((outcome) => audit.append(params.id, buildNote(outcome)), change);
    }),
  );
}
