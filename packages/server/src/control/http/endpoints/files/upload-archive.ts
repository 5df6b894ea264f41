import { UnpackQuery, UnpackResult } from '@coppice/contract';
import { logChange, TRANSFER_REFUSALS } from '../../../audit/logged-change.ts';
import { answers, CONTENT } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { addRawBodies, cutOff, BODY_DEADLINE_MS, watchForStall } from '../../requests/raw-body.ts';
import { SandboxParams } from '../../requests/params.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'audit' | 'openRequests' | 'limits'>;

/** The body is piped to the guest as it comes, and unpacked there. */
export function addUploadArchive(app: App, { sandboxes, audit, openRequests, limits }: Parts): void {
  addRawBodies(app, (scope) => {
    scope.route({
      method: 'PUT',
      url: '/v1/runs/:id/files/archive',
      config: { access: 'full', hasRawBody: true },
      schema: {
        operationId: 'uploadArchive',
        summary: 'Unpack a tar into a directory',
        description:
          'The body is the archive, of any content type. The directory is created if it is missing. Files and links replace ' +
          'those of the same name; existing directories stay as they are. Names that are absolute, contain `..`, or lead out ' +
          'of the directory through a symlink are refused, and so are devices, pipes and more than 500 000 entries. After an ' +
          'error the entries before it remain; the message gives their number.',
        consumes: ['application/octet-stream'],
        body: CONTENT,
        params: SandboxParams,
        querystring: UnpackQuery,
        response: answers(200, UnpackResult, [400, 401, 404, 409, 429, 502, 503, 504, 507]),
      },
      handler: async (request) => {
        const { organizationId, reach, params, query } = request;
        const { format } = query;
        const driver = await sandboxes.getDriver(reach, params.id);
        const path = resolvePath(driver.row, query.path);
        using stall = watchForStall(request, limits.transferStallMs, 'guest_unreachable');
        const transfer = { content: request.raw, deadlineMs: BODY_DEADLINE_MS, signal: stall.signal };
        let unpacked: UnpackResult | undefined;
        const append = (outcome: object) => {
          const { size = null, entries = null } = unpacked ?? {};
          const data = { path, size, archive: format, entries, ...outcome };
          return audit.append(params.id, { event: 'file.upload', data });
        };
        const unpack = async () =>
          (unpacked = await driver.runner.files.unpack(params.id, { ...query, path, ...transfer }));
        return openRequests.limit(organizationId, () =>
          driver.use(() => logChange(append, unpack, TRANSFER_REFUSALS)),
        );
      },
      onError: async (request) => cutOff(request),
    });
  });
}
