import type { FastifyRequest } from 'fastify';
import type { AuditNote } from '../../../audit/audit-chain.ts';
import { logChange } from '../../../audit/logged-change.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

export type ChangeParts = Pick<HttpParts, 'sandboxes' | 'runner' | 'audit' | 'openRequests'>;

export interface FileChangePlan<T> {
  buildNote: (outcome: { complete?: false }) => AuditNote;
  change: () => Promise<T>;
}

/** Changes files of a sandbox, and logs the change. `plan` gets a function that resolves paths of the request. */
export async function changeFiles<T>(
  {
    organizationId,
    reach,
    params,
  }: Pick<FastifyRequest, 'organizationId' | 'reach'> & { params: { id: string } },
  { sandboxes, audit, openRequests }: ChangeParts,
  plan: (resolve: (path: string) => string) => FileChangePlan<T>,
): Promise<T> {
  const driver = await sandboxes.getDriver(reach, params.id);
  return openRequests.limit(organizationId, () =>
    driver.use(() => {
      const { buildNote, change } = plan((path) => resolvePath(driver.row, path));
      return logChange((outcome) => audit.append(params.id, buildNote(outcome)), change);
    }),
  );
}
